"""Decode the containers of a pod: their resources, host ports and restart rules."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from core.model.constraints import ANY_IP, HostPort
from kube.decode import pod_limits
from kube.decode.fields import NULL
from kube.decode.objects import CONTAINERS, Container, PodSpec, RestartRule

RESTART_ALL_ACTION: Final = "RestartAllContainers"

Block = tuple[str, str | None, bytes]
"""Name, restart policy and resources (JSON) of a container."""


class Containers(NamedTuple):
    """The properties of a pod's containers that Ebb uses."""

    main: tuple[Block, ...]
    init: tuple[Block, ...]
    ports: tuple[HostPort, ...]
    """Host ports of the pod; most pods have none."""
    restarts_all: bool
    """The exit of a container can restart all containers of the pod."""


def containers_of(spec: PodSpec) -> Containers:
    """Decode the containers of a pod. Raises: InvalidInputError with the field."""
    found = main = _read(spec.containers, "spec.containers")
    blocks = tuple([(one.name, one.restart_policy, bytes(one.resources)) for one in main])
    init_blocks: tuple[Block, ...] = ()
    if spec.init_containers is not NULL:
        init = _read(spec.init_containers, "spec.initContainers")
        init_blocks = tuple([(one.name, one.restart_policy, bytes(one.resources)) for one in init])
        found = [*main, *init]
    ports: list[HostPort] = []
    restarts_all = False
    on_host = spec.host_network
    for number, one in enumerate(found):
        # kube-scheduler's NodePorts ignores the ports of ordinary init containers.
        if one.ports and (number < len(main) or one.restart_policy == "Always"):
            for port in one.ports:
                # With hostNetwork the API server defaults hostPort to containerPort.
                taken = port.host_port or (on_host and port.container_port)
                if taken:
                    ports.append(HostPort(taken, port.protocol or "TCP", port.host_ip or ANY_IP))
        if one.restart_policy_rules:
            restarts_all |= _restarts_all(one.restart_policy_rules)
    return Containers(blocks, init_blocks, tuple(ports), restarts_all)


def _read(raw: msgspec.Raw, field: str) -> Sequence[Container]:
    found = CONTAINERS.read(raw, field) or ()
    if len(found) > pod_limits.CONTAINERS_MAX:
        pod_limits.few("containers", len(found), pod_limits.CONTAINERS_MAX, field)
    return found


def _restarts_all(rules: Iterable[RestartRule]) -> bool:
    return any(rule.action == RESTART_ALL_ACTION for rule in rules)
