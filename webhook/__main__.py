"""Read the command line and the configuration, connect the webhook's parts and run them."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial

from core.marks.wellknown import TAINT_KEY
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the webhook until SIGTERM; *argv* is None for the arguments of the process.

    Returns: the exit code: 0, or 2 after an error in the configuration.
    """
    description = "Answers admission reviews of Nodes: turns the controller's marks into taints."
    return program.run("ebb-webhook", description, _serve, argv)


async def _serve(start: program.Start) -> None:
    async with await Client.connect(start.kubeconfig) as client:
        await _Webhook(start, client).run()


class _Webhook:
    def __init__(self, start: program.Start, client: Client) -> None:
        self._config, self._client = start.config, client
        self._namespace = os.environ.get("POD_NAMESPACE") or NAMESPACE
        self._clock, self._health = SystemClock(), http.Health()
        self._metrics, self._serving = Metrics(), ServingCertificate()
        self._events = Events(
            client,
            self._clock,
            self._metrics.event_write_failures.inc,
            controller=names.REPORTING,
            instance=os.environ.get("POD_NAME") or socket.gethostname(),
        )
        client.count_request = self._metrics.count_request
        self._metrics.certificate_until.set_function(lambda: self._serving.valid_until)

    async def run(self) -> None:
        """Serve until SIGTERM; then fail readiness, and stop after clients have noticed."""
        config = self._config.webhook
        pair = None
        if config.cert_file and config.key_file:
            pair = ServingCertificateFiles(
                self._serving, config.cert_file, config.key_file, self._clock
            )
        plain = http.Server(
            http.base_app(self._health, self._clock, self._metrics),
            config.metrics_listen,
            setting="webhook.metricsListen",
        )
        app = make_app(self._metrics, self._health, self._clock, TAINT_KEY)
        tls = self._serving.context
        failed = Handshakes(self._metrics, self._clock).failed
        admission = http.Server(app, config.listen, tls, setting="webhook.listen", failed=failed)
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
            soak_seconds=self._config.webhook.rotation_soak_seconds,
            record_event=partial(self._events.record_about, secret),
            count_repair=self._metrics.ca_bundle_repairs.inc,
        )
        self._health.checks["certificate"] = certificates.why_not_ready
        self._metrics.ca_until.set_function(lambda: certificates.ca_valid_until)
        await certificates.run()


if __name__ == "__main__":
    sys.exit(main())
