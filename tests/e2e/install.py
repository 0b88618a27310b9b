"""Install Ebb from manifests/, with processes on the loopback interface instead of pods."""

import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from controller.names import LEASE as LEASE_NAME
from core.config.settings import Mode
from kube.target import NAMESPACE
from tests.e2e.api import MERGE, Api, Json, RefusedError
from tests.e2e.objects import NODES, TAINT, add_nodes, mark, taints
from tests.e2e.plane import FLAGS, LOOPBACK, ROOT, Ebb, Plane, free_port, start_ebb, until
from webhook import names
from webhook.app import MUTATE_PATH

REGISTRATION = (
    f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{names.REGISTRATION}"
)
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{names.SECRET}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE_NAME}"
CONTROLLER_ACCOUNT = "ebb-controller"
WEBHOOK_ACCOUNT = "ebb-webhook"
EXTENDER_ACCOUNT = "ebb-extender"
ACCOUNTS: Final = {
    "controller": CONTROLLER_ACCOUNT,
    "webhook": WEBHOOK_ACCOUNT,
    "extender": EXTENDER_ACCOUNT,
}
"""The ServiceAccount of each program, by the program's module."""
POLICY_MINOR_MIN: Final = 36
"""The first minor version of Kubernetes with MutatingAdmissionPolicy in v1."""
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
MUTATING_BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
WRITE_POLICY_KINDS = "validatingadmissionpolicy,validatingadmissionpolicybinding"
ADDED: Final = "e2e.example.org/added"
"""Label that nobody of Ebb writes, so that the policies for Ebb's accounts refuse the write."""
Start = Callable[..., Ebb]
"""Type of a function that starts a controller; keyword arguments replace settings."""


class Programs(NamedTuple):
    """The programs of the base manifests, each in its own process."""

    controller: Ebb
    webhook: Ebb


def apply(plane: Plane, folder: str = "manifests", namespace: str = NAMESPACE) -> None:
    """Apply a kustomization, then delete its Deployments, as no kubelet runs their pods."""
    plane.kubectl("apply", "-k", folder)
    plane.kubectl("-n", namespace, "delete", "deployment", "--all")


def point(plane: Plane, port: int, **changed: Any) -> None:
    """Point the MutatingWebhookConfiguration to a loopback port, as Services do not work here."""
    found = plane.api.get(REGISTRATION)
    (webhook,) = found["webhooks"]
    bundle = webhook["clientConfig"].get("caBundle")
    config = {"url": f"https://{LOOPBACK}:{port}{MUTATE_PATH}"}
    if bundle:
        config["caBundle"] = bundle
    found["webhooks"] = [{**webhook, "clientConfig": config, **changed}]
    plane.api.call("PUT", REGISTRATION, found)


def in_force(plane: Plane, *, called: bool = True) -> None:
    """Wait until the API server calls the webhook, or no longer calls it.

    A changed MutatingWebhookConfiguration takes effect after one to three seconds.
    """
    add_nodes(plane.api, "probe")

    def reached() -> bool:
        mark(plane.api, "probe", None)
        return taints(mark(plane.api, "probe")) == [TAINT] * called

    until(reached, f"the webhook is called: {called}")
    plane.api.delete(f"{NODES}/probe")
    plane.api.wait(NODES, lambda found: "probe" not in found)


AT_ONCE: Final = {
    "unneededTime": "0s",
    "headroom": 0,
    "reserve": {"window": "never"},
    "stabilizationWindow": "0s",
    "budgets": {"maxMarked": "100%", "maxNewMarks": "100%", "period": "0s"},
    "cooldown": {"delayAfterAdd": "0s", "delayAfterPending": "0s"},
}


def config(*, mode: Mode = Mode.OBSERVE, **more: Any) -> Json:
    """Return one configuration for all programs, with free ports and no delays.

    In mode observe the controller would remove the marks that tests set, so its interval is long.
    *more*: further settings; `flags` has flags by module.
    """
    flags = more.pop(FLAGS, {})
    controller = {
        "--metrics-listen": f"{LOOPBACK}:{free_port()}",
        "--report-port": free_port(),
        "--lease-duration": "6s",
        **flags.get("controller", {}),
    }
    webhook = {
        "--listen": f"{LOOPBACK}:{free_port()}",
        "--metrics-listen": f"{LOOPBACK}:{free_port()}",
        **flags.get("webhook", {}),
    }
    interval = {"interval": "1s" if mode is Mode.ENFORCE else "1h", **more.pop("controller", {})}
    return {
        "mode": mode.value,
        **AT_ONCE,
        **more,
        "controller": interval,
        FLAGS: {"controller": controller, "webhook": webhook},
    }


def plain_url(module: str, settings: Json) -> str:
    """Return the URL at which a program serves health and metrics."""
    flags = settings[FLAGS][module]
    address = flags["--listen" if module == "extender" else "--metrics-listen"]
    scheme = "https" if settings.get(module, {}).get("certDir") else "http"
    return f"{scheme}://{address}"


def start_program(
    plane: Plane,
    module: str,
    settings: Json,
    name: str = "",
    namespace: str = NAMESPACE,
    url: str = "",
) -> Ebb:
    """Start a program with its own ServiceAccount's token; *url* replaces the API server's."""
    name = name or f"ebb-{module}"
    token = plane.token(namespace, ACCOUNTS[module])
    return start_ebb(
        plane,
        name,
        module,
        settings,
        kubeconfig=plane.kubeconfig(name, token=token, url=url),
        health=plain_url(module, settings),
        POD_NAME=name,
        POD_NAMESPACE=namespace,
    )


