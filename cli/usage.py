"""The name of the program in its help, and examples at the end of the help of each command."""

import sys
from pathlib import Path
from typing import Final

PLUGIN: Final = "kubectl-ebb"
"""Name of the program as a plugin of kubectl, which runs it as `kubectl ebb`."""
KEEP_LINES: Final = "\b"
"""Character before lines that click does not wrap."""


def program_name() -> str:
    """Return `kubectl ebb` if kubectl runs the program as its plugin, else `ebb`."""
    return "kubectl ebb" if Path(sys.argv[0]).name == PLUGIN else "ebb"


def examples(*commands: str) -> str:
    """Return the end of a help text; *commands*: the arguments of the program in each example."""
    lines = (f"  {program_name()} {command}" for command in commands)
    return "\n".join((KEEP_LINES, "Examples:", *lines))
