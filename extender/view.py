"""What the extender knows of the cluster: marks, and with `pack` what is requested on each node.

The view is fed by watches (or a simulation) and asked by handlers of one event loop; it holds
answers ready as bytes, so that asking costs a dictionary access a node.
"""

from collections.abc import Iterable
from typing import Final

from core.config.programs import AnswersMode, ExtenderConfig, ScoreMode
from core.marks.keys import TAINT_KEY
from core.marks.mark import Mark, mark_of, marked_since
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from extender import wire
from extender.scores import SCORE_MAX, score_marked, score_pack

NEUTRAL: Final = 5
"""What every node gets while the view cannot be trusted: equal scores change nothing."""
COMPACT_OFFSET: Final = SCORE_MAX
"""Compact answers say the same relative to 0: a score less this much."""


class View:
    """Nodes, requests and scores; see the module."""

    def __init__(self, config: ExtenderConfig, taint_key: str = TAINT_KEY) -> None:
        self._pack = config.score is ScoreMode.PACK
        self._compact = config.answers is AnswersMode.COMPACT
        self._stale_after = config.stale_after_seconds
        self._taint_key = taint_key
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._requests: dict[str, Resources] = {}
        self._marks: dict[str, tuple[Mark, int]] = {}
        self._unknown = score_pack(Resources(), Resources()) if self._pack else SCORE_MAX
        self._fragments = wire.Fragments(self._unknown)
        self._neutral = wire.Fragments(NEUTRAL)
        self._short = wire.EMPTY
        self._news: dict[str, float] = {}
        self._needed = ("nodes", "pods") if self._pack else ("nodes",)

    def alive(self, resource: str, now: float) -> None:
        """Note that the watch of *resource* ("nodes", "pods") is up to date at *now*."""
        self._news[resource] = now

    def why_neutral(self, now: float) -> str | None:
        """Return why the view cannot be trusted at *now* (monotonic seconds), or None."""
        for resource in self._needed:
            news = self._news.get(resource)
            if news is None:
                return f"{resource} have not been listed yet"
            if now - news > self._stale_after:
                return f"no news of {resource} for {now - news:.0f} s"
        return None

    def answer(self, body: bytes, now: float) -> tuple[bytes, bool]:
        """Return the answer to a prioritize call, and whether it is a real one, not neutral.

        Nodes that the view does not hold are unmarked, as far as anybody knows: with `marks` they
        get the unmarked score (marked nodes alone are watched), with `pack` that of an empty node.
        Raises: InvalidInputError.
        """
        known = self.why_neutral(now) is None
        if self._compact:
            return (self._short if known else wire.EMPTY), known
        names = wire.node_names(body)
        if not known:
            return wire.answer(names, self._neutral), False
        return wire.answer(names, self._fragments), True

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Take a whole list: what is not in it is gone."""
        self._nodes = {node.name: node for node in nodes}
        self._marks = {}
        for node in self._nodes.values():
            self._note_mark(node)
        self._fragments = wire.Fragments(self._unknown)
        self._score(self._nodes)
        self._score_marks()

    def apply_node(self, node: Node) -> None:
        """Take a new or changed node."""
        before = self._marks.get(node.name)
        self._nodes[node.name] = node
        self._note_mark(node)
        self._score((node.name,))
        if self._marks.get(node.name) != before:
            self._score_marks()

    def delete_node(self, name: str) -> None:
        """Forget a node."""
        self._nodes.pop(name, None)
        self._fragments.pop(name, None)
        if self._marks.pop(name, None):
            self._score_marks()

    def replace_pods(self, pods: Iterable[Pod]) -> None:
        """Take a whole list of unfinished pods."""
        self._pods = {}
        self._requests = {}
        for pod in pods:
            self._add(pod, 1)
            self._pods[pod.key] = pod
        self._score(self._nodes)

    def apply_pod(self, pod: Pod) -> None:
        """Take a new or changed pod."""
        self.delete_pod(pod.key)
        self._pods[pod.key] = pod
        self._add(pod, 1)
        self._score((pod.node,))

    def delete_pod(self, key: str) -> None:
        """Forget a pod that has gone or finished."""
        pod = self._pods.pop(key, None)
        if pod is not None:
            self._add(pod, -1)
            self._score((pod.node,))

    def _add(self, pod: Pod, sign: int) -> None:
        if pod.node is not None:
            have = self._requests.get(pod.node, Resources())
            self._requests[pod.node] = have + pod.requests if sign > 0 else have - pod.requests

    def _note_mark(self, node: Node) -> None:
        mark = mark_of(node.labels)
        if mark is None:
            self._marks.pop(node.name, None)
        else:
            self._marks[node.name] = (mark, marked_since(node, self._taint_key))

    def _score(self, names: Iterable[str | None]) -> None:
        """Make the fragments of unmarked nodes anew."""
        for name in names:
            node = self._nodes.get(name) if name is not None else None
            if node is None or node.name in self._marks:
                continue
            score = SCORE_MAX
            if self._pack:
                requests = self._requests.get(node.name, Resources())
                score = score_pack(requests, node.allocatable)
            self._fragments[node.name] = wire.fragment(node.name, score)

    def _score_marks(self) -> None:
        """Make the fragments of marked nodes anew: they are ranked among each other."""
        ranked = sorted(self._marks.items(), key=lambda entry: (entry[1][1], entry[0]))
        short = []
        for rank, (name, (mark, _)) in enumerate(ranked):
            score = score_marked(mark, rank, len(ranked))
            self._fragments[name] = wire.fragment(name, score)
            short.append(wire.fragment(name, score - COMPACT_OFFSET))
        self._short = b"[%b]" % b",".join(short)
