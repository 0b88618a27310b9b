"""Ebb installed from manifests/ as a person does, with programs on loopback in the pods' place."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from controller.names import LEASE as LEASE_NAME
from core.config.settings import Mode
from core.edge.kube.names import NAMESPACE
from tests.e2e.api import Json
from tests.e2e.objects import NODES, TAINT, add_nodes, mark, taints
from tests.e2e.plane import LOOPBACK, ROOT, Ebb, Plane, free_port, start_ebb, until
from webhook import names
from webhook.app import MUTATE_PATH

REGISTRATION = (
    f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{names.REGISTRATION}"
)
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{names.SECRET}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE_NAME}"
WEBHOOK_ACCOUNT = "ebb-webhook"
EXTENDER_ACCOUNT = "ebb-extender"
IN_FORCE_SECONDS = 20.0
Start = Callable[..., Ebb]
"""Starts the webhook, with settings of its own by name."""


def apply(plane: Plane, folder: str = "manifests", namespace: str = NAMESPACE) -> None:
    """Apply a kustomization; no kubelet runs its pods here, so the Deployments go again."""
    plane.kubectl("apply", "-k", folder)
    plane.kubectl("-n", namespace, "delete", "deployment", "--all")


def point(plane: Plane, port: int, **changed: Any) -> None:
    """Let the registration call loopback: nothing routes to a Service here."""
    found = plane.api.get(REGISTRATION)
    (webhook,) = found["webhooks"]
    bundle = webhook["clientConfig"].get("caBundle")
    config = {"url": f"https://{LOOPBACK}:{port}{MUTATE_PATH}"}
    if bundle:
        config["caBundle"] = bundle
    found["webhooks"] = [{**webhook, "clientConfig": config, **changed}]
    plane.api.call("PUT", REGISTRATION, found)


def in_force(plane: Plane, *, called: bool = True) -> None:
    """Wait until the API server calls the webhook, or calls it no more.

    A registration takes a second or three.
    """
    add_nodes(plane.api, "probe")

    def reached() -> bool:
        mark(plane.api, "probe", None)
        return taints(mark(plane.api, "probe")) == [TAINT] * called

    until(reached, f"the webhook is called: {called}", IN_FORCE_SECONDS)
    plane.api.delete(f"{NODES}/probe")
    plane.api.wait(NODES, lambda found: "probe" not in found)


AT_ONCE: Final = {
    "delay": "0s",
    "headroom": 0,
    "reserve": {"over": "0s"},
    "peakWindow": "0s",
    "budgets": {"maxMarked": "100%", "maxInWindow": "100%", "window": "0s"},
    "cooldown": {"afterNodeAdd": "0s", "afterPending": "0s"},
}


def config(*, mode: Mode = Mode.OBSERVE, **more: Any) -> Json:
    """Return a configuration with ports of its own; what holds the engine back is off.

    In mode observe it would take away the marks that tests set: there the engine does not look.
    """
    webhook = {
        "listen": f"{LOOPBACK}:{free_port()}",
        "metricsListen": f"{LOOPBACK}:{free_port()}",
        "interval": "1s" if mode is Mode.ENFORCE else "1h",
        "leaseDuration": "6s",
        **more.pop("webhook", {}),
    }
    return {"mode": mode.value, **AT_ONCE, **more, "webhook": webhook}


def start_webhook(
    plane: Plane, settings: Json, name: str = "ebb-webhook", namespace: str = NAMESPACE
) -> Ebb:
    """Start the webhook program with its ServiceAccount's token."""
    token = plane.token(namespace, WEBHOOK_ACCOUNT)
    return start_ebb(
        plane,
        name,
        "webhook",
        settings,
        kubeconfig=plane.kubeconfig(name, token=token),
        health=f"http://{settings['webhook']['metricsListen']}",
        POD_NAME=name,
        POD_NAMESPACE=namespace,
    )


@contextmanager
def starting(plane: Plane, settings: Json) -> Iterator[Start]:
    """Yield what starts the webhook with these settings and others, once or again; then end all.

    The registration is pointed at the one that was started last.
    """
    started: list[Ebb] = []

    def start(**changed: Any) -> Ebb:
        made = config(**{**settings, **changed})
        point(plane, port_of(made))
        started.append(start_webhook(plane, made))
        return started[-1].wait_ready()

    try:
        yield start
    finally:
        for ebb in started:
            if ebb.program in plane.programs:
                ebb.stop(signal.SIGKILL)


def port_of(settings: Json) -> int:
    """Return where the webhook serves admission."""
    return int(settings["webhook"]["listen"].rpartition(":")[2])


@contextmanager
def installed(plane: Plane, folder: str = "manifests", **how: Any) -> Iterator[Ebb]:
    """Install, start one webhook, wait until it is called; afterwards remove all of it."""
    settings = config(**how)
    apply(plane, folder)
    point(plane, port_of(settings))
    ebb = start_webhook(plane, settings)
    try:
        ebb.wait_ready()
        in_force(plane)
        yield ebb
    finally:
        if ebb.program in plane.programs:
            ebb.stop()
        remove(plane)


@contextmanager
def policy(plane: Plane) -> Iterator[None]:
    """Install the policy that taints in the API server, in place of the webhook."""
    folder = plane.folder / "policy"
    overlay(folder, "components/admission-policy")
    apply(plane, str(folder))
    try:
        in_force(plane)
        yield
    finally:
        plane.kubectl("delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding", "--all")
        remove(plane)


def overlay(folder: Path, *components: str, **more: Any) -> None:
    """Write a kustomization of the base, some components and more fields, as a person would."""
    folder.mkdir(exist_ok=True)
    root = os.path.relpath(ROOT / "manifests", folder)
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{root}/base"],
        "components": [f"{root}/{component}" for component in components],
        **more,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))


def remove(plane: Plane) -> None:
    """Remove what the manifests have put there, but for the namespace."""
    for path in (REGISTRATION, SECRET, LEASE):
        plane.api.delete(path)
