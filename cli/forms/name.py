"""A plan as names of its removable nodes."""

from cli.forms.rows import names as text

__all__ = ["text"]
