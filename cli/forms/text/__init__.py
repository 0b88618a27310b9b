"""Answers as text and tables, for people."""

from rich.console import Console

from cli.answers import Answer, NodeExplained, Planned, PodExplained, Reasons, Settings
from cli.forms.text import explain, plan, settings, status
from cli.look.overview import Status
from cli.terminal import written


def text(answer: Answer) -> str:
    """Write an answer for standard output: with colour for a terminal, without for a pipe."""
    return written(lambda out: _write(answer, out))


def _write(answer: Answer, out: Console) -> None:
    match answer:
        case Planned():
            plan.write(answer, out)
        case NodeExplained():
            explain.write_node(answer, out)
        case PodExplained():
            explain.write_pod(answer, out)
        case Status():
            status.write(answer, out)
        case Reasons():
            explain.write_codes(answer, out)
        case Settings():
            settings.write(out)
