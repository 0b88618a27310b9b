"""Answers as JSON: a contract; fields are added, never renamed."""

from typing import Any

import orjson

from cli.answers import (
    Answer,
    NodeExplained,
    Planned,
    PodExplained,
    Reasons,
    Replayed,
    Settings,
)
from cli.forms.json import explain, plan, replay, status
from cli.input.overview import Status
from core.config.schema import schema


def text(answer: Answer) -> str:
    """Write an answer for programs."""
    return orjson.dumps(_document(answer), option=orjson.OPT_INDENT_2).decode() + "\n"


def _document(answer: Answer) -> dict[str, Any] | list[Any]:
    found: dict[str, Any] | list[Any]
    match answer:
        case Planned():
            found = plan.document(answer)
        case NodeExplained():
            found = explain.node(answer.answer, answer.standing)
        case PodExplained():
            found = explain.pod(answer.answer)
        case Status():
            found = status.document(answer)
        case Reasons():
            found = explain.codes()
        case Settings():
            found = schema()
        case Replayed():
            found = replay.document(answer)
    return found
