"""The cluster as the watches tell it."""
