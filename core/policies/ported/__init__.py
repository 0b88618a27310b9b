"""Policies that work like those of other tools; each file contains a policy and its settings."""
