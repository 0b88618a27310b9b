"""The codes as JSON."""

from cli.answers import Reasons
from core.explain.reasons import in_general


def document(answer: Reasons) -> list[dict[str, str]]:
    """Return all codes in the form that orjson writes."""
    told = ((reason.code, in_general(reason)) for reason in answer.all)
    return [
        {"code": code, "meaning": one.meaning, "fix": one.fix, "endsWhen": one.lifted}
        for code, one in told
    ]
