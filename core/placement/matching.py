"""Match one toleration, one label requirement or one pod selector, as Kubernetes does."""

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

from core.model.constraints import PodSelector, Requirement, Toleration
from core.model.label_syntax import number_in
from core.model.node import Effect, Taint
from core.model.pod import Pod

Target_ = TypeVar("Target_")

_BLOCKING: Final = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Report whether the toleration covers the taint (k8s.io/api core/v1, ToleratesTaint)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator not in ("", "Equal") or not toleration.key:
        return False
    return toleration.value == taint.value


def is_blocking(taint: Taint) -> bool:
    """Report whether the taint refuses pods without a toleration: NoSchedule or NoExecute."""
    return taint.effect in _BLOCKING


def matches_requirement(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Report whether the labels match the requirement; an unknown operator matches nothing."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    have, *limits = (number_in(text) for text in (value or "", *requirement.values))
    if have is None or len(limits) != 1 or limits[0] is None:
        return False  # as the scheduler: not a number, no match
    return have > limits[0] if requirement.operator == "Gt" else have < limits[0]


def selects(selector: PodSelector, pod: Pod) -> bool:
    """Report whether the selector matches the namespace and the labels of the pod."""
    if selector.namespaces is not None and pod.namespace not in selector.namespaces:
        return False
    return all(
        matches_requirement(requirement, pod.labels) for requirement in selector.requirements
    )


class Finder(Generic[Target_]):
    """A collection of values, each with selectors of the pods to which the value applies.

    `matching` returns the values for a pod without checking every selector.
    """

    def __init__(self) -> None:
        self._at: dict[object, list[tuple[tuple[PodSelector, ...], Target_]]] = {}
        """Values by a label that their pods must have, by namespace and label, or by namespace.

        The key None has the values that may apply to any pod."""

    def add(self, selectors: tuple[PodSelector, ...], target: Target_) -> None:
        """Add *target*, a value that applies to the pods that all of *selectors* match."""
        wanted = (
            requirement
            for selector in selectors
            for requirement in selector.requirements
            if requirement.operator == "In"
        )
        # The value is stored under one label that such a pod must have, or else under its
        # namespace.
        fewest = min(wanted, key=lambda requirement: len(requirement.values), default=None)
        namespaces = selectors[0].namespaces if selectors else None
        places: Iterable[object] = (None,) if namespaces is None else namespaces
        if fewest is not None:
            where = namespaces if namespaces is not None and len(namespaces) == 1 else ()
            places = [(*where, fewest.key, value) for value in fewest.values]
        for place in places:
            self._at.setdefault(place, []).append((selectors, target))

    def matching(self, pod: Pod) -> list[Target_]:
        """Return all values that apply to the pod; their order depends on its labels."""
        labels = sorted(pod.labels.items())
        own = [(pod.namespace, *label) for label in labels]
        return [
            target
            for place in (*own, *labels, pod.namespace, None)
            for selectors, target in self._at.get(place, ())
            if all(selects(selector, pod) for selector in selectors)
        ]
