"""Define how unmarked nodes are scored: a class for each value of `extender.score`.

A view passes changes of nodes and pods to its score object. For each prioritize call, the object
returns the fragments of the answer: the JSON of each node's score.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

from core.marks.mark import Mark
from core.marks.wellknown import MARK_LABEL
from core.model.node import Node
from core.model.pod import REPLICA_SET, Pod
from core.model.resources import Resources
from extender import wire
from extender.formulas import SCORE_MAX, SCORE_UNMARKED_MIN, score_full, score_pack
from extender.node_shapes import NodeShapes
from kube.decode.kinds import NODES, PODS, AnyKind

ScoreClass = int
"""Class of pods that get equal scores on all nodes."""
ANY_POD: Final[ScoreClass] = -1
"""Class of all pods, for a score that ignores the pod, or for a pod that cannot be read."""
FragmentsOf = Callable[[ScoreClass], wire.Fragments]
"""Returns the fragments for a class of pods."""
OWNER_CLASSES: Final = 2
LASTING: Final = 0
"""Owner class of pods that scale-ins cannot delete: all but those of ReplicaSets."""


class Score(ABC):
    """Base class for ways to score unmarked nodes, of which `extender.score` selects one."""

    watches: ClassVar[Mapping[AnyKind, str | None]]
    """Kinds that the view must watch, each with a label selector; None: all objects."""
    unread_mark: ClassVar[Mark | None]
    """Mark assumed for a node whose labels have never been readable; None: unmarked."""
    names_max: ClassVar[int]
    """Maximum number of unknown node names whose fragments are cached."""

    @abstractmethod
    def of(self, node: Node | None, pods: ScoreClass) -> int:
        """Return the score, from 0 to 10, of an unmarked node for a class of pods.

        *node*: None if the view does not know the node. *pods*: class of pods that get equal
        scores.
        """

    @abstractmethod
    def answer(self, call: wire.Call, fragments_of: FragmentsOf) -> Iterable[bytes]:
        """Return the JSON of the score of each node of a prioritize call, in its order.

        *fragments_of*: returns the JSON of all nodes' scores for a class of pods.
        """

    @abstractmethod
    def nodes_listed(self, unmarked: Iterable[Node]) -> None:
        """Replace all known nodes by these unmarked nodes."""

    @abstractmethod
    def node_changed(self, name: str, unmarked: Node | None) -> None:
        """Replace the node *name* by a new version; None: the node was deleted or marked."""

    @abstractmethod
    def pods_listed(self, pods: Mapping[str, Pod]) -> None:
        """Replace all known pods by these pods, which are keyed by namespace/name."""

    @abstractmethod
    def pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        """Replace a pod by a new version.

        *before*: None for a new pod. *after*: None for a deleted pod.
        """


class Marks(Score):
    """The setting `extender.score: marks`: all unmarked nodes get the same, maximum score."""

    # Only marked nodes are watched, so that memory does not grow with the cluster.
    watches: ClassVar = {NODES: MARK_LABEL}
    unread_mark = Mark.PREFER_NO_SCHEDULE
    names_max = wire.FRAGMENTS_MAX

    def of(self, node: Node | None, pods: ScoreClass) -> int:  # noqa: ARG002 as inherited
        """Return the maximum score, for every node and pod."""
        return SCORE_MAX

    def answer(self, call: wire.Call, fragments_of: FragmentsOf) -> Iterable[bytes]:
        """Return the JSON of the score of each node of the call; the pod is not parsed."""
        return map(fragments_of(ANY_POD).__getitem__, call.names)

    def nodes_listed(self, unmarked: Iterable[Node]) -> None:
        """Do nothing: all unmarked nodes have the same score."""

    def node_changed(self, name: str, unmarked: Node | None) -> None:
        """Do nothing: all unmarked nodes have the same score."""

    def pods_listed(self, pods: Mapping[str, Pod]) -> None:
        """Do nothing: the score does not depend on pods."""

    def pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        """Do nothing: the score does not depend on pods."""


class NodeRequests:
    """The sum of the requests of a node's pods, and the number of the pods.

    Adding or removing a pod does not visit the other pods.
    """

    __slots__ = ("cpu_millis", "devices", "memory_bytes", "pods")

    def __init__(self) -> None:
        self.cpu_millis = self.memory_bytes = self.pods = 0
        self.devices: dict[str, int] = {}

    def add(self, requests: Resources, sign: int) -> None:
        """Add the requests of a pod to the sums (*sign* 1), or subtract them (*sign* -1)."""
        self.cpu_millis += sign * requests.cpu_millis
        self.memory_bytes += sign * requests.memory_bytes
        self.pods += sign
        for name, amount in requests.devices.items():
            self.devices[name] = total = self.devices.get(name, 0) + sign * amount
            if not total:
                del self.devices[name]


NO_REQUESTS: Final = NodeRequests()


class RequestsByNode:
    """The sum of the requests of each node's pods, for `extender.score: pack`."""

    def __init__(self) -> None:
        self._by_node: dict[str, NodeRequests] = {}

    def replace_all(self, pods: Mapping[str, Pod]) -> None:
        """Replace all known pods by these pods."""
        self._by_node = {}
        for pod in pods.values():
            self.add(pod, 1)

    def add(self, pod: Pod, sign: int) -> None:
        """Add the requests of a pod to its node (*sign* 1), or subtract them (*sign* -1).

        Nothing happens for a pod without a node.
        """
        if pod.node is not None:
            requests = self._by_node.setdefault(pod.node, NodeRequests())
            requests.add(pod.requests, sign)
            if not requests.pods:
                del self._by_node[pod.node]

    def of(self, name: str) -> NodeRequests:
        """Return the sum of the requests on the node *name*; zeros for a node without pods."""
        return self._by_node.get(name, NO_REQUESTS)


