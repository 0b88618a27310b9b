"""Reasons: why a node cannot be removed, or a mark or pod cannot change further."""

from typing import NamedTuple


class Reason(NamedTuple):
    """A reason code with its explanation; {node}, {namespace} and {name} are placeholders.

    {key} or {owner} in a fix stands for `Blocker.about`. Each reason is defined next to the rule
    that returns it; cli.explain.reasons lists all of them.
    """

    code: str
    """Stable identifier in plans, metrics and Events; never rename a code."""
    meaning: str
    """One sentence that explains the code."""
    fix: str
    """The cheapest fix for an operator; commands are complete and can be pasted."""
    lifted: str
    """Condition that ends the reason; completes "It ends when ..."."""


class Timed(NamedTuple):
    """The answer of a rule that stops applying at a known time."""

    message: str
    until: int
    """Unix second from which the rule does not apply any more; it may have passed."""


class Blocker(NamedTuple):
    """One reason why a node cannot be removed."""

    reason: Reason
    message: str
    pod: str | None = None
    """namespace/name of the pod that causes the reason, or None."""
    about: str = ""
    """Key of an annotation, label or taint, or name of an owner, for the placeholder in the
    fix."""
    until: int | None = None
    """Unix second at which the reason ends; None if only a change of the cluster or the
    configuration ends it."""

    @property
    def code(self) -> str:
        """Return the code for outputs and metrics."""
        return self.reason.code
