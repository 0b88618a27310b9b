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
from cli.look.overview import Status
from core.config.schema import schema


def text(answer: Answer) -> str:
    """Write an answer for programs."""
    return orjson.dumps(_document(answer), option=orjson.OPT_INDENT_2).decode() + "\n"


def _document(answer: Answer) -> dict[str, Any] | list[Any]:
    match answer:
        case NodeExplained():
            return explain.node(answer.answer, answer.standing, answer.emptying)
        case PodExplained():
            return explain.pod(answer.answer)
        case Reasons():
            return explain.codes()
        case Settings():
            return schema()
        case _:
            return _of_many(answer)


def _of_many(answer: Planned | Replayed | Status) -> dict[str, Any]:
    match answer:
        case Planned():
            return plan.document(answer)
        case Replayed():
            return replay.document(answer)
        case Status():
            return status.document(answer)
