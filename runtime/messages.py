"""Print messages on standard error, with the control characters of untrusted names escaped.

No other module prints there, except logs and progress bars.
"""

import sys
from typing import TextIO


def tell(line: str, out: TextIO | None = None) -> None:
    """Print one line; *out*: None for standard error."""
    print(printable(line), file=out or sys.stderr, flush=True)


def tell_lines(text: str, prefix: str = "") -> None:
    """Print each line of a text after *prefix* on standard error."""
    for line in text.splitlines():
        tell(f"{prefix}{line}")


def printable(text: str) -> str:
    """Return a text with its control characters escaped, also those of the writing direction.

    Names in files and in the cluster are untrusted, and control characters in them could control
    the terminal.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def printable_json(json: str) -> str:
    """Return JSON of one line with the control characters in its texts escaped as in JSON."""
    if json.isprintable():
        return json
    return "".join(char if char.isprintable() else _escaped(char) for char in json)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
