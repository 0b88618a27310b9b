"""A plan as CSV, a line for each node."""

from cli.forms.rows import comma_separated as text

__all__ = ["text"]
