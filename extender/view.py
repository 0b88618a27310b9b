"""What the extender knows of the cluster: marks, and with `pack` what is requested on each node.

The view is fed by watches (or a simulation) and asked by handlers of one event loop; it holds
answers ready as bytes, so that asking costs a dictionary access a node. Where pods are told apart,
the first call about one of a kind makes the answers of that kind, for all nodes.
"""

from collections.abc import Iterable
from typing import Any, Final

from core.config.programs import ExtenderConfig
from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import NODES, PODS, AnyKind
from core.edge.kube.news import News
from core.marks.mark import Mark, mark_of, mark_order
from core.model.node import Node
from core.model.resources import Resources
from core.scores import SCORES, score_marked
from extender import wire
from extender.asked import NOTHING, OnNodes
from extender.shapes import Shapes
from extender.sorts import Sorts

Marked = tuple[Mark, tuple[int, int]]
"""A mark, and where it stands in the order in which marks are judged."""

NEUTRAL: Final = 5
"""What every node gets while the view cannot be trusted: equal scores change nothing."""


class View(Inventory):
    """Nodes, requests and scores; see the module."""

    def __init__(self, config: ExtenderConfig, taint_key: str) -> None:
        super().__init__()
        self._how = SCORES[config.score]
        self._stale_after = config.stale_after_seconds
        self._taint_key = taint_key
        self._requests = OnNodes()
        self._marks: dict[str, Marked] = {}
        """By node."""
        self._mark_scores: dict[str, int] = {}
        """Of marked nodes, as they stand in the fragments."""
        self._unknown = self._how.unmarked(NOTHING, Resources())
        # Where marked nodes alone are watched, one that cannot be read is one of them.
        self._unread: Marked | None = None if self._how.of else (Mark.SOFT, (0, 0))
        self._fragments = self._fresh(self._unknown)
        """For pods that are not told apart."""
        self._of_kind: dict[int, wire.Fragments] = {}
        """For the others, by their kind: what they are, and how much more they take of a node than
        of others."""
        self._neutral = wire.Fragments(NEUTRAL)
        self._sorts = Sorts(self._full, self._how.beside) if self._how.beside else None
        self._shapes = Shapes()
        """Of nodes that carry no mark."""
        self.news = News((NODES, PODS) if self._how.of else (NODES,))

    def _fresh(self, unknown: int) -> wire.Fragments:
        """Return no fragments yet; where all nodes are known, other names are not kept.

        Anybody may ask for any, about a pod of each kind.
        """
        return wire.Fragments(unknown, 0 if self._how.of else wire.FRAGMENTS_MAX)

    def _full(self, name: str) -> int:
        """Return a node's score by how full it is; it has pods, so it may be heard of later."""
        node = self.nodes.get(name)
        if node is None:
            return self._unknown
        return self._how.unmarked(self._requests.of(name), node.allocatable)

    def why_neutral(self, now: float) -> str | None:
        """Return why the view cannot be trusted at *now* (monotonic seconds), or None."""
        return self.news.why_stale(now, self._stale_after, unbroken=False)

    def answer(self, body: bytes, now: float) -> tuple[bytes, bool]:
        """Return the answer to a prioritize call, and whether it is a real one, not neutral.

        Nodes that the view does not hold are unmarked, as far as anybody knows: with `marks` they
        get the unmarked score (marked nodes alone are watched), with `pack` that of an empty node.
        Raises: InvalidInputError.
        """
        known = self.why_neutral(now) is None
        call = wire.call(body)
        found = self._for(call) if known else map(self._neutral.__getitem__, call.names)
        return wire.answer(found), known

    def _for(self, call: wire.Call) -> Iterable[bytes]:
        """Return the fragments of a call's nodes, for its pod."""
        sorts = self._sorts
        new = wire.new(call.pod) if sorts else None
        if sorts is None or new is None:
            return map(self._fragments.__getitem__, call.names)
        kind = sorts.of_pod(new)
        shapes = self._shapes.of_each(call.names)
        steps = self._shapes.steps(new.requests, shapes)
        if not any(steps.values()):
            return map(self._for_kind(kind).__getitem__, call.names)
        of = {one: self._for_kind(sorts.dearer(kind, many)) for one, many in steps.items()}
        return [of[one][name] for one, name in zip(shapes, call.names, strict=True)]

    def _for_kind(self, kind: int) -> wire.Fragments:
        """Return the fragments for pods of a kind; they are kept."""
        if self._sorts is None:
            return self._fragments
        found = self._of_kind.get(kind)
        if found is None:
            found = self._of_kind[kind] = self._fresh(self._sorts.score(kind, None))
            for name in self.nodes:
                found[name] = self._fragment(name, kind)
        return found

    def relisted(self, kind: AnyKind) -> None:
        """Work out all scores anew."""
        if kind is NODES:
            before, self._marks, self._mark_scores = self._marks, {}, {}
            self._shapes = Shapes()
            for node in self.nodes.values():
                self._note_mark(node, before.get(node.name))
                self._note_shape(node)
            self._fragments = self._fresh(self._unknown)
            self._of_kind = {}
            self._score_marks()
        elif kind is PODS:
            self._requests.listed(self.pods)
            if self._sorts:
                self._sorts.listed(self.pods)
        self._score(self.nodes)

    def became(self, kind: AnyKind, key: str, before: Any, after: Any) -> None:  # noqa: ANN401 as inherited
        """Work out anew the scores of the nodes that one change concerns."""
        if kind is PODS:
            if self._sorts:
                self._sorts.became(before, after)
            for pod, sign in ((before, -1), (after, 1)):
                if pod is not None:
                    self._requests.add(pod, sign)
                    self._score((pod.node,))
        elif kind is NODES:
            self._node_became(key, after)

    def _node_became(self, name: str, node: Node | None) -> None:
        before = self._marks.pop(name, None)
        if node is None:
            self._shapes.forget(name)
            for fragments in (self._fragments, *self._of_kind.values()):
                fragments.pop(name, None)
        else:
            self._note_mark(node, before)
            self._note_shape(node)
            self._score((name,))
        if self._marks.get(name) != before:
            self._score_marks()

    def _note_mark(self, node: Node, before: Marked | None) -> None:
        mark = mark_of(node.labels)
        found = (mark, mark_order(node, self._taint_key)) if mark is not None else None
        if node.unreadable and not node.labels:  # what stands for it does not say
            found = before or self._unread
        if found is not None:
            self._marks[node.name] = found

    def _note_shape(self, node: Node) -> None:
        if self._sorts and node.name not in self._marks:
            self._shapes.put(node.name, node.allocatable)
        else:
            self._shapes.forget(node.name)

    def _score(self, names: Iterable[str | None]) -> None:
        """Make the fragments of unmarked nodes anew."""
        for name in names:
            node = self.nodes.get(name) if name is not None else None
            if node is None or node.name in self._marks:
                continue
            score = self._how.unmarked(self._requests.of(node.name), node.allocatable)
            self._fragments[node.name] = wire.fragment(node.name, score)
            for kind, fragments in self._of_kind.items():
                fragments[node.name] = self._fragment(node.name, kind)

    def _fragment(self, name: str, kind: int) -> bytes:
        """Return the fragment of a node for a pod of a kind."""
        if name in self._marks or self._sorts is None:
            return self._fragments[name]
        return wire.fragment(name, self._sorts.score(kind, name))

    def _score_marks(self) -> None:
        """Make the fragments of marked nodes anew whose rank among each other gives another score.

        With each mark that comes or goes one of the others does, of what may be thousands.
        """
        ranked = sorted(self._marks.items(), key=lambda entry: (entry[1][1], entry[0]))
        scores = {
            name: score_marked(mark, rank, len(ranked))
            for rank, (name, (mark, _)) in enumerate(ranked)
        }
        for name, score in scores.items():
            if self._mark_scores.get(name) != score:
                for fragments in (self._fragments, *self._of_kind.values()):
                    fragments[name] = wire.fragment(name, score)
        self._mark_scores = scores
