"""Reads the command line and the configuration, builds the adapters, runs the extender."""

import asyncio
import sys
from collections.abc import Sequence

from core.config import Config, ScoreMode
from core.edge import http, program
from core.edge.clock import SystemClock
from core.edge.kube.client import NODES, PODS, Client
from core.edge.kube.watch import Handler, follow
from core.edge.metrics import Metrics
from core.marks import MARK_LABEL
from extender.app import make_app
from extender.feed import NodeFeed, PodFeed
from extender.view import View


def main(argv: Sequence[str] | None = None) -> int:
    """Run the extender until SIGTERM. Returns: 0, or 2 with one line a fault."""
    return program.run("ebb-extender", "Answers kube-scheduler's prioritize calls.", _serve, argv)


async def _serve(config: Config, kubeconfig: str | None) -> None:
    clock, metrics, health = SystemClock(), Metrics(), http.Health()
    view = View(config.extender, config.taint_key)
    server = http.Server(make_app(view, clock, metrics, health), config.extender.listen)
    pack = config.extender.score is ScoreMode.PACK
    stop = asyncio.Event()
    async with await Client.connect(kubeconfig) as client, asyncio.TaskGroup() as tasks:
        node_feed: Handler = NodeFeed(view, clock, metrics)
        # With `marks` the marked nodes suffice: memory stays flat in a large cluster.
        selector = None if pack else MARK_LABEL
        watches = [tasks.create_task(follow(client, NODES, node_feed, label_selector=selector))]
        if pack:
            pods = follow(client, PODS, PodFeed(view, clock, metrics))
            watches.append(tasks.create_task(pods))
        await server.start()
        await http.until_signal(stop)
        await http.drain(health)
        for watch in watches:
            watch.cancel()
        await server.stop()


if __name__ == "__main__":
    sys.exit(main())
