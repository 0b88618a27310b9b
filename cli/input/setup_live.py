"""Read the setup around Ebb, which `ebb doctor` checks, from a live cluster.

A failed call makes a value unknown, and raises nothing.
"""

import asyncio
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from cli.input.setup import (
    EXTENDER_PORT_NAME,
    SETUP_KINDS,
    ApiTime,
    ExtenderCalls,
    Read,
    Right,
    Setup,
    SetupKind,
    running_extenders,
    viewer_rights,
)
from core.config.settings import Config
from core.model.cluster import Cluster
from core.model.errors import GarbledError, UnavailableError
from core.model.pod import Pod
from kube import port_forward
from kube.client import ApiError, Client, answered
from kube.listing import Page
from kube.stores.access_review import is_allowed
from runtime.clock import Clock

NOT_SERVED: Final = 404
REPLICAS_MAX: Final = 5
"""Maximum number of replicas of the extender whose metrics are read."""
METRICS_BYTES_MAX: Final = 1024**2
PAGES_MAX: Final = 1000
"""Maximum number of pages of one kind."""
CALLS: Final = "ebb_extender_prioritize_requests"
"""Metric of the extender, without the suffix of counters."""


async def read(
    client: Client, cluster: Cluster, config: Config, namespace: str, clock: Clock
) -> Setup:
    """Read from a live cluster what only `ebb doctor` checks, such as RBAC objects.

    *cluster*: the cluster with its pods, which was read before. *namespace*: namespace in which
    Ebb is installed. *clock*: clock of this machine, which is compared with that of the API
    server.
    """
    objects = {kind.name: await _objects(client, kind, namespace) for kind in SETUP_KINDS}
    access = await _access(client, viewer_rights(config, namespace))
    # The last answer has just arrived, so its date and the time of this machine belong together.
    api_time = _api_time(client.server_date, clock.unix_seconds())
    return Setup(
        objects=objects,
        access=access,
        api_time=Read(absent=access.absent) if access.absent else api_time,
        extender=await _extender(client, running_extenders(cluster, namespace), config),
    )


async def _objects(client: Client, kind: SetupKind, namespace: str) -> Read[tuple[Any, ...]]:
    """Return the objects of a kind, or why they could not be listed.

    *namespace*: namespace in which Ebb is installed.
    """
    decoder = msgspec.json.Decoder(Page[kind.wire])  # type: ignore[name-defined]
    path, token = kind.live_path(namespace), None
    objects: list[Any] = []
    try:
        for _ in range(PAGES_MAX):
            raw = await client.page(
                path,
                label_selector=kind.label_selector,
                token=token,
            )
            page = answered(decoder, raw)
            objects += page.items or ()
            token = page.metadata.token
            if not token:
                return Read(tuple(objects))
    except ApiError as fault:
        none = kind.optional and fault.status == NOT_SERVED
        return Read(()) if none else Read(absent=str(fault))
    except UnavailableError as fault:
        return Read(absent=str(fault))
    return Read(
        absent=f"the list has more than {PAGES_MAX} pages, the most that `ebb doctor` reads"
    )


async def _access(client: Client, rights: tuple[Right, ...]) -> Read[Mapping[Right, bool]]:
    try:
        reviews = (is_allowed(client, right.attributes()) for right in rights)
        allowed = await asyncio.gather(*reviews)
    except UnavailableError as fault:
        return Read(absent=str(fault))
    return Read(dict(zip(rights, allowed, strict=True)))


def _api_time(date: str, local_seconds: int) -> Read[ApiTime]:
    """Return the time of the API server according to an HTTP header, or why it is unknown.

    *date*: value of the header Date of an answer. *local_seconds*: Unix time at its arrival.
    """
    try:
        server = parsedate_to_datetime(date)
    except ValueError:
        return Read(absent="the API server's answers have no valid header Date")
    return Read(ApiTime(int(server.timestamp()), local_seconds))


async def _extender(client: Client, pods: tuple[Pod, ...], config: Config) -> Read[ExtenderCalls]:
    """Return the calls that the extender's *pods* have counted, or why these are unknown."""
    if not pods:
        return Read(absent="the extender has no running pod")
    if config.extender.cert_dir is not None:
        return Read(absent="the extender serves TLS, and a port-forward reads plain HTTP only")
    totals: dict[str, int] = {}
    for pod in pods[:REPLICAS_MAX]:
        try:
            raw = await port_forward.get(
                client,
                pod.namespace,
                pod.name,
                EXTENDER_PORT_NAME,
                "/metrics",
                bytes_max=METRICS_BYTES_MAX,
            )
            for result, count in _calls(raw).items():
                totals[result] = totals.get(result, 0) + count
        except UnavailableError as fault:
            return Read(absent=f"cannot read the metrics of pod {pod.key}: {fault}")
    return Read(ExtenderCalls(totals, len(pods[:REPLICAS_MAX])))


def _calls(raw: bytes) -> Mapping[str, int]:
    """Return the number of prioritize calls by result, such as scored.

    *raw*: metrics of one replica of the extender. Raises: GarbledError.
    """
    try:
        calls = {
            sample.labels["result"]: int(sample.value)
            for family in text_string_to_metric_families(raw.decode())
            if family.name == CALLS
            for sample in family.samples
            if sample.name == f"{CALLS}_total"
        }
    except (KeyError, ValueError, OverflowError) as fault:
        raise GarbledError(f"no Prometheus metrics: {fault}") from fault
    if not calls:
        raise GarbledError(f"no metric {CALLS}_total")
    return calls
