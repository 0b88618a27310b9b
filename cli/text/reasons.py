"""The codes for people."""

from rich.console import Console

from cli.answers import Reasons
from cli.terminal import Table, say
from core.explain.reasons import in_general


def write(answer: Reasons, out: Console) -> None:
    """Write every code with what it means and what helps."""
    told = ((reason.code, in_general(reason)) for reason in answer.all)
    rows = ((code, one.meaning, one.fix) for code, one in told)
    say(out, Table("code", "means", "cheapest fix", rows=rows, left=(0, 1, 2)))
