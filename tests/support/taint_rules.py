"""The API server's validation of taints, written from its rules and independent of the product.

Source: validateNodeTaints, ValidateLabelName and IsValidLabelValue of Kubernetes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
PART = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def faults(taints: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the errors that the API server would report, by index of the taint."""
    found = []
    seen = set()
    for place, taint in enumerate(taints):
        key, value, effect = (taint.get(name) or "" for name in ("key", "value", "effect"))
        if not is_key(key):
            found.append(f"{place}: key {key!r}")
        if value != "" and not is_name(value):
            found.append(f"{place}: value {value!r}")
        if effect not in EFFECTS:
            found.append(f"{place}: effect {effect!r}")
        if (key, effect) in seen:
            found.append(f"{place}: {key} {effect} twice")
        seen.add((key, effect))
    return found


def is_name(text: Any) -> bool:
    """Return whether the text is a valid label value, or part of a key after the slash."""
    return isinstance(text, str) and len(text) <= 63 and NAME.fullmatch(text) is not None


def is_key(text: Any) -> bool:
    """Return whether the text is a qualified name."""
    if not isinstance(text, str):
        return False
    *prefix, name = text.split("/")
    return is_name(name) and (not prefix or (len(prefix) == 1 and _is_domain(prefix[0])))


def _is_domain(text: str) -> bool:
    return len(text) <= 253 and all(PART.fullmatch(part) for part in text.split("."))
