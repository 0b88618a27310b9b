"""Answers as text for people: the tables and their columns, a module for each answer."""

from rich.console import Console

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
from cli.forms.text import doctor, explain, plan, replay, status
from cli.input.overview import ClusterStatus
from cli.terminal import Table, render, say
from core.config.schema import allowed, settings

part = status.row
several = status.several


def text(answer: Answer) -> str:
    """Return an answer for standard output: with color for a terminal, without for a pipe."""
    return render(lambda out: _write(answer, out))


def _write(answer: Answer, out: Console) -> None:
    match answer:
        case Planned():
            plan.write(answer, out)
        case NodeExplained():
            explain.write_node(answer, out)
        case PodExplained():
            explain.write_pod(answer, out)
        case ClusterStatus():
            status.write(answer, out)
        case Diagnosis():
            doctor.write(answer, out)
        case Reasons(codes):
            explain.write_codes(codes, out)
        case SettingsSchema():
            _write_settings(out)
        case Replayed():
            replay.write(answer, out)


def _write_settings(out: Console) -> None:
    """Write every setting with its default, allowed values and programs that need a restart."""
    rows = (
        (one.path, str(one.schema.get("default", "")), allowed(one.schema), ", ".join(one.restart))
        for one in settings()
    )
    say(out, Table("setting", "default", "allowed", "restart", rows=rows, left=(0, 1, 2, 3)))
