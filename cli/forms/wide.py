"""A plan as a table of all nodes."""

from cli.forms.rows import part
from cli.forms.rows import wide as text
from cli.forms.rows import wide_of_several as several

__all__ = ["part", "several", "text"]
