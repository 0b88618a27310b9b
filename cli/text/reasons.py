"""The codes for people."""

from rich.console import Console

from cli.answers import Reasons
from cli.terminal import Table, say
from core.explain.reasons import in_general


def write(answer: Reasons, out: Console) -> None:
    """Write every code with what it means and what helps."""
    rows = Table("code", "means", "cheapest fix", left=(0, 1, 2))
    for reason in answer.all:
        told = in_general(reason)
        rows.add_row(reason.code, told.meaning, told.fix)
    say(out, rows)
