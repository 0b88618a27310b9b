"""The scores that the configuration chooses from: how unmarked nodes are scored.

A view feeds its score with nodes and pods, and asks it for the parts of an answer.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

from core.edge.decode.kinds import NODES, PODS, AnyKind
from core.marks.mark import Mark
from core.marks.wellknown import MARK_LABEL
from core.model.node import Node
from core.model.pod import Pod
from extender import wire
from extender.formulas import SCORE_MAX, SCORE_UNMARKED_MIN, score_beside, score_full
from extender.node_requests import OnNodes
from extender.node_shapes import NodeShapes
from extender.owner_mix import SORTS, OwnerMixes, owner_class_of

PodClass = int
"""Pods of one class get the same scores."""
ANY_POD: Final[PodClass] = -1
"""The class of all pods where a score does not tell pods apart, or cannot read the pod."""
FragmentsOf = Callable[[PodClass], wire.Fragments]
"""Returns the fragments for pods of a class."""


class Score(ABC):
    """Scores unmarked nodes."""

    watches: ClassVar[Mapping[AnyKind, str | None]]
    """Kinds that the view has to watch, each with a label selector; None: all objects."""
    unread_mark: ClassVar[Mark | None]
    """Mark that a node gets whose labels cannot be read and never were; None: it gets no mark."""
    names_max: ClassVar[int]
    """How many names of nodes that the view does not hold are kept with their fragments."""

    @abstractmethod
    def of(self, node: Node | None, pods: PodClass) -> int:
        """Score a node for pods of a class; None: a node that the view does not hold."""

    @abstractmethod
    def answer(self, call: wire.Call, fragments_of: FragmentsOf) -> Iterable[bytes]:
        """Return the fragments of the nodes of a call, in its order, for its pod."""

    @abstractmethod
    def nodes_listed(self, unmarked: Iterable[Node]) -> None:
        """Replace all unmarked nodes."""

    @abstractmethod
    def node_became(self, name: str, unmarked: Node | None) -> None:
        """Note a changed node; None: it is deleted or marked."""

    @abstractmethod
    def pods_listed(self, pods: Mapping[str, Pod]) -> None:
        """Replace all pods."""

    @abstractmethod
    def pod_became(self, before: Pod | None, after: Pod | None) -> None:
        """Note a changed pod; None: it does not exist."""


class Marks(Score):
    """Gives all unmarked nodes the same score."""

    # Only marked nodes are watched, so that memory stays flat in a large cluster.
    watches: ClassVar = {NODES: MARK_LABEL}
    unread_mark = Mark.SOFT
    names_max = wire.FRAGMENTS_MAX

    def of(self, node: Node | None, pods: PodClass) -> int:  # noqa: ARG002 as inherited
        """Return the highest score."""
        return SCORE_MAX

    def answer(self, call: wire.Call, fragments_of: FragmentsOf) -> Iterable[bytes]:
        """Return the fragments of the nodes; the pod is not read."""
        return map(fragments_of(ANY_POD).__getitem__, call.names)

    def nodes_listed(self, unmarked: Iterable[Node]) -> None:
        """Ignore nodes."""

    def node_became(self, name: str, unmarked: Node | None) -> None:
        """Ignore a node."""

    def pods_listed(self, pods: Mapping[str, Pod]) -> None:
        """Ignore pods."""

    def pod_became(self, before: Pod | None, after: Pod | None) -> None:
        """Ignore a pod."""


class Pack(Score):
    """Scores nodes by how full they are, by the sorts of their pods, and by what a pod takes.

    The class of a pod is its sort, and how many steps more the pod takes of the node than of the
    node where it takes least: sort + SORTS * steps.
    """

    watches: ClassVar = {NODES: None, PODS: None}
    unread_mark = None
    # All nodes are known, and anybody may ask for any other name, once for each class of pods.
    names_max = 0

    def __init__(self) -> None:
        self._requests = OnNodes()
        self._sorts = OwnerMixes()
        self._shapes = NodeShapes()

    def of(self, node: Node | None, pods: PodClass) -> int:
        """Score a node; a pod that cannot be read goes by how full the node is."""
        if node is None:
            full = SCORE_UNMARKED_MIN
            return full if pods == ANY_POD else score_beside(full, alike=None, dearer=0)
        full = score_full(self._requests.of(node.name), node.allocatable)
        if pods == ANY_POD:
            return full
        dearer, sort = divmod(pods, SORTS)
        return score_beside(full, alike=self._sorts.alike(sort, node.name), dearer=dearer)

    def answer(self, call: wire.Call, fragments_of: FragmentsOf) -> Iterable[bytes]:
        """Return the fragments of the nodes, by the owner and the requests of the pod."""
        new = wire.new(call.pod)
        if new is None:
            return map(fragments_of(ANY_POD).__getitem__, call.names)
        sort = owner_class_of(new.pod)
        shapes = self._shapes.of_each(call.names)
        steps = self._shapes.steps(new.requests, shapes)
        if not any(steps.values()):
            return map(fragments_of(sort).__getitem__, call.names)
        of_shape = {shape: fragments_of(sort + SORTS * more) for shape, more in steps.items()}
        return [of_shape[shape][name] for shape, name in zip(shapes, call.names, strict=True)]

    def nodes_listed(self, unmarked: Iterable[Node]) -> None:
        """Compare the shapes of these nodes."""
        self._shapes = NodeShapes()
        for node in unmarked:
            self._shapes.put(node.name, node.allocatable)

    def node_became(self, name: str, unmarked: Node | None) -> None:
        """Compare the shape of a node with others, or no more."""
        if unmarked is None:
            self._shapes.forget(name)
        else:
            self._shapes.put(name, unmarked.allocatable)

    def pods_listed(self, pods: Mapping[str, Pod]) -> None:
        """Count the pods on each node anew."""
        self._requests.listed(pods)
        self._sorts.listed(pods)

    def pod_became(self, before: Pod | None, after: Pod | None) -> None:
        """Count a changed pod on its nodes."""
        for pod, sign in ((before, -1), (after, 1)):
            if pod is not None:
                self._requests.add(pod, sign)
                self._sorts.add(pod, sign)


SCORES: Final[Mapping[str, type[Score]]] = {"pack": Pack, "marks": Marks}
"""By their names in the configuration."""