@contextmanager
def ending(plane: Plane, *started: Ebb) -> Iterator[None]:
    """Kill the programs that still run at the end, as SIGTERM would wait for clients."""
    try:
        yield
    finally:
        for ebb in started:
            if ebb.program in plane.programs:
                ebb.stop(signal.SIGKILL)


@contextmanager
def starting(plane: Plane, settings: Json) -> Iterator[Start]:
    """Run a webhook, and yield a function that starts controllers; end all of them afterwards."""
    made = config(**settings)
    point(plane, port_of(made))
    webhook = start_program(plane, "webhook", made)

    def start(**changed: Any) -> Ebb:
        ebb = start_program(plane, "controller", config(**{**settings, **changed}))
        at_end.enter_context(ending(plane, ebb))
        return ebb.wait_ready()

    with ExitStack() as at_end:
        at_end.enter_context(ending(plane, webhook))
        webhook.wait_ready()
        yield start


def leader_of(api: Api, running: Collection[Ebb]) -> Ebb:
    """Wait until one of these controllers holds the Lease, and return it."""

    def found() -> Ebb | None:
        try:
            holder = str(api.get(LEASE)["spec"].get("holderIdentity"))
        except RefusedError:
            return None  # the test has deleted it
        return next((one for one in running if holder.startswith(f"{one.program.name}_")), None)

    leader: Ebb = until(found, "one leads")
    return leader


def port_of(settings: Json) -> int:
    """Return the port at which the webhook serves admission."""
    return int(settings[FLAGS]["webhook"]["--listen"].rpartition(":")[2])


@contextmanager
def admitting(plane: Plane) -> Iterator[Ebb]:
    """Install Ebb, start only the webhook, wait until it is called; uninstall afterwards."""
    settings = config()
    apply(plane)
    point(plane, port_of(settings))
    webhook = start_program(plane, "webhook", settings)
    try:
        with ending(plane, webhook):
            webhook.wait_ready()
            in_force(plane)
            yield webhook
    finally:
        remove(plane)


@contextmanager
def installed(plane: Plane, folder: str = "manifests", **how: Any) -> Iterator[Programs]:
    """Install Ebb, start one controller and one webhook, wait until the webhook is called.

    Remove everything afterwards.
    """
    settings = config(**how)
    apply(plane, folder)
    point(plane, port_of(settings))
    try:
        # Both processes start at the same time.
        started = [start_program(plane, module, settings) for module in ("controller", "webhook")]
        with ending(plane, *started):
            for ebb in started:
                ebb.wait_ready()
            in_force(plane)
            yield Programs(*started)
    finally:
        remove(plane)


def skip_without_policies(plane: Plane) -> None:
    """Skip the test if the API server does not serve MutatingAdmissionPolicies in v1."""
    if (minor := plane.minor()) < POLICY_MINOR_MIN:
        needed = f"the component admission-policy needs Kubernetes 1.{POLICY_MINOR_MIN}"
        pytest.skip(f"{needed}; this is 1.{minor}")


def as_account(plane: Plane, account: str, namespace: str = NAMESPACE) -> Api:
    """Return the API as a ServiceAccount of Ebb."""
    return plane.api_as(None, plane.token(namespace, account))


def answer(api: Api, path: str, patch: Json, content: str = MERGE) -> str:
    """Return why the API server refuses a patch; "" if it does not. Nothing is written."""
    try:
        api.call("PATCH", f"{path}?dryRun=All", patch, content=content)
    except RefusedError as fault:
        return str(fault)
    return ""


def guarded(plane: Plane, namespace: str, node: str) -> None:
    """Wait until a policy refuses a foreign label by the controller's account in a namespace."""
    ours, label = as_account(plane, CONTROLLER_ACCOUNT, namespace), {"labels": {ADDED: "1"}}
    refusal = f"'ebb-controller-nodes' denied request: metadata.labels: {ADDED}"

    def refused() -> bool:
        return refusal in answer(ours, f"{NODES}/{node}", {"metadata": label})

    until(refused, f"the policies guard the accounts in {namespace}")


@contextmanager
def adding_label(plane: Plane) -> Iterator[None]:
    """Let a MutatingAdmissionPolicy of a user add a label to each Node that Ebb updates."""
    skip_without_policies(plane)
    api, name = plane.api, "e2e-adds-label"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"]}
    expression = f'Object{{metadata: Object.metadata{{labels: {{"{ADDED}": "1"}}}}}}'
    by_ebb = f'request.userInfo.username.endsWith(":{CONTROLLER_ACCOUNT}")'
    spec = {
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{**rule, "resources": ["nodes"]}]},
        "matchConditions": [{"name": "ebb", "expression": by_ebb}],
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": expression},
            }
        ],
    }
    api.create(MUTATING, {"metadata": {"name": name}, "spec": spec})
    bound = {"metadata": {"name": name}, "spec": {"policyName": name}}
    api.create(MUTATING_BINDINGS, bound)
    try:
        yield
    finally:
        api.delete(f"{MUTATING_BINDINGS}/{name}")
        api.delete(f"{MUTATING}/{name}")


@contextmanager
def policy(plane: Plane) -> Iterator[None]:
    """Install the MutatingAdmissionPolicy instead of the webhook, or skip the test."""
    skip_without_policies(plane)
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
    """Write a kustomization of the base, some components, and further fields."""
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
    """Delete the objects of the manifests, except the namespace."""
    for path in (REGISTRATION, SECRET, LEASE):
        plane.api.delete(path)
