"""A plan as CSV, a line for each node."""

from cli.forms.rows import comma_separated as text
from cli.forms.rows import comma_separated_of_several as several
from cli.forms.rows import part

__all__ = ["part", "several", "text"]
