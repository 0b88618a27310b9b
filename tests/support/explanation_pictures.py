"""Draw the pictures of docs/how-it-works.md: `python -m tests.support.explanation_pictures`."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from core.config.settings import Config
from core.engine import reconcile
from core.model.cluster import Cluster
from core.model.pod import Pod
from core.placement.reach_utilization import percent
from core.placement.usable_capacity import Totals
from tests.support import builders
from tests.support.drawing import (
    GRAY,
    GREEN,
    PALE,
    RED,
    ROSE,
    WHITE,
    YELLOW,
    Box,
    arrow,
    rect,
    svg,
    text,
)

DOCS: Final = Path(__file__).parents[2] / "docs"
CONFIG: Final = Config(thresholds=builders.EIGHTY_PERCENT, budgets=builders.UNLIMITED)
WIDTH: Final = 830
LEFT: Final = 40
CORES: Final = 8
CORE_HEIGHT: Final = 16
NODE_WIDTH: Final = 150
NODE_STEP: Final = 200
PODS: Final = {
    "a": ((2500, 4000), (1500, 3000), (1000, 3000)),
    "b": ((1000, 14_000), (1000, 16_000), (1000, 1500)),
    "c": ((2000, 4000), (1000, 3000), (500, 2000)),
    "d": ((2000, 5000), (1500, 3000)),
}
"""Millicores and MB that the pods on each node request. The memory of node b is full."""
MEMORY_FULL: Final = "b"
STAGES: Final = (
    ("candidate", PALE, 4, ("The cluster does", "not need the node.", "unneededTime passes.")),
    ("marked", YELLOW, 3, ("New pods avoid it.", "Its pods terminate", "by themselves.")),
    (
        "empty",
        GREEN,
        0,
        ("Protected from", "scale-down while it", "is reserved for", "expected pods."),
    ),
    ("scale-down allowed", PALE, 0, ("Ebb allows the", "autoscaler to remove", "the node.")),
    ("removed", WHITE, 0, ("The autoscaler", "removes the node.", "")),
)
"""State of a node, its color, its pods, and what happens in it."""
STAGE_WIDTH: Final = 150
STAGE_STEP: Final = 170
STAGES_WIDTH: Final = 870


def pictures() -> Mapping[str, str]:
    """Return the content of each file, as SVG."""
    return {"packing.svg": _packing(), "node-life.svg": _node_life()}


def _packing() -> str:
    """Draw a plan that the code makes for four nodes."""
    nodes = [builders.node(name, CORES * 1000, 32_000) for name in PODS]
    before = {
        builders.pod(f"{name}{number}", name, cpu, memory): name
        for name, sizes in PODS.items()
        for number, (cpu, memory) in enumerate(sizes)
    }
    plan = reconcile.plan(Cluster.of(nodes, before), CONFIG)
    (removal,) = plan.removals
    codes = [[blocker.reason.code for blocker in node.blockers] for node in plan.kept]
    assert all("threshold" in found for found in codes), "the last line would be wrong"
    moved = {one.pod: one.node for one in removal.placements}
    after = {pod: moved.get(pod.key, name) for pod, name in before.items()}
    heading = f"Node {removal.node} can be removed: the other nodes have room for its pods"
    parts = [
        *_nodes(64, "Today", plan.before, before, moved),
        *_nodes(296, heading, plan.after, after, moved),
        text(
            LEFT,
            492,
            f"Boxes: CPU requests in cores. Each node has {CORES}. Yellow: pods of node d.",
        ),
        text(LEFT, 514, f"Removing another node too would exceed the threshold of {_limit()}."),
    ]
    return svg(WIDTH, 536, parts, "Four nodes with their pods, before and after a removal")


def _limit() -> str:
    return percent(*CONFIG.thresholds.cpu.as_integer_ratio())


def _nodes(
    top: int, title: str, totals: Totals, places: Mapping[Pod, str], moved: Mapping[str, str]
) -> Iterator[str]:
    """Draw the nodes with their pods, and the utilization of all nodes together."""
    used, usable = totals.requests.cpu_millis, totals.usable.cpu_millis
    share = f"{used / 1000:g} of {usable / 1000:g} usable cores: {percent(used, usable)}"
    yield text(LEFT, top - 26, title, "bold")
    yield text(LEFT, top - 8, f"Pods request {share}. Threshold: {_limit()}.", "small")
    for number, name in enumerate(PODS):
        node = Box(LEFT + number * NODE_STEP, top, NODE_WIDTH, CORES * CORE_HEIGHT)
        here = [pod for pod, place in places.items() if place == name]
        yield rect(node, WHITE, GRAY, dashed=not here)
        level = node.top + node.height
        for pod in here:
            height = pod.requests.cpu_millis * CORE_HEIGHT / 1000
            level -= height
            box = Box(node.left, level, node.width, height)
            yield rect(box, YELLOW if pod.key in moved else PALE)
            size, (x, y) = f"{pod.requests.cpu_millis / 1000:g}", box.middle
            if height >= CORE_HEIGHT:
                yield text(x, y + 4, size, "small", "middle")
            else:
                yield text(box.left + box.width + 5, y + 4, size, "small")
        if name == MEMORY_FULL:
            cores = (totals.capacity.cpu_millis - usable) // 1000
            yield from _unusable(Box(node.left, top, node.width, level - top), cores)
        label = f"node {name}" if here else f"node {name}: empty"
        yield text(node.middle[0], top + node.height + 18, label, "small", "middle")


def _unusable(box: Box, cores: int) -> Iterator[str]:
    x, y = box.middle
    yield rect(box, ROSE, RED, dashed=True)
    yield text(x, y - 4, f"{cores} cores not usable:", "small", "middle")
    yield text(x, y + 12, "memory is full", "small", "middle")


def _node_life() -> str:
    boxes = [Box(20 + number * STAGE_STEP, 50, STAGE_WIDTH, 34) for number in range(len(STAGES))]
    parts = []
    for box, (name, color, pods, lines) in zip(boxes, STAGES, strict=True):
        parts.append(rect(box, color, radius=6, dashed=color is WHITE))
        parts.append(text(box.middle[0], box.middle[1] + 5, name, anchor="middle"))
        for number in range(4):
            pod = Box(box.left + 27 + number * 25, 102, 20, 20)
            parts.append(rect(pod, PALE if number < pods else WHITE, GRAY, dashed=number >= pods))
        for number, line in enumerate(lines):
            parts.append(text(box.middle[0], 148 + 17 * number, line, "small", "middle"))
    for before, after in pairwise(boxes):
        y = before.middle[1]
        parts.append(arrow((before.left + before.width, y), (after.left, y)))
    parts += _back(boxes)
    parts.append(text(20, 225, "Squares: pods of the node.", "small"))
    return svg(
        STAGES_WIDTH, 239, parts, "The life of a node: " + ", ".join(one[0] for one in STAGES)
    )


def _back(boxes: list[Box]) -> Iterator[str]:
    """Draw the way back from nodes that are needed again, above the boxes."""
    start, end, y = boxes[3].middle[0], boxes[0].middle[0], 28
    path = f"M{start:g} 50V{y}H{end:g}" + "".join(
        f"M{box.middle[0]:g} 50V{y}" for box in boxes[1:3]
    )
    yield f'<path d="{path}" fill="none" stroke="{GRAY}" stroke-width="1.5"/>'
    yield arrow((end, y), (end, 50))
    middle = (start + end) / 2
    yield text(
        middle,
        y - 8,
        "needed again: the mark is removed, and the node must become a candidate again",
        "small",
        "middle",
    )


if __name__ == "__main__":
    for name, drawn in pictures().items():
        (DOCS / name).write_text(drawn, "utf-8")
