"""The Helm chart: equal to the kustomizations, and installed on a real API server."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.marks.wellknown import KEEP_ANNOTATION, MARK_LABEL
from kube.target import NAMESPACE as EBB_NAMESPACE
from tests.e2e import releases, tools
from tests.e2e.api import Api, Json
from tests.e2e.install import (
    AT_ONCE,
    REGISTRATION,
    WRITE_POLICY_KINDS,
    guarded,
    in_force,
    overlay,
    point,
    skip_without_policies,
)
from tests.e2e.kubelet import Kubelet
from tests.e2e.moves import (
    HELD,
    OLD,
    App,
    begin,
    detached,
    let_go,
    make_ready,
    settled,
    untouched,
)
from tests.e2e.objects import DEPLOYMENTS, NODES, PODS, START, add_nodes, taints
from tests.e2e.plane import ROOT, Plane, until
from tests.e2e.test_install_doc import said
from tests.support.pages import console

CHART = ROOT / "manifests" / "charts" / "ebb"
INSTALL = console("docs/install-reference.md", "helm install")
NAMESPACE = "ebb-helm"
CLUSTER_KINDS = f"clusterrole,clusterrolebinding,mutatingwebhookconfiguration,{WRITE_POLICY_KINDS}"
POLICY_KINDS = "mutatingadmissionpolicy,mutatingadmissionpolicybinding"
COMPONENTS: dict[str, Json] = {
    "": {},
    "extender": {"extender": {"enabled": True, "clusterIP": "10.96.0.50"}},
    "cert-manager": {"certManager": {"enabled": True}},
    "admission-policy": {"admission": "policy"},
    "pod-deletion-cost": {"permissions": {"podDeletionCost": True}},
    "capacity-buffers": {"permissions": {"capacityBuffers": True}},
    "eviction": {"permissions": {"eviction": True}},
    "surge": {"permissions": {"surge": True}},
    "surge-delete": {"permissions": {"surgeDelete": True}},
    "prometheus-operator": {
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
    },
    "dashboard": {"dashboard": {"enabled": True}},
}
"""Values of the chart that correspond to the base with one component."""
ENFORCE = {**AT_ONCE, "mode": "enforce", "controller": {"interval": "1s"}}


def helm(plane: Plane, *arguments: str, check: bool = True) -> str:
    return releases.helm(plane, NAMESPACE, *arguments, check=check)


def written(folder: Path, values: Json) -> str:
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def by_name(text: str) -> dict[tuple[str, str], Json]:
    """Return comparable objects: without the manager's label, with the configuration parsed.

    kustomize adds empty lines to folded texts (CEL expressions), so white space is normalized.
    """
    found = {}
    for one in filter(None, yaml.safe_load_all(text)):
        templates = [one.get("spec", {}).get("template")] if one["kind"] == "Deployment" else []
        for labelled in (one, *templates):
            del labelled["metadata"]["labels"]["app.kubernetes.io/managed-by"]
        if one["metadata"]["name"] == "ebb-config":
            one["data"] = {key: yaml.safe_load(value) for key, value in one["data"].items()}
        found[one["kind"], one["metadata"]["name"]] = normalized(one)
    return found


def normalized(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: normalized(one) for key, one in value.items()}
    if isinstance(value, list):
        return [normalized(one) for one in value]
    return " ".join(value.split()) if isinstance(value, str) else value


@pytest.mark.parametrize("component", COMPONENTS)
def test_chart_renders_objects_of_kustomization(
    plane: Plane, component: str, tmp_path: Path
) -> None:
    values = {**COMPONENTS[component], "cleanupOnUninstall": False}
    arguments = ("-n", "ebb-system", "--kube-version", "1.37.0", "-f", written(tmp_path, values))
    ours = by_name(helm(plane, "template", "ebb", str(CHART), *arguments))
    overlay(tmp_path, *([f"components/{component}"] if component else []))
    theirs = by_name(plane.kubectl("kustomize", str(tmp_path)))
    del theirs["Namespace", "ebb-system"]
    assert ours == theirs


def test_values_cover_every_component() -> None:
    components = {path.name for path in (ROOT / "manifests" / "components").iterdir()}
    assert components - {"release"} == COMPONENTS.keys() - {""}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("config.mode=off", "at '/config/mode'"),
        ("config.unneededTime=soon", "at '/config/unneededTime': value must be 'a duration of"),
        ("config.budgets.maxMarkd=1", "at '/config/budgets'"),
        ("extender.replicas=0", "at '/extender/replicas'"),
        ("controller.extraArgs={--report-port=1}", "at '/controller/extraArgs/0'"),
        ("config.surge.mode=enabled", "it needs permissions.surge: true"),
        ("config.eviction.mode=enabled", "it needs permissions.eviction: true"),
    ],
)
def test_helm_refuses_wrong_value_and_names_its_path(plane: Plane, value: str, told: str) -> None:
    said = helm(plane, "template", "ebb", str(CHART), "--set-string", value, check=False)
    assert told in said


def test_chart_renders_what_pods_may_need(plane: Plane, tmp_path: Path) -> None:
    program: Json = {
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "podAnnotations": {"note": "1"},
        "podLabels": {"team": "platform"},
        "priorityClassName": "important",
        "affinity": {"nodeAffinity": {}},
    }
    names = "controller", "webhook", "extender"
    values: Json = {name: dict(program) for name in names}
    values["extender"]["enabled"] = values["webhook"]["hostNetwork"] = True
    values["image"] = {"pullPolicy": "Always"}
    found = by_name(helm(plane, "template", "ebb", str(CHART), "-f", written(tmp_path, values)))
    job = found["Job", "ebb-cleanup"]["spec"]["template"]["spec"]
    assert job["containers"][0]["imagePullPolicy"] == "Always"
    for name in names:
        template = found["Deployment", f"ebb-{name}"]["spec"]["template"]
        assert template["metadata"]["annotations"] == program["podAnnotations"]
        assert template["metadata"]["labels"]["team"] == "platform"
        spec = template["spec"]
        assert program["extraEnv"][0] in spec["containers"][0]["env"]
        assert spec["containers"][0]["imagePullPolicy"] == "Always"
        assert (spec["priorityClassName"], spec["affinity"]) == ("important", {"nodeAffinity": {}})
        assert spec.get("hostNetwork", False) is (name == "webhook")


@pytest.fixture
def kubelet(plane: Plane, api: Api) -> Iterator[Kubelet]:
    """Run the pods of the chart, and remove everything at the end."""
    # Other tests leave objects of the kustomizations, and Helm adopts none.
    for kinds in (f"role,rolebinding,{CLUSTER_KINDS}", POLICY_KINDS):
        plane.kubectl("delete", kinds, "-A", "-l", "app.kubernetes.io/name=ebb", check=False)
    made = Kubelet(plane, NAMESPACE)
    yield made
    helm(plane, "uninstall", "ebb", "--no-hooks", "--ignore-not-found")
    made.close()
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    api.wait("/api/v1/namespaces", lambda found: NAMESPACE not in found)


def run(kubelet: Kubelet, *arguments: str) -> str:
    """Run Helm until it ends, and the pods meanwhile."""
    log = kubelet.plane.folder / "helm.log"
    with log.open("wb") as out:
        command = releases.helm_command(kubelet.plane, NAMESPACE, *arguments)
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT)

        def ended() -> bool:
            kubelet.step()
            return process.poll() is not None

        try:
            until(ended, f"helm {arguments[0]} ends", 120)
        finally:
            process.kill()
    said = log.read_text()
    assert process.returncode == 0, said
    return said


def install(kubelet: Kubelet, folder: Path, values: Json, *, chart: Path = CHART) -> None:
    """Install or upgrade the chart, and wait until every Deployment is ready."""
    arguments = ("--create-namespace", "--wait", "--timeout", "100s")
    run(kubelet, "upgrade", "--install", "ebb", str(chart), *arguments,
        "-f", written(folder, values))  # fmt: skip


def test_command_of_page_installs_the_chart(kubelet: Kubelet) -> None:
    program = f"helm() {{ '{tools.find_helm()}' \"$@\"; }}\n"
    # The usual namespace has objects of the kustomizations.
    command = INSTALL.commands.replace(EBB_NAMESPACE, NAMESPACE)
    assert "STATUS: deployed" in said(kubelet.plane, program + command)
    assert deployments(kubelet.plane).keys() == {"ebb-controller", "ebb-webhook"}


def deployments(plane: Plane) -> dict[str, tuple[int, int]]:
    """Return the wanted and the ready replicas of each Deployment."""
    found = plane.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")["items"]
    return {
        one["metadata"]["name"]: (one["spec"]["replicas"], one["status"].get("readyReplicas", 0))
        for one in found
    }


@pytest.mark.parametrize("admission", ["webhook", "policy"])
@pytest.mark.parametrize("extender", [True, False])
def test_every_deployment_of_installed_chart_becomes_ready(
    kubelet: Kubelet, tmp_path: Path, admission: str, *, extender: bool
) -> None:
    if admission == "policy":
        skip_without_policies(kubelet.plane)
    values = {"admission": admission, "extender": {"enabled": extender}}
    install(kubelet, tmp_path, values)
    wanted = {"ebb-controller"}
    wanted |= {"ebb-extender"} if extender else set()
    wanted |= {"ebb-webhook"} if admission == "webhook" else set()
    assert deployments(kubelet.plane) == dict.fromkeys(wanted, (2, 2))
    if admission == "webhook":
        point(kubelet.plane, kubelet.of("webhook")[0].ports[8443])
    in_force(kubelet.plane)
    problems = {code for code, state in doctor(kubelet.plane).items() if state == "problem"}
    # This cluster has no autoscaler. Endpoints need addresses of pods, which processes lack.
    assert problems == {"autoscaler"} | ({"admission"} if admission == "webhook" else set())


def doctor(plane: Plane) -> dict[str, str]:
    """Return the states of the checks of `ebb doctor` by code."""
    command = [sys.executable, "-m", "cli", "doctor", "-o", "json", "--ebb-namespace", NAMESPACE]
    command += ["--kubeconfig", str(plane.kubeconfig("doctor"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)["findings"]
    return {one["code"]: one["state"] for one in checks}


def run_on(api: Api, name: str, app: App) -> None:
    """Run a Deployment on a node without a scheduler, which would bind Ebb's own pods too."""
    add_nodes(api, name)
    api.create(DEPLOYMENTS, app.manifest())
    for pod in api.wait(PODS, lambda found: len(found) == app.replicas):
        target = {"apiVersion": "v1", "kind": "Node", "name": name}
        api.create(f"{PODS}/{pod}/binding", {"metadata": {"name": pod}, "target": target})
    make_ready(api, {app.name: app.replicas})


