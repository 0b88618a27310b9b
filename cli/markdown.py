"""Answers as Markdown: so far the codes alone, whose page is docs/reasons.md."""

from cli.answers import Reasons
from core.explain.reasons import page


def text(_: Reasons) -> str:
    """Write docs/reasons.md."""
    return page()
