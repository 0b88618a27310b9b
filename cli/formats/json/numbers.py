"""How answers as JSON write numbers."""

from typing import Final

DIGITS: Final = 6
"""Decimal places of fractions."""
