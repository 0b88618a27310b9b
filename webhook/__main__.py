"""Read the command line and the configuration, connect the webhook's parts and run them."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from core.marks.wellknown import TAINT_KEY
from core.model.errors import InvalidInputError
from core.setting_types.value_types import duration
from kube.client import Client
from kube.stores import events
from kube.stores.ca_store import Registration, SecretStore
from kube.stores.events import Events
from kube.target import NAMESPACE
from runtime import program
from runtime.clock import SystemClock
from runtime.logs import fields
from serving import http
from serving.handshakes import Handshakes
from serving.tls_contexts import ServingCertificate, ServingCertificateFiles
from webhook import names
from webhook.app import make_app
from webhook.certs import Certificates
from webhook.metrics import Metrics

log = logging.getLogger("ebb.webhook")


LISTEN: Final = program.listen_flag("--listen", "[::]:8443", "calls of the API server")
METRICS_LISTEN: Final = program.listen_flag("--metrics-listen", "[::]:8080", "probes and metrics")
ROTATION_SOAK: Final = program.Flag(
    "--rotation-soak",
    duration(5),
    300,
    "time for which a replica must see a new CA in every caBundle before this CA signs "
    "certificates",
)
FLAGS: Final = (LISTEN, METRICS_LISTEN, ROTATION_SOAK)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the webhook until SIGTERM; *argv* is None for the arguments of the process.

    Returns: the exit code: 0, or 2 after an error in the configuration.
    """
    description = "Answers admission reviews of Nodes: turns the controller's marks into taints."
    return program.run("ebb-webhook", description, _serve, argv, FLAGS)


async def _serve(start: program.Start) -> None:
    _check_addresses(start.flags[LISTEN.name], start.flags[METRICS_LISTEN.name])
    metrics = Metrics()
    connecting = Client.connect(start.kubeconfig, count_request=metrics.count_request)
    async with await connecting as client:
        await _Webhook(start, client, metrics).run()


def _check_addresses(listen: str, metrics_listen: str) -> None:
    # Port 0 selects any free port, so two listeners never conflict.
    if metrics_listen == listen and not listen.endswith(":0"):
        problem = f"{metrics_listen!r}; allowed: another host:port than {LISTEN.name}"
        raise InvalidInputError(METRICS_LISTEN.name, problem)


class _Webhook:
    def __init__(self, start: program.Start, client: Client, metrics: Metrics) -> None:
        self._config, self._flags = start.config.webhook, start.flags
        self._client, self._metrics = client, metrics
        self._namespace = os.environ.get("POD_NAMESPACE") or NAMESPACE
        self._clock, self._health = SystemClock(), http.Health()
        self._serving = ServingCertificate()
        self._events = Events(
            client,
            self._clock,
            self._metrics.event_write_failures.inc,
            controller=names.REPORTING,
            instance=os.environ.get("POD_NAME") or socket.gethostname(),
        )
        self._metrics.certificate_until.set_function(lambda: self._serving.valid_until)

    async def run(self) -> None:
        """Serve until SIGTERM; then fail readiness, and stop after clients have noticed."""
        pair = None
        if self._config.cert_dir is not None:
            pair = ServingCertificateFiles(self._serving, self._config.cert_dir, self._clock)
        plain = http.Server(
            http.base_app(self._health, self._clock, self._metrics),
            self._flags[METRICS_LISTEN.name],
            flag=METRICS_LISTEN.name,
        )
        app = make_app(self._metrics, self._health, self._clock, TAINT_KEY)
        tls = self._serving.context
        failed = Handshakes(self._metrics, self._clock).failed
        listen = self._flags[LISTEN.name]
        admission = http.Server(app, listen, tls, flag=LISTEN.name, failed=failed)
        await plain.start()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._run_certificates(pair)),
                tasks.create_task(self._events.run()),
            ]
            await admission.start()
            log.info("running", extra=fields(taint_key=TAINT_KEY))
            await http.until_signal()
            await http.drain(self._health)
            for task in running:
                task.cancel()
            for server in (admission, plain):
                await server.stop()

    async def _run_certificates(self, pair: ServingCertificateFiles | None) -> None:
        if pair is not None:
            self._health.checks["certificate"] = lambda: self._serving.why_not_valid(
                self._clock.unix_seconds()
            )
            await pair.run()
            return
        secrets = SecretStore(self._client, self._namespace, names.SECRET)
        secret = events.secret(self._namespace, names.SECRET)
        certificates = Certificates(
            secrets,
            Registration(self._client, names.REGISTRATION),
            self._serving,
            names=names.server_names(self._namespace),
            clock=self._clock,
            soak_seconds=self._flags[ROTATION_SOAK.name],
            record_event=partial(self._events.record_about, secret),
            count_repair=self._metrics.ca_bundle_repairs.inc,
        )
        self._health.checks["certificate"] = certificates.why_not_ready
        self._metrics.ca_until.set_function(lambda: certificates.ca_valid_until)
        await certificates.run()


if __name__ == "__main__":
    sys.exit(main())
