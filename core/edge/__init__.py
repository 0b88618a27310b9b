"""Shared adapters: all input and output of the project lives here."""
