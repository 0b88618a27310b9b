"""Run kube-scheduler with the extender and the shipped profile, or with other profiles."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import yaml

from tests.e2e.api import Json
from tests.e2e.install import start_program
from tests.e2e.plane import FLAGS, LOOPBACK, ROOT, Ebb, Plane, free_port

CONFIGURATION = ROOT / "manifests" / "scheduler" / "kube-scheduler-config.yaml"
MOST_ALLOCATED_WEIGHT: Final = 10


def stanza(port: int, scheme: str = "http", **changed: Any) -> Json:
    """Return the shipped extender stanza, for a program on the loopback interface."""
    shipped = yaml.safe_load(CONFIGURATION.read_text())["extenders"][0]
    return {**shipped, "urlPrefix": f"{scheme}://{LOOPBACK}:{port}", **changed}


def shipped_profile() -> Json:
    """Return the shipped profile, which prefers the fuller node."""
    (found,) = yaml.safe_load(CONFIGURATION.read_text())["profiles"]
    return dict(found)


def most_allocated() -> Json:
    """Return a profile that packs nodes without the extender.

    It is the shipped profile with a fullness weight that outweighs the spread of Deployments.
    """
    plugin = {"name": "NodeResourcesFit", "weight": MOST_ALLOCATED_WEIGHT}
    found = shipped_profile()
    found["plugins"]["multiPoint"]["enabled"] = [plugin]
    return found


def start_extender(plane: Plane, **settings: Any) -> Ebb:
    """Start the extender program with its ServiceAccount's token."""
    flags = {"extender": {"--listen": f"{LOOPBACK}:{free_port()}"}}
    return start_program(plane, "extender", {"extender": settings, FLAGS: flags})


def port_of(extender: Ebb) -> int:
    return int(extender.settings[FLAGS]["extender"]["--listen"].rpartition(":")[2])


@contextmanager
def scheduling(plane: Plane, *extenders: Json, **how: Any) -> Iterator[None]:
    """Run kube-scheduler inside of the context; the arguments are those of Plane.scheduler."""
    scheduler = plane.scheduler(*extenders, **how)
    try:
        yield
    finally:
        plane.end(scheduler, signal.SIGKILL)
