"""A plan as a table of all nodes."""

from cli.formats.rows import part
from cli.formats.rows import wide as text
from cli.formats.rows import wide_of_several as several

__all__ = ["part", "several", "text"]
