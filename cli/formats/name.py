"""A plan as names of its removable nodes."""

from cli.formats.rows import names as text
from cli.formats.rows import names_of_several as several
from cli.formats.rows import part

__all__ = ["part", "several", "text"]
