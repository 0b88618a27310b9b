"""A plan as names of its removable nodes."""

from cli.forms.rows import names as text
from cli.forms.rows import names_of_several as several
from cli.forms.rows import part

__all__ = ["part", "several", "text"]
