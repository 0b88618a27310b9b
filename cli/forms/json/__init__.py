"""Answers as JSON; docs/support-policy.md says when a field may change."""

from collections.abc import Sequence
from typing import Any

import orjson

from cli.answers import (
    Answer,
    ClusterPart,
    NodeExplained,
    Planned,
    PodExplained,
    Reasons,
    Replayed,
    SettingsSchema,
)
from cli.doctor.finding import Diagnosis
from cli.forms.json import doctor, explain, plan, replay, status
from cli.input.overview import ClusterStatus
from cli.terminal import printable
from core.config.schema import schema
from core.config.settings import API_VERSION


def text(answer: Answer) -> str:
    """Return an answer as indented JSON."""
    return orjson.dumps(document(answer), option=orjson.OPT_INDENT_2).decode() + "\n"


def several(parts: Sequence[ClusterPart]) -> str:
    """Return the answers for several clusters as indented JSON."""
    return orjson.dumps(list_document(parts), option=orjson.OPT_INDENT_2).decode() + "\n"


def list_document(parts: Sequence[ClusterPart]) -> dict[str, Any]:
    """Return the documents of several clusters, each with its context, or why there is none."""
    items = [
        {"context": one.context, "error": printable(one.error) or None, "answer": one.part}
        for one in parts
    ]
    return {"apiVersion": API_VERSION, "kind": "ClusterList", "items": items}


def document(answer: Answer) -> dict[str, Any] | list[Any]:
    """Return the fields of an answer."""
    found: dict[str, Any] | list[Any]
    match answer:
        case Planned():
            found = plan.document(answer)
        case NodeExplained():
            found = explain.node(answer)
        case PodExplained():
            found = explain.pod(answer)
        case ClusterStatus():
            found = status.document(answer)
        case Diagnosis():
            found = doctor.document(answer)
        case Reasons(codes):
            found = explain.codes(codes)
        case SettingsSchema():
            found = schema()
        case Replayed():
            found = replay.document(answer)
    return found


part = document
