"""Answers as text for people: the tables and their columns, a module for each answer."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from cli.terminal import render

if TYPE_CHECKING:  # slow to import
    from cli.answers import Answer, ClusterPart
    from cli.input.overview import ClusterStatus

WRITERS: Final[Mapping[str, tuple[str, str]]] = {
    "Planned": ("plan", "write"),
    "NodeExplained": ("explain", "write_node"),
    "PodExplained": ("explain", "write_pod"),
    "ClusterStatus": ("status", "write"),
    "Diagnosis": ("doctor", "write"),
    "Reasons": ("explain", "write_codes"),
    "SettingsSchema": ("settings", "write"),
    "Replayed": ("replay", "write"),
}
"""Module and function by the type of the answer; the module is imported when it is needed."""


def text(answer: "Answer") -> str:
    """Return an answer for standard output: with color for a terminal, without for a pipe."""
    module, function = WRITERS[type(answer).__name__]
    write = getattr(_module(module), function)
    return render(lambda out: write(answer, out))


def part(status: "ClusterStatus") -> Any:  # noqa: ANN401 a row of the table
    """Return the status of one of several clusters, as `several` needs it."""
    return _module("status").row(status)


def several(parts: "Sequence[ClusterPart]") -> str:
    """Return one table with the status of each cluster."""
    found: str = _module("status").several(parts)
    return found


def _module(name: str) -> Any:  # noqa: ANN401 a module
    return import_module(f"{__name__}.{name}")