class OwnerMixes:
    """The number of pods of each owner class on each node.

    Pods that do not keep a node from being empty do not count.
    """

    # Ebb influences the order in which scale-ins delete pods of ReplicaSets (core.writes.costs).
    # It cannot influence when other pods terminate.

    def __init__(self) -> None:
        self._by_node: dict[str, Counter[int]] = {}

    def replace_all(self, pods: Mapping[str, Pod]) -> None:
        """Replace all known pods by these pods."""
        self._by_node = {}
        for pod in pods.values():
            self.add(pod, 1)

    def add(self, pod: Pod, sign: int) -> None:
        """Count a pod on its node (*sign* 1), or stop counting it (*sign* -1).

        Pods without a node, and pods that do not keep their node from being empty, are ignored.
        """
        if pod.node is not None and pod.occupies:
            counts = self._by_node.setdefault(pod.node, Counter())
            counts[owner_class_of(pod)] += sign
            if not counts.total():
                del self._by_node[pod.node]

    def has_class(self, owner_class: int, name: str) -> bool | None:
        """Return whether the node *name* has this owner class; None if it is empty.

        A node has the class LASTING if it has a pod of that class, because scale-ins cannot empty
        it. Else it has the other class.
        """
        counts = self._by_node.get(name)
        return bool(counts[LASTING]) is (owner_class == LASTING) if counts else None


def owner_class_of(pod: Pod) -> int:
    """Return the owner class of a pod: 1 for a pod of a ReplicaSet, else LASTING."""
    return LASTING if pod.owner_kind != REPLICA_SET else 1


def _lasts(pod: Pod) -> bool:
    return pod.occupies and owner_class_of(pod) == LASTING


