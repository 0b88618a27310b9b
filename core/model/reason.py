"""Why: what there is to know about a reason, and one case of it."""

from typing import NamedTuple


class Reason(NamedTuple):
    """What there is to know about a code; {node}, {namespace} and {name} stand for names.

    {key} or {owner} in a fix stands for what the blocker is `about`. A reason stands beside the
    rule that gives it; cli.explain.reasons has the list of all.
    """

    code: str
    """A contract: it stands in plans, metrics and Events; add, never rename."""
    meaning: str
    """One sentence."""
    fix: str
    """The cheapest thing that a person can do; a command is given as it is typed."""
    lifted: str
    """Completes: it ends when ..."""


class Timed(NamedTuple):
    """What a rule answers whose verdict ends with time."""

    message: str
    until: int
    """Unix seconds; from then on the rule does not apply. In the past: it does not apply now."""


class Blocker(NamedTuple):
    """One reason why a node can not be removed."""

    reason: Reason
    message: str
    pod: str | None = None
    """namespace/name of the pod that it is about, if it is about one."""
    about: str = ""
    """The key of an annotation, label or taint, or the owner, if its fix names one."""
    until: int | None = None
    """Unix seconds at which the reason ends by time alone; None: it ends only when the cluster or
    the configuration changes."""

    @property
    def code(self) -> str:
        """Return what it is called in outputs and metrics."""
        return self.reason.code
