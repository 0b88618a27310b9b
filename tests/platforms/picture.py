"""Draw docs/reaches.svg, the reaches of the kubeadm dump: `python -m tests.platforms.picture`."""

from collections.abc import Iterator
from html import escape
from typing import Final

from core.config.settings import Config
from core.engine import reconcile
from core.engine.plan import Plan, ReachSums
from core.model.cluster import Cluster
from core.placement.reach_utilization import percent
from tests.platforms import dump
from tests.platforms.kubeadm import CPS, GPUS, WORKERS
from tests.support.builders import EIGHTY_PERCENT
from tests.support.kube_json import cluster_from_dumps

WIDTH, HEIGHT = 880, 402
NODE_WIDTH, STEP, FLOOR = 44, 58, 236
HEIGHTS: Final = {"cp": 56, "worker": 80, "gpu": 124}
INK, FULL, EMPTY = "#1f2937", "#3b82f6", "#e5e7eb"


def picture() -> str:
    """Return the picture as SVG."""
    cluster = cluster_from_dumps([("kubeadm", dump("kubeadm"))])
    plan = reconcile.plan(cluster, Config(thresholds=EIGHTY_PERCENT))
    style = (
        "text{font-family:Helvetica,Arial,sans-serif;font-size:13px;fill:#1f2937}"
        ".small{font-size:11px}.big{font-size:17px;font-weight:bold}"
    )
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    ground = _box(0, 0, WIDTH, HEIGHT, 'rx="8" fill="#ffffff"')
    title = _text(24, 30, "A cluster and its reaches: who can run where", "big")
    legend = _text(856, 30, "Blue: CPU that pods request", anchor="end")
    parts = [ground, title, legend, *_frames(plan), *_nodes(cluster), *_below(plan)]
    return "\n".join([head, f"<style>{style}</style>", *parts, "</svg>", ""])


def _places() -> Iterator[tuple[str, str, int]]:
    """Yield each node, its kind, and its distance from the left edge."""
    for number, name in enumerate(CPS):
        yield name, "cp", 44 + number * STEP
    for number, name in enumerate(WORKERS):
        yield name, "worker", 252 + number * STEP + number // 2 * 8
    for number, name in enumerate(GPUS):
        yield name, "gpu", 672 + number * STEP


def _nodes(cluster: Cluster) -> Iterator[str]:
    used = cluster.used()
    whole = {node.name: node.allocatable.cpu_millis for node in cluster.nodes}
    for name, sort, left in _places():
        high = HEIGHTS[sort]
        full = high * used[name].cpu_millis // whole[name]
        yield _box(left, FLOOR - high, NODE_WIDTH, high, f'fill="{EMPTY}"')
        yield _box(left, FLOOR - full, NODE_WIDTH, full, f'fill="{FULL}"')
        yield _box(left, FLOOR - high, NODE_WIDTH, high, f'fill="none" stroke="{INK}"')
        label = name.removeprefix("worker-")
        middle = left + NODE_WIDTH // 2
        yield _text(middle, FLOOR + 15, label, "small", anchor="middle")


def _frames(plan: Plan) -> Iterator[str]:
    """Draw a frame around the nodes of each reach, widest first, with its utilization."""
    dns, general, gpu, zone = (_of(plan, nodes) for nodes in (9, 6, 3, 2))
    yield _frame((28, 74, 602, 232), "#6b7280", (36, 68), _said(dns))
    yield _frame((236, 86, 386, 190), "#2563eb", (246, 294), _said(general))
    yield _frame((244, 114, 122, 146), "#c2410c", (246, 107), _said(zone))
    yield _frame((660, 86, 188, 190), "#059669", (660, 294), _said(gpu))


def _of(plan: Plan, nodes: int) -> ReachSums:
    (found,) = (one for one in plan.reaches if one.before.nodes == nodes)
    return found


def _said(one: ReachSums) -> str:
    name = one.name.partition(", ")[0]
    for prefix in ("topology.kubernetes.io/", "nvidia.com/"):
        name = name.removeprefix(prefix)
    full = percent(one.before.requests.cpu_millis, one.before.usable.cpu_millis)
    return f"{name}: {full} of cpu"


def _below(plan: Plan) -> Iterator[str]:
    """Draw the utilization of all nodes together, and below it that of reach `general`."""
    general = _of(plan, 6).before
    whole = plan.before
    for number, (told, sums) in enumerate(
        (("all nodes, as one sum", whole), ("reach general, for pods of web", general))
    ):
        top = 326 + number * 28
        used, room = sums.requests.cpu_millis, sums.usable.cpu_millis
        yield _text(24, top + 13, told)
        yield _box(270, top, 400, 16, f'fill="{EMPTY}"')
        yield _box(270, top, 400 * used // room, 16, f'fill="{FULL}"')
        yield _text(680, top + 13, f"{percent(used, room)} of {room // 1000} cores")
    yield '<path d="M590 320 v56" stroke="#dc2626" stroke-width="2"/>'
    yield _text(590, 389, "threshold: 80%", "small", anchor="middle")


def _frame(where: tuple[int, int, int, int], colour: str, at: tuple[int, int], said: str) -> str:
    dashed = 'stroke-width="2" stroke-dasharray="6 4"'
    box = _box(*where, f'rx="10" fill="none" stroke="{colour}" {dashed}')
    return f'{box}\n<text x="{at[0]}" y="{at[1]}" style="fill:{colour}">{escape(said)}</text>'


def _box(left: int, top: int, wide: int, high: int, how: str) -> str:
    return f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" {how}/>'


def _text(left: int, base: int, said: str, kind: str = "", anchor: str = "start") -> str:
    shape = f' class="{kind}"' if kind else ""
    return f'<text x="{left}" y="{base}" text-anchor="{anchor}"{shape}>{escape(said)}</text>'


if __name__ == "__main__":
    print(picture(), end="")