def newer(folder: Path) -> Path:
    """Return a copy of the chart with the next version."""
    chart = folder / "ebb"
    shutil.copytree(CHART, chart)
    path = chart / "Chart.yaml"
    path.write_text(path.read_text().replace("0.1.0", "0.1.1"))
    return chart


def test_upgrade_and_rollback_keep_state_and_uninstall_leaves_nothing(
    kubelet: Kubelet, api: Api, tmp_path: Path
) -> None:
    plane = kubelet.plane
    app = App(replicas=2, annotations=HELD)
    run_on(api, OLD, app)
    begin(api)
    surge = {"mode": "enabled", "minPodAge": "0s"}
    values = {
        "admission": "webhook",
        "config": ENFORCE | {"usableCapacity": "all", "surge": surge},
        "controller": {"extraArgs": ["--lease-duration=6s"]},
        "permissions": {"podDeletionCost": True, "surge": True},
    }
    install(kubelet, tmp_path, values)

    def marked() -> list[str]:
        kubelet.step()
        nodes = api.get(NODES)["items"]
        return [
            one["metadata"]["name"] for one in nodes if MARK_LABEL in one["metadata"]["labels"]
        ]

    until(marked, "a node is marked")
    guarded(plane, NAMESPACE, OLD)
    before = marked(), state(plane)
    install(kubelet, tmp_path, values, chart=newer(tmp_path))
    assert "0.1.1" in helm(plane, "list")
    assert (marked(), state(plane)) == before
    run(kubelet, "rollback", "ebb", "1", "--wait", "--timeout", "100s")
    assert (marked(), state(plane)) == before
    let_go(api, app)
    detached(api, app.name)
    with untouched(api, app.name):
        run(kubelet, "uninstall", "ebb", "--wait", "--timeout", "100s")
        pods = settled(api, {app.name: 2}, OLD)
    left = api.get(NODES)["items"]
    assert [taints(one) for one in left] == [[], []]
    traces = str([one["metadata"] | {"managedFields": ""} for one in (*left, *pods)])
    assert "kube-ebb" not in traces.replace(KEEP_ANNOTATION, "").replace(START, "")
    assert "ebb-" not in plane.kubectl("get", CLUSTER_KINDS, "-o", "name")


def state(plane: Plane) -> list[Json | None]:
    """Return the CA, which programs have written into objects of the chart."""
    (webhook,) = plane.api.get(REGISTRATION)["webhooks"]
    return [
        plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/ebb-webhook-certs")["data"],
        webhook["clientConfig"].get("caBundle"),
    ]
