"""Ebb against the real programs; `make e2e` runs it."""
