"""Reads the command line and the configuration, builds the adapters, runs the webhook."""

import asyncio
import logging
import os
import random
import secrets
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from core.edge import http, program
from core.edge.clock import Clock, SteadyClock, SystemClock
from core.edge.decode.kinds import KINDS, AnyKind
from core.edge.handshakes import Handshakes
from core.edge.kube.client import Client
from core.edge.kube.news import Feed
from core.edge.kube.stores import objects
from core.edge.kube.stores.events import Events, EventType
from core.edge.kube.stores.evictions import EvictionStore
from core.edge.kube.stores.lease import LeaseStore
from core.edge.kube.stores.published import PublishedStore
from core.edge.kube.stores.rights import PATCH_PODS, may
from core.edge.kube.stores.trust import Registration, SecretStore
from core.edge.kube.watch import follow
from core.edge.logs import fields
from core.edge.serving import Serving
from webhook import names
from webhook.admission.app import make_app
from webhook.admission.certs import Certificates, Stores
from webhook.engine.controller import Controller, OnPods
from webhook.engine.election import Elector, Timing
from webhook.engine.evictor import Evictor
from webhook.engine.loop import Loop
from webhook.engine.publisher import Publisher
from webhook.engine.right import Right
from webhook.engine.scalein import ScaleIn
from webhook.engine.settings import Settings
from webhook.engine.taint_keys import TaintKeys
from webhook.metrics import Metrics
from webhook.view.view import ClusterView

SWITCH_SECONDS: Final = 0.0001
"""How long a pass goes on, at most, each time that the loop wants the interpreter: a review wants
it several times, and Python's own 5 ms each would be felt."""

log = logging.getLogger("ebb.webhook")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the webhook until SIGTERM. Returns: 0, or 2 with one line a fault."""
    description = "Taints the Nodes that the engine marks; the elected leader runs the engine."
    return program.run("ebb-webhook", description, _serve, argv)


async def _serve(start: program.Start) -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    async with await Client.connect(start.kubeconfig) as client:
        await _Webhook(start, client).run()


class _Webhook:
    """The program's parts, put together."""

    def __init__(self, start: program.Start, client: Client) -> None:
        config = start.config
        self._start, self._config, self._client = start, config, client
        self._namespace = os.environ.get("POD_NAMESPACE") or names.NAMESPACE
        self._clock, self._health = SystemClock(), http.Health()
        self._metrics = Metrics(self._namespace)
        self._view = ClusterView()
        name = os.environ.get("POD_NAME") or socket.gethostname()
        self._serving = Serving()
        timing = Timing.of(config.webhook.lease_seconds)
        leases = LeaseStore(client, self._namespace, names.LEASE, timing.call)
        self._elector = Elector(
            leases,
            # A container that was started again must not take its predecessor's lease for its own.
            f"{name}_{secrets.token_hex(4)}",
            self._clock,
            timing,
            jitter=random.random,
        )
        self._events = Events(client, self._clock, self._metrics.lost_events.inc, name)
        # What is judged by the time must not end because somebody sets a clock.
        steady = SteadyClock(self._clock)
        self._controller = Controller(
            config,
            objects.nodes(client),
            owner=name,
            metrics=self._metrics,
            tell=self._events.tell,
            on_pods=OnPods(self._scale_in(steady), self._evictor(steady)),
        )
        self._loop = Loop(
            self._view, self._controller, steady, self._metrics, lambda: self._elector.leading
        )
        self._publisher = Publisher(PublishedStore(client, self._namespace), self._controller)
        self._taint_keys = TaintKeys(
            leases, objects.nodes(client), self._view, steady, config.taint_key
        )
        self._metrics.clock_off.set_function(steady.off_seconds)
        for kind in KINDS:
            age = partial(self._age_seconds, kind)
            self._metrics.view_age.labels(kind.resource).set_function(age)
        self._metrics.leads = lambda: self._elector.leading
        self._metrics.leading.set_function(self._metrics.leads)
        self._metrics.certificate_until.set_function(lambda: self._serving.valid_until)

    def _scale_in(self, clock: Clock) -> ScaleIn:
        right = Right(partial(may, self._client, PATCH_PODS), clock, "patch pods")
        return ScaleIn(objects.pods(self._client), self._metrics, right)

    def _evictor(self, clock: Clock) -> Evictor:
        return Evictor(
            EvictionStore(self._client),
            clock,
            self._metrics,
            own_namespace=self._namespace,
            jitter=random.random,
            tell_forbidden=partial(self._events.tell_of, self._namespace, type_=EventType.WARNING),
        )

    async def run(self) -> None:
        """Serve until SIGTERM; the order of leaving is that of Kubernetes' endpoints."""
        config = self._config.webhook
        pair = None
        if config.cert_file and config.key_file:
            pair = http.PairFiles(self._serving, config.cert_file, config.key_file, self._clock)
        plain = http.Server(
            http.make_app(self._health, self._clock, self._metrics),
            config.metrics_listen,
            setting="webhook.metricsListen",
        )
        app = make_app(self._metrics, self._health, self._clock, self._config.taint_key)
        tls = self._serving.context
        failed = Handshakes(self._metrics, self._clock).failed
        admission = http.Server(app, config.listen, tls, setting="webhook.listen", failed=failed)
        await plain.start()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._keep_certificates(pair)),
                tasks.create_task(self._events.run()),
                tasks.create_task(self._keep_settings()),
                tasks.create_task(self._taint_keys.keep()),
            ]
            for kind in KINDS:
                feed = Feed(self._view, kind, self._view.news, self._clock, self._metrics)
                running.append(tasks.create_task(follow(self._client, kind, feed)))
            await admission.start()
            leader = tasks.create_task(self._elector.run(self._lead))
            log.info(
                "running", extra=fields(mode=self._config.mode.value, policy=self._config.policy)
            )
            await http.until_signal()
            await http.drain(self._health)
            leader.cancel()
            await asyncio.wait({leader})
            for task in running:
                task.cancel()
            for server in (admission, plain):
                await server.stop()

    async def _lead(self) -> None:
        await self._taint_keys.begin()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._loop.run())
            tasks.create_task(self._taint_keys.clean(self._loop.why_stale))
            tasks.create_task(self._publisher.keep(self._loop.why_stale))

    def _age_seconds(self, kind: AnyKind) -> float:
        return self._view.news.age_seconds(kind, self._clock.monotonic_seconds())

    async def _keep_settings(self) -> None:
        if self._start.config_path is None:
            return
        settings = Settings(
            self._start.config_path,
            self._controller,
            self._view,
            self._clock,
            self._metrics,
            partial(self._events.tell_of, self._namespace),
        )
        await self._start.changes.follow(settings.reload)

    async def _keep_certificates(self, pair: http.PairFiles | None) -> None:
        if pair is not None:
            self._health.checks["certificate"] = lambda: self._serving.why_not_valid(
                self._clock.unix_seconds()
            )
            await pair.follow()
            return
        secrets = SecretStore(self._client, self._namespace, names.SECRET)
        certificates = Certificates(
            Stores(secrets, Registration(self._client, names.REGISTRATION)),
            self._serving,
            names.server_names(self._namespace),
            self._clock,
            soak_seconds=self._config.webhook.rotation_soak_seconds,
            tell=partial(self._events.tell_of, self._namespace),
        )
        self._health.checks["certificate"] = certificates.why_not_ready
        await certificates.keep(lambda: self._elector.leading)


if __name__ == "__main__":
    sys.exit(main())
