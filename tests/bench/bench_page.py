"""Measure the page of 5,000 nodes in headless Chromium: first paint, update and size.

`python -m tests.bench.bench_page [NODES]` prints each value, and its ratio to the budget, which is
scaled with the speed of the machine. First paint counts from the browser's request until the boxes
of all nodes are painted, an update from the arrival of the new state until it is painted. The
offline file also contains the details of each node, and has no budget.
"""

import asyncio
import gzip
import sys
import time
from dataclasses import replace
from typing import Final, NamedTuple

from playwright.async_api import Page

from cli.formats.page import page, text
from cli.input.cluster_input import ClusterInput
from cli.page.hub import Hub
from cli.page.server import PageServer
from cli.page.worker import Worker
from core.model.cluster import Cluster
from tests.bench.machine import factor, show
from tests.support import generate
from tests.support.browser import chromium
from tests.support.page import input_of, plan_of

NODES: Final = 5000
UPDATES: Final = 5
BUDGET_PAINT_MS: Final = 2000
BUDGET_UPDATE_MS: Final = 100
BUDGET_MB: Final = 2.0
RECORD: Final = """
window.painted = [];
new MutationObserver(() => requestAnimationFrame(() => {
  const channel = new MessageChannel();  // its message follows the paint
  channel.port1.onmessage = () => window.painted.push(performance.now());
  channel.port2.postMessage(0);
})).observe(document, {subtree: true, attributeFilter: ["data-nodes"]});
"""
"""Script that records when each state has been painted, in milliseconds since the request."""
LAST_UPDATE: Final = """() => {
  const loads = performance.getEntriesByType("resource")
    .filter((one) => one.name.includes("/state?"));
  return window.painted.at(-1) - loads.at(-1).responseEnd;
}"""


class Found(NamedTuple):
    plan_ms: float
    paint_ms: float
    update_ms: float
    sent_mb: float
    file_mb: float


async def _paints(shown: Page, count: int) -> None:
    # Not as an expression, which the policy of the page would forbid to evaluate.
    await shown.wait_for_function("count => window.painted.length >= count", arg=count)


async def measure(cluster_input: ClusterInput) -> Found:
    hub, worker = Hub(), Worker()
    changed = replace(cluster_input, cluster=_changed(cluster_input))
    async with PageServer(hub, worker) as server, chromium() as browser:
        await worker.state(cluster_input)  # the process has started, and imported its modules
        begun = time.perf_counter()
        state = await worker.state(cluster_input)
        plan_ms = (time.perf_counter() - begun) * 1000
        other = await worker.state(changed)
        await hub.publish(state)
        shown = await browser.new_page()
        await shown.add_init_script(RECORD)
        await shown.goto(server.url)
        await _paints(shown, 1)
        paint_ms = await shown.evaluate("window.painted[0]")
        updates = []
        for number in range(UPDATES):
            before = await shown.evaluate("window.painted.length")
            await hub.publish(state if number % 2 else other)
            await _paints(shown, before + 1)
            updates.append(await shown.evaluate(LAST_UPDATE))
        worker.stop()
    file = text(plan_of(cluster_input)).encode()
    sent = len(gzip.compress(page(state).encode(), 6)) / 1e6
    update_ms = sorted(updates)[UPDATES // 2]
    return Found(plan_ms, paint_ms, update_ms, sent, len(gzip.compress(file)) / 1e6)


def _changed(cluster_input: ClusterInput) -> Cluster:
    """Return the cluster without a tenth of its pods, so that the boxes of many nodes change."""
    pods = [pod for number, pod in enumerate(cluster_input.cluster.pods) if number % 10]
    return Cluster.of(cluster_input.cluster.nodes, pods)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    k, made = factor(), generate.cluster(count, "loose")
    found = asyncio.run(measure(input_of(made.nodes, made.pods)))
    rows = [
        ["plan and state", "ms", f"{found.plan_ms:,.0f}", "", ""],
        _row("first paint", "ms", found.paint_ms, BUDGET_PAINT_MS, k),
        _row("update", "ms", found.update_ms, BUDGET_UPDATE_MS, k),
        _row("compressed page", "MB", found.sent_mb, BUDGET_MB, 1),
        ["compressed offline file", "MB", f"{found.file_mb:.2f}", "", ""],
    ]
    title = f"page of {count:,} nodes and {len(made.pods):,} pods, K = {k:.2f}"
    show(title, ["", "unit", "value", "budget", "ratio"], rows)


def _row(name: str, unit: str, value: float, budget: float, k: float) -> list[str]:
    return [name, unit, f"{value:,.2f}", f"{budget * k:,.2f}", f"{value / budget / k:.2f}"]


if __name__ == "__main__":
    main()
