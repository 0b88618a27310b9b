"""Keep the extender's view of the cluster: marks of nodes, and the input of the configured score.

Watches (or a simulation) update the view, and the request handlers of one event loop read it.
Fragments of answers (the JSON of a node's score) are stored as bytes, so an answer costs one
dictionary access per node. If the score depends on the pod, the first call for a class of pods
computes the fragments of all nodes.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from core.config.programs import ExtenderConfig
from core.marks.mark import Mark, mark_of, mark_order
from core.model.node import Node
from extender import wire
from extender.formulas import score_marked
from extender.scores import ANY_POD, SCORES, ScoreClass
from kube.decode.kinds import NODES, PODS, AnyKind
from kube.freshness import Freshness
from kube.inventory import Inventory

Marked = tuple[Mark, tuple[int, int]]
"""A mark, and its sort key among marks (time of the mark, then position in its plan)."""
FIRST: Final = (0, 0)
"""Sort key of a mark whose details cannot be read."""

STALE_SECONDS: Final = 180
"""Default of `--stale-after`."""
NEUTRAL: Final = 5
"""Score of every node while the view is stale: equal scores change nothing."""


class View(Inventory):
    """The scores of all nodes, computed when a Node or pod changes, for prioritize calls."""

    def __init__(
        self, config: ExtenderConfig, taint_key: str, stale_seconds: int = STALE_SECONDS
    ) -> None:
        """Create an empty view.

        *stale_seconds*: time without news of a watch after which the view is stale.
        """
        super().__init__()
        self._score = SCORES[config.score]()
        self._stale_seconds = stale_seconds
        self._taint_key = taint_key
        self._marks: dict[str, Marked] = {}
        """Marks by node name."""
        self._mark_scores: dict[str, int] = {}
        """Scores of marked nodes, as written in the fragments."""
        self._fragments = {ANY_POD: self._no_fragments(ANY_POD)}
        """Fragments by class of pods."""
        self._neutral = wire.Fragments(NEUTRAL)
        self.freshness = Freshness(tuple(self.watches))

    @property
    def watches(self) -> Mapping[AnyKind, str | None]:
        """Return the kinds to watch, each with a label selector; None as selector: all objects."""
        return self._score.watches

    def _no_fragments(self, pods: ScoreClass) -> wire.Fragments:
        return wire.Fragments(self._score.of(None, pods), self._score.names_max)

    def why_neutral(self, now: float) -> str | None:
        """Return why the view is stale at *now* (monotonic seconds); None if it is fresh.

        While the view is stale, all nodes get the same neutral score.
        """
        return self.freshness.why_stale(now, self._stale_seconds, unbroken=False)

    def answer(self, body: bytes, now: float) -> tuple[bytes, bool]:
        """Return the JSON answer to a prioritize call, and whether it has real scores.

        False: the view is stale at *now* (monotonic seconds), so all nodes got the same neutral
        score. Unknown nodes count as unmarked. With the score `marks`, which watches marked nodes
        only, they get the score of unmarked nodes; with `pack` the score of an empty node. Raises:
        InvalidInputError.
        """
        return self.scored(wire.call(body), now)

    def scored(self, call: wire.Call, now: float) -> tuple[bytes, bool]:
        """Return what `answer` returns, for a decoded call."""
        trusted = self.why_neutral(now) is None
        if trusted:
            fragments = self._score.answer(call, self._fragments_of)
        else:
            fragments = map(self._neutral.__getitem__, call.names)
        return wire.answer(fragments), trusted

    def _fragments_of(self, pods: ScoreClass) -> wire.Fragments:
        fragments = self._fragments.get(pods)
        if fragments is None:
            marked = self._fragments[ANY_POD]
            fragments = self._fragments[pods] = self._no_fragments(pods)
            for name, node in self.nodes.items():
                if name in self._marks:
                    fragments[name] = marked[name]
                else:
                    fragments[name] = wire.fragment(name, self._score.of(node, pods))
        return fragments

    def relisted(self, kind: AnyKind) -> None:
        """Recompute all scores after a list of all objects of *kind*."""
        if kind is NODES:
            before, self._marks, self._mark_scores = self._marks, {}, {}
            for node in self.nodes.values():
                self._note_mark(node, before.get(node.name))
            unmarked = (node for node in self.nodes.values() if node.name not in self._marks)
            self._score.nodes_listed(unmarked)
            self._fragments = {ANY_POD: self._no_fragments(ANY_POD)}
            self._score_marks()
        elif kind is PODS:
            self._score.pods_listed(self.pods)
        self._rescore(self.nodes)

    def became(self, kind: AnyKind, key: str, before: Any, after: Any) -> None:  # noqa: ANN401 as inherited
        """Recompute the scores of the nodes that the change of one object affects.

        *key*: name of the object, with its namespace if it has one. *before*: None for a new
        object. *after*: None for a deleted object.
        """
        if kind is PODS:
            self._score.pod_changed(before, after)
            self._rescore({pod.node for pod in (before, after) if pod is not None})
        elif kind is NODES:
            self._node_changed(key, after)

    def _node_changed(self, name: str, node: Node | None) -> None:
        before = self._marks.pop(name, None)
        if node is None:
            for fragments in self._fragments.values():
                fragments.pop(name, None)
        else:
            self._note_mark(node, before)
        self._score.node_changed(name, None if name in self._marks else node)
        self._rescore((name,))
        if self._marks.get(name) != before:
            self._score_marks()

    def _note_mark(self, node: Node, before: Marked | None) -> None:
        mark = mark_of(node.labels)
        marked = (mark, mark_order(node, self._taint_key)) if mark is not None else None
        if node.unreadable and not node.labels:  # an unreadable Node has no labels here
            assumed = self._score.unread_mark
            marked = before or (None if assumed is None else (assumed, FIRST))
        if marked is not None:
            self._marks[node.name] = marked

    def _rescore(self, names: Iterable[str | None]) -> None:
        """Recompute the JSON of the scores of these nodes; skip marked, unknown and None."""
        for name in names:
            node = self.nodes.get(name) if name is not None else None
            if node is None or node.name in self._marks:
                continue
            for pods, fragments in self._fragments.items():
                fragments[node.name] = wire.fragment(node.name, self._score.of(node, pods))

    def _score_marks(self) -> None:
        """Recompute the scores of marked nodes; write the JSON of those that have changed."""
        # Each new or removed mark changes the score of at most one other node, out of possibly
        # thousands.
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
