"""The namespace of Ebb's own objects; each program's `names.py` has its objects' names."""

from typing import Final

NAMESPACE: Final = "ebb-system"
"""Where the programs run, unless POD_NAMESPACE says otherwise."""
