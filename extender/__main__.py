"""Start the extender: read the configuration, create the adapters, serve until SIGTERM."""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from core.config.programs import ExtenderConfig
from core.marks.wellknown import TAINT_KEY
from core.setting_types.value_types import duration
from extender.app import make_app
from extender.metrics import Metrics
from extender.view import STALE_SECONDS, View
from kube.client import Client
from kube.decode.kinds import AnyKind
from kube.freshness import WatchSink
from kube.listing import Part
from kube.watch import watch_objects
from runtime import program
from runtime.clock import Clock, SystemClock
from serving import http
from serving.handshakes import Handshakes

if TYPE_CHECKING:
    from serving.tls_contexts import ServingCertificateFiles


LISTEN: Final = program.listen_flag(
    "--listen", "[::]:8888", "calls of kube-scheduler, probes and metrics"
)
STALE_AFTER: Final = program.Flag(
    "--stale-after",
    duration(1),
    STALE_SECONDS,
    "if a watch receives nothing for this long, all nodes get the same score; bookmarks arrive "
    "about once a minute",
)
FLAGS: Final = (LISTEN, STALE_AFTER)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the extender until SIGTERM; *argv* is None for the arguments of the process.

    Returns: the exit code: 0, or 2 after an error, which is written to standard error.
    """
    description = "Answer kube-scheduler's prioritize calls."
    return program.run("ebb-extender", description, _serve, argv, FLAGS)


async def _serve(start: program.Start) -> None:
    config = start.config
    clock, metrics, health = SystemClock(), Metrics(), http.Health()
    view = View(config.extender, TAINT_KEY, start.flags[STALE_AFTER.name])
    certificate_required = config.extender.client_ca_file is not None
    app = make_app(view, clock, metrics, health, certificate_required=certificate_required)
    pair = _certificate_files(config.extender, clock)
    metrics.certificate_until.set_function(lambda: pair.serving.valid_until if pair else 0)
    context = pair.serving.context if pair else None
    failed = Handshakes(metrics, clock).failed
    server = http.Server(app, start.flags[LISTEN.name], context, flag=LISTEN.name, failed=failed)
    _report_ages(view, clock, metrics)
    connecting = Client.connect(start.kubeconfig, count_request=metrics.count_request)
    async with await connecting as client, asyncio.TaskGroup() as tasks:
        watches: list[asyncio.Task[None]] = []
        for kind, selector in view.watches.items():
            sink = WatchSink(view, kind, view.freshness, clock, metrics)
            watches.append(tasks.create_task(watch_objects(client, kind, sink, Part(selector))))
        if pair:
            watches.append(tasks.create_task(pair.run()))
        await server.start()
        await http.until_signal()
        await http.drain(health)
        for watch in watches:
            watch.cancel()
        await server.stop()


def _report_ages(view: View, clock: Clock, metrics: Metrics) -> None:
    def age_seconds(kind: AnyKind) -> float:
        return view.freshness.age_seconds(kind, clock.monotonic_seconds())

    for kind in view.watches:
        metrics.watch_age.labels(kind.resource).set_function(partial(age_seconds, kind))


def _certificate_files(config: ExtenderConfig, clock: Clock) -> "ServingCertificateFiles | None":
    if config.cert_dir is None:
        return None
    # It takes 8 MB of memory.
    from serving.tls_contexts import ServingCertificate, ServingCertificateFiles  # noqa: PLC0415

    return ServingCertificateFiles(
        ServingCertificate(config.client_ca_file), config.cert_dir, clock
    )


if __name__ == "__main__":
    sys.exit(main())
