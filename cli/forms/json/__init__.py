"""Answers as JSON; docs/support-policy.md says when a field may change."""

from typing import Any

import orjson

from cli.answers import (
    Answer,
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
from core.config.schema import schema


def text(answer: Answer) -> str:
    """Return an answer as indented JSON."""
    return orjson.dumps(document(answer), option=orjson.OPT_INDENT_2).decode() + "\n"


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
