"""What the extender knows of the cluster: the marks of nodes, and what its score needs to know.

Watches (or a simulation) feed the view, and the handlers of one event loop ask it. It keeps the
fragments of answers ready as bytes, so that an answer costs one dictionary access per node. Where
a score tells pods apart, the first call about a class of pods makes the fragments of all nodes.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from core.config.programs import ExtenderConfig
from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import NODES, PODS, AnyKind
from core.edge.kube.freshness import Freshness
from core.marks.mark import Mark, mark_of, mark_order
from core.model.node import Node
from extender import wire
from extender.formulas import score_marked
from extender.scores import ANY_POD, SCORES, PodClass

Marked = tuple[Mark, tuple[int, int]]
"""A mark, and where it stands in the order in which marks are judged."""
FIRST: Final = (0, 0)
"""Order of a mark of which nothing more can be read."""

NEUTRAL: Final = 5
"""What every node gets while the view cannot be trusted: equal scores change nothing."""


class View(Inventory):
    """Nodes, marks and scores; see the module."""

    def __init__(self, config: ExtenderConfig, taint_key: str) -> None:
        super().__init__()
        self._score = SCORES[config.score]()
        self._stale_after = config.stale_after_seconds
        self._taint_key = taint_key
        self._marks: dict[str, Marked] = {}
        """By node."""
        self._mark_scores: dict[str, int] = {}
        """Of marked nodes, as they stand in the fragments."""
        self._fragments = {ANY_POD: self._fresh(ANY_POD)}
        """By class of pods."""
        self._neutral = wire.Fragments(NEUTRAL)
        self.news = Freshness(tuple(self.watches))

    @property
    def watches(self) -> Mapping[AnyKind, str | None]:
        """Return the kinds to watch, each with a label selector; None: all objects."""
        return self._score.watches

    def _fresh(self, pods: PodClass) -> wire.Fragments:
        """Return fragments for a class of pods that hold no node yet."""
        return wire.Fragments(self._score.of(None, pods), self._score.names_max)

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
        if known:
            found = self._score.answer(call, self._fragments_of)
        else:
            found = map(self._neutral.__getitem__, call.names)
        return wire.answer(found), known

    def _fragments_of(self, pods: PodClass) -> wire.Fragments:
        """Return the fragments for a class of pods; they are kept."""
        found = self._fragments.get(pods)
        if found is None:
            marked = self._fragments[ANY_POD]
            found = self._fragments[pods] = self._fresh(pods)
            for name, node in self.nodes.items():
                if name in self._marks:
                    found[name] = marked[name]
                else:
                    found[name] = wire.fragment(name, self._score.of(node, pods))
        return found

    def relisted(self, kind: AnyKind) -> None:
        """Work out all scores anew."""
        if kind is NODES:
            before, self._marks, self._mark_scores = self._marks, {}, {}
            for node in self.nodes.values():
                self._note_mark(node, before.get(node.name))
            unmarked = (node for node in self.nodes.values() if node.name not in self._marks)
            self._score.nodes_listed(unmarked)
            self._fragments = {ANY_POD: self._fresh(ANY_POD)}
            self._score_marks()
        elif kind is PODS:
            self._score.pods_listed(self.pods)
        self._score_again(self.nodes)

    def became(self, kind: AnyKind, key: str, before: Any, after: Any) -> None:  # noqa: ANN401 as inherited
        """Work out anew the scores of the nodes that one change concerns."""
        if kind is PODS:
            self._score.pod_became(before, after)
            self._score_again({pod.node for pod in (before, after) if pod is not None})
        elif kind is NODES:
            self._node_became(key, after)

    def _node_became(self, name: str, node: Node | None) -> None:
        before = self._marks.pop(name, None)
        if node is None:
            for fragments in self._fragments.values():
                fragments.pop(name, None)
        else:
            self._note_mark(node, before)
        self._score.node_became(name, None if name in self._marks else node)
        self._score_again((name,))
        if self._marks.get(name) != before:
            self._score_marks()

    def _note_mark(self, node: Node, before: Marked | None) -> None:
        mark = mark_of(node.labels)
        found = (mark, mark_order(node, self._taint_key)) if mark is not None else None
        if node.unreadable and not node.labels:  # the stand-in for it does not say
            unread = self._score.unread_mark
            found = before or (None if unread is None else (unread, FIRST))
        if found is not None:
            self._marks[node.name] = found

    def _score_again(self, names: Iterable[str | None]) -> None:
        """Make the fragments of unmarked nodes anew."""
        for name in names:
            node = self.nodes.get(name) if name is not None else None
            if node is None or node.name in self._marks:
                continue
            for pods, fragments in self._fragments.items():
                fragments[node.name] = wire.fragment(node.name, self._score.of(node, pods))

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
                for fragments in self._fragments.values():
                    fragments[name] = wire.fragment(name, score)
        self._mark_scores = scores
