"""What a policy is asked while a plan is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol

from core.capacity.account import Account, Trial
from core.capacity.sums import Exceeded
from core.model.node import Node
from core.reason import Blocker

Order = tuple[object, ...]
"""Comes out of one policy alone, and ends, together with the level's, in a unique key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a policy sees; nodes by their ids of the Ground."""

    nodes: Sequence[Node]
    account: Account
    """Changes as nodes go."""
    price: Callable[[Mapping[str, str]], Fraction]
    """Of a node with these labels."""
    sticky: Mapping[str, int]
    """By name of a node: pods that rarely leave by themselves; 0: no key."""
    to_move: Callable[[int], int]
    """How many pods would have to find another place."""
    share: Callable[[int], int]
    """The dominant share of what is asked for on the node, at the start."""


class Policy(Protocol):
    """A rule for which nodes go, on one cluster, while one plan is made.

    All else is common: fit, packing, guards, budgets, brakes, marks. Marked nodes are tried before
    others and in the order of their marks, whatever the policy; *marked* says of a question that
    it is about one of them, which may be held to less.
    """

    name: ClassVar[str]

    def __init__(self, look: Look) -> None:
        """Look at the cluster."""

    def level(self, node: int) -> Order:
        """Return what nodes are tried in the order of, those of one level until none can go."""

    def rank(self, node: int) -> Order:
        """Return what the nodes of one level are tried in the order of."""

    def nominated(self, node: int, *, marked: bool) -> bool:
        """Say whether the node may be tried, or stays marked; asked often, so O(1)."""

    def why_not(self, node: int, *, marked: bool) -> Blocker:
        """Say why a node is not nominated."""

    def exceeded(self, trial: Trial, *, marked: bool) -> tuple[Exceeded, ...]:
        """Return what would not hold any more after the packing."""

    def why_exceeded(self, found: Exceeded, *, marked: bool) -> Blocker:
        """Say what would not hold."""
