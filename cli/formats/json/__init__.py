"""Answers as JSON; docs/support-policy.md says when a field may change."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import orjson

from cli.terminal import printable
from core.config.settings import API_VERSION

if TYPE_CHECKING:  # slow to import
    from cli.answers import Answer, ClusterPart

WRITERS: Final[Mapping[str, tuple[str, str]]] = {
    "Planned": ("plan", "document"),
    "NodeExplained": ("explain", "node"),
    "PodExplained": ("explain", "pod"),
    "ClusterStatus": ("status", "document"),
    "Diagnosis": ("doctor", "document"),
    "Reasons": ("explain", "codes"),
    "SettingsSchema": ("settings", "document"),
    "Replayed": ("replay", "document"),
}
"""Module and function by the type of the answer; the module is imported when it is needed."""


def text(answer: "Answer") -> str:
    """Return an answer as indented JSON."""
    return orjson.dumps(document(answer), option=orjson.OPT_INDENT_2).decode() + "\n"


def several(parts: "Sequence[ClusterPart]") -> str:
    """Return the answers for several clusters as indented JSON."""
    return orjson.dumps(list_document(parts), option=orjson.OPT_INDENT_2).decode() + "\n"


def list_document(parts: "Sequence[ClusterPart]") -> dict[str, Any]:
    """Return the documents of several clusters, each with its context, or why there is none."""
    items = [
        {"context": one.context, "error": printable(one.error) or None, "answer": one.part}
        for one in parts
    ]
    return {"apiVersion": API_VERSION, "kind": "ClusterList", "items": items}


def document(answer: "Answer") -> dict[str, Any] | list[Any]:
    """Return the fields of an answer."""
    module, function = WRITERS[type(answer).__name__]
    found: dict[str, Any] | list[Any]
    found = getattr(import_module(f"{__name__}.{module}"), function)(answer)
    return found


part = document
