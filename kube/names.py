"""Namespace of Ebb's own objects; the `names.py` of each program has the names of its objects."""

from typing import Final

NAMESPACE: Final = "ebb-system"
"""Default namespace of the programs; POD_NAMESPACE overrides it."""
