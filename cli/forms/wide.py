"""A plan as a table of all nodes."""

from cli.forms.rows import wide as text

__all__ = ["text"]
