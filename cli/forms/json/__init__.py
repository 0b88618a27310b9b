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
from cli.forms.json import explain, plan, replay, status
from cli.input.overview import ClusterStatus
from core.config.schema import schema


def text(answer: Answer) -> str:
    """Return an answer as indented JSON."""
    return orjson.dumps(_document(answer), option=orjson.OPT_INDENT_2).decode() + "\n"


def _document(answer: Answer) -> dict[str, Any] | list[Any]:
    document: dict[str, Any] | list[Any]
    match answer:
        case Planned():
            document = plan.document(answer)
        case NodeExplained():
            document = explain.node(answer)
        case PodExplained():
            document = explain.pod(answer)
        case ClusterStatus():
            document = status.document(answer)
        case Reasons():
            document = explain.codes()
        case SettingsSchema():
            document = schema()
        case Replayed():
            document = replay.document(answer)
    return document
