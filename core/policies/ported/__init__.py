"""Policies of other tools, each in one file with its settings."""
