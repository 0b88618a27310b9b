"""Texts of reasons that are written when they are read."""

from core.model.reason import Blocker, DeferredText, Reason

REASON = Reason("code", "meaning", "fix", "end")


def text(*parts: str) -> str:
    return " ".join(parts)


def test_blocker_with_deferred_text_equals_blocker_with_same_text() -> None:
    deferred = Blocker(REASON, DeferredText(text, "requests", "exceed"))
    assert deferred == Blocker(REASON, "requests exceed")
    assert repr(deferred) == repr(Blocker(REASON, "requests exceed"))
    assert hash(deferred) == hash(Blocker(REASON, "requests exceed"))
    assert deferred != Blocker(REASON, DeferredText(text, "requests", "fit"))


def test_deferred_text_is_not_written_when_nobody_reads_it() -> None:
    written: list[str] = []

    def write() -> str:
        written.append("text")
        return "text"

    deferred = Blocker(REASON, DeferredText(write))
    assert written == []
    assert (deferred.message, written) == ("text", ["text"])