class Pack(Score):
    """The setting `extender.score: pack`: prefer full nodes, with pods of the same owner class.

    The score depends on utilization, on the owner class of the node's pods, and on the part of the
    node's cost that the pod takes. For pods that scale-ins cannot delete, such as those of Jobs,
    only the requests of such pods count as utilization: so few nodes have such pods, and the
    others can be emptied. The class of a pod combines its owner class with the points that it
    loses on a node: owner class + OWNER_CLASSES * points.
    """

    watches: ClassVar = {NODES: None, PODS: None}
    unread_mark = None
    # All nodes are watched. A caller could fill a cache with other names, once per pod class.
    names_max = 0

    def __init__(self) -> None:
        self._requests = RequestsByNode()
        self._lasting_requests = RequestsByNode()
        """Requests of the pods that keep their node from being empty until they end."""
        self._owner_mixes = OwnerMixes()
        self._shapes = NodeShapes()

    def of(self, node: Node | None, pods: ScoreClass) -> int:
        """Return the score of a node for a class of pods; by utilization only for ANY_POD.

        An unknown node (None) counts as empty.
        """
        if node is None:
            by_utilization = SCORE_UNMARKED_MIN
            return (
                by_utilization
                if pods == ANY_POD
                else score_pack(by_utilization, alike=None, dearer=0)
            )
        by_utilization = score_full(self._requests.of(node.name), node.allocatable)
        if pods == ANY_POD:
            return by_utilization
        dearer, owner_class = divmod(pods, OWNER_CLASSES)
        alike = self._owner_mixes.has_class(owner_class, node.name)
        if alike and owner_class == LASTING:
            lasting = self._lasting_requests.of(node.name)
            by_utilization = score_full(lasting, node.allocatable)
        return score_pack(by_utilization, alike=alike, dearer=dearer)

    def answer(self, call: wire.Call, fragments_of: FragmentsOf) -> Iterable[bytes]:
        """Return the JSON of each node's score, by the owner and the requests of the pod.

        If the pod cannot be read, nodes are scored by utilization only.
        """
        to_schedule = wire.pod_to_schedule(call.pod)
        if to_schedule is None:
            return map(fragments_of(ANY_POD).__getitem__, call.names)
        owner_class = owner_class_of(to_schedule.pod)
        shapes = self._shapes.of_nodes(call.names)
        steps = self._shapes.steps(to_schedule.requests, shapes)
        if not any(steps.values()):
            return map(fragments_of(owner_class).__getitem__, call.names)
        by_shape = {
            shape: fragments_of(owner_class + OWNER_CLASSES * lost)
            for shape, lost in steps.items()
        }
        return [by_shape[shape][name] for shape, name in zip(shapes, call.names, strict=True)]

    def nodes_listed(self, unmarked: Iterable[Node]) -> None:
        """Replace the shapes of all nodes by the shapes of these unmarked nodes."""
        self._shapes = NodeShapes()
        for node in unmarked:
            self._shapes.put(node.name, node.allocatable)

    def node_changed(self, name: str, unmarked: Node | None) -> None:
        """Replace the shape of the node *name*; None: remove it."""
        if unmarked is None:
            self._shapes.forget(name)
        else:
            self._shapes.put(name, unmarked.allocatable)

    def pods_listed(self, pods: Mapping[str, Pod]) -> None:
        """Replace the requests and owner classes of all known pods by those of these pods."""
        self._requests.replace_all(pods)
        self._lasting_requests.replace_all({key: pod for key, pod in pods.items() if _lasts(pod)})
        self._owner_mixes.replace_all(pods)

    def pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        """Update the requests and owner classes on the nodes of a changed pod.

        *before*: None for a new pod. *after*: None for a deleted pod.
        """
        for pod, sign in ((before, -1), (after, 1)):
            if pod is not None:
                self._requests.add(pod, sign)
                if _lasts(pod):
                    self._lasting_requests.add(pod, sign)
                self._owner_mixes.add(pod, sign)


SCORES: Final[Mapping[str, type[Score]]] = {"pack": Pack, "marks": Marks}
"""Scores by their names in the configuration."""
