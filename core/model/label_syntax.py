"""The syntax of label keys and values, and of numbers in node affinity.

Source: IsQualifiedName and IsValidLabelValue of k8s.io/apimachinery.
"""

import re
from typing import Final

_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
_KEY: Final = re.compile(rf"(?:(?=[^/]{{1,253}}/){_DOMAIN}/)?{_NAME}")
_VALUE: Final = re.compile(rf"(?:{_NAME})?")
_DIGITS: Final = re.compile(r"(?a)[+-]?\d{1,64}")


def is_label_key(text: str) -> bool:
    """Return whether the text is a valid key of a label."""
    return _KEY.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Return whether the text is a valid value of a label; an empty text is."""
    return _VALUE.fullmatch(text) is not None


def number_in(text: str) -> int | None:
    """Parse a value of the operators Gt and Lt of node affinity, as kube-scheduler does.

    None for text that Go's ParseInt rejects, such as `1_0`, and for numbers that need more than 64
    bits.
    """
    number = int(text) if _DIGITS.fullmatch(text) else None
    return None if number is None or not -(2**63) <= number < 2**63 else number
