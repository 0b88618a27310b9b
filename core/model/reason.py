"""Define reasons: why a node cannot be removed, or why Ebb cannot change a mark or pod further."""

from collections.abc import Callable
from typing import NamedTuple


class Reason(NamedTuple):
    """Why a node cannot be removed, or a mark or pod cannot change: a code with its explanation.

    Texts may contain the placeholders {node}, {namespace} and {name}. {key} or {owner} in a fix
    stands for `Blocker.about`. Each reason is defined next to the rule that returns it;
    cli.explain.reasons lists all of them.
    """

    code: str
    """Stable identifier in plans, metrics and Events; never rename a code."""
    meaning: str
    """One sentence that explains the code."""
    fix: str
    """The cheapest fix for an operator; commands are complete and can be pasted."""
    ends_when: str
    """Condition that ends the reason; completes "It ends when ..."."""


class Timed(NamedTuple):
    """The message of a rule that applies, with the time at which it stops applying."""

    message: str
    until: int
    """Unix second from which the rule does not apply any more; it may have passed."""


class DeferredText:
    """A text that is only formatted when it is read; equal to every text that reads the same.

    A plan has a text for each reason of each node, and most of them are never read.
    """

    __slots__ = ("_operands", "_write")

    def __init__(self, write: Callable[..., str], *operands: object) -> None:
        """Store a function and its arguments; `write(*operands)` returns the text.

        No operand may change later.
        """
        self._write, self._operands = write, operands

    def __str__(self) -> str:
        return self._write(*self._operands)

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeferredText | str) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class Blocker(NamedTuple):
    """A reason why a node cannot be removed or a pod cannot be moved, with a message."""

    reason: Reason
    text: str | DeferredText
    pod: str | None = None
    """namespace/name of the pod that causes the reason, or None."""
    about: str = ""
    """Key of an annotation, label or taint, or name of an owner, for the placeholder in the
    fix."""
    until: int | None = None
    """Unix second at which the reason ends; None if only a change of the cluster or the
    configuration ends it."""

    @property
    def message(self) -> str:
        """Return the text that says why, with the names and values of this case."""
        return str(self.text)

    @property
    def code(self) -> str:
        """Return the stable code of the reason, for outputs and metrics."""
        return self.reason.code
