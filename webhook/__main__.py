"""Reads the command line and the configuration, builds the adapters, runs the webhook."""

import asyncio
import logging
import os
import socket
import ssl
import sys
from collections.abc import Sequence

from core.config import Config
from core.edge import http, program, tls
from core.edge.clock import Clock, SystemClock
from core.edge.kube.client import NODES, PODS, Client
from core.edge.kube.watch import follow
from core.edge.logs import fields
from core.edge.metrics import Metrics
from webhook.app import make_app
from webhook.controller import Controller
from webhook.feed import Feed
from webhook.view import ClusterView

STALE_SECONDS = 180
"""Nothing is decided on a view without news for longer; bookmarks come about once a minute."""
SERVICE_NAMES = (
    "ebb-webhook",
    "ebb-webhook.ebb-system",
    "ebb-webhook.ebb-system.svc",
    "localhost",
)

log = logging.getLogger("ebb.webhook")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the webhook until SIGTERM. Returns: 0, or 2 with one line a fault."""
    description = (
        "Taints the Nodes that the engine marks, and runs the engine. "
        "There is no leader election yet: run one replica."
    )
    return program.run("ebb-webhook", description, _serve, argv)


async def _serve(config: Config, kubeconfig: str | None) -> None:
    clock, metrics, health = SystemClock(), Metrics(), http.Health()
    view = ClusterView()
    health.checks["view"] = lambda: view.why_stale(clock.monotonic_seconds(), STALE_SECONDS)
    admission = http.Server(
        make_app(metrics, health, config.taint_key), config.webhook.listen, _tls(config, clock)
    )
    plain = http.Server(http.make_app(health, metrics), config.webhook.metrics_listen)
    stop = asyncio.Event()
    async with await Client.connect(kubeconfig) as client, asyncio.TaskGroup() as tasks:
        owner = os.environ.get("POD_NAME") or socket.gethostname()
        controller = Controller(config, client, owner=owner, metrics=metrics)
        running = [
            tasks.create_task(follow(client, resource, Feed(view, resource, clock, metrics)))
            for resource in (NODES, PODS)
        ]
        running.append(tasks.create_task(_judge(controller, view, config, clock, metrics)))
        for server in (admission, plain):
            await server.start()
        log.info("running", extra=fields(mode=config.mode.value, policy=config.policy))
        await http.until_signal(stop)
        await http.drain(health)
        for task in running:
            task.cancel()
        for server in (admission, plain):
            await server.stop()


async def _judge(
    controller: Controller, view: ClusterView, config: Config, clock: Clock, metrics: Metrics
) -> None:
    """Run the engine at its interval, on views that can be trusted only."""
    while True:
        await asyncio.sleep(config.webhook.interval_seconds)
        why = view.why_stale(clock.monotonic_seconds(), STALE_SECONDS)
        if why is not None:
            log.warning("not judging", extra=fields(reason=why))
            continue
        with metrics.pass_seconds.time():
            found = await asyncio.to_thread(
                controller.judge, view.snapshot(), clock.unix_seconds()
            )
            await controller.carry_out(found)


def _tls(config: Config, clock: Clock) -> ssl.SSLContext:
    """Serve the configured pair, or one made for this start and logged as such."""
    if config.webhook.cert_file and config.webhook.key_file:
        return tls.serving_files(config.webhook.cert_file, config.webhook.key_file)
    pair = tls.make_pair([*SERVICE_NAMES, "127.0.0.1"], clock.unix_seconds())
    log.warning(
        "serving a certificate of its own, made at this start; register its CA as caBundle",
        extra=fields(ca=pair.ca.decode()),
    )
    return tls.serving(pair)


if __name__ == "__main__":
    sys.exit(main())
