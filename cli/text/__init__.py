"""Answers as text and tables, for people."""

from cli.answers import Answer, NodeExplained, Planned, PodExplained, Reasons, Settings
from cli.look.overview import Status
from cli.terminal import written
from cli.text import explain, plan, reasons, settings, status


def text(answer: Answer) -> str:
    """Write an answer for standard output: with colour for a terminal, without for a pipe."""
    match answer:
        case Planned():
            return written(lambda out: plan.write(answer, out))
        case NodeExplained():
            return written(lambda out: explain.write_node(answer, out))
        case PodExplained():
            return written(lambda out: explain.write_pod(answer, out))
        case Status():
            return written(lambda out: status.write(answer, out))
        case Reasons():
            return written(lambda out: reasons.write(answer, out))
        case Settings():
            return written(settings.write)
