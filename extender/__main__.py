"""Reads the command line and the configuration, builds the adapters, runs the extender."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from core.config import Config, ScoreMode
from core.edge import files, http, logs
from core.edge.clock import SystemClock
from core.edge.kube.client import NODES, PODS, Client
from core.edge.kube.watch import Handler, follow
from core.edge.metrics import Metrics
from core.errors import EbbError
from core.marks import MARK_LABEL
from extender.app import make_app
from extender.feed import NodeFeed, PodFeed
from extender.view import View


def main(argv: Sequence[str] | None = None) -> int:
    """Run the extender until SIGTERM. Returns: 0, or 2 with one line a fault."""
    parser = argparse.ArgumentParser(
        prog="ebb-extender", description="Answers kube-scheduler's prioritize calls."
    )
    parser.add_argument("--config", metavar="FILE", help="an EbbConfiguration")
    parser.add_argument("--kubeconfig", metavar="FILE", help="outside a cluster: how to reach it")
    arguments = parser.parse_args(argv)
    logs.start()
    try:
        config = files.read_config(arguments.config) if arguments.config else Config()
        asyncio.run(_serve(config, arguments.kubeconfig))
    except (EbbError, OSError) as fault:
        for line in str(fault).splitlines():
            print(f"ebb-extender: {line}", file=sys.stderr)
        return 2
    return 0


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
