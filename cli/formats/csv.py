"""A plan as CSV, a line for each node."""

from cli.formats.rows import comma_separated as text
from cli.formats.rows import comma_separated_of_several as several
from cli.formats.rows import part

__all__ = ["part", "several", "text"]
