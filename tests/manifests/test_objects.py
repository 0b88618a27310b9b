import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cli.input.setup import EXTENDER_PORT_NAME
from controller.leader_report import REPORT_PORT_NAME
from core.config.settings import Config, Mode
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from extender.app import make_app as make_extender
from extender.metrics import Metrics as ExtenderMetrics
from extender.view import View
from kube.target import NAMESPACE
from runtime import files, program
from runtime.clock import SystemClock
from serving.http import Health
from serving.http import base_app as make_bones
from tests.manifests.kustomize import (
    COMPONENTS,
    EXAMPLES,
    ROOT,
    Json,
    containers,
    find,
    of_kind,
    render,
    templates,
)
from tests.support import flags_page
from webhook import names
from webhook.app import MUTATE_PATH
from webhook.metrics import Metrics
from webhook.wire import API_VERSION, KUBELETS

EVERYTHING = ("", *COMPONENTS, *EXAMPLES)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION = PROJECT["version"]
OURS = f"ghcr.io/kube-ebb/ebb:{VERSION}"
LABEL = "app.kubernetes.io/"
SELECTED_BY = {f"{LABEL}name", f"{LABEL}instance", f"{LABEL}component"}
KUBELETS_PASS = f'request.operation == "CREATE" || !("{KUBELETS}" in request.userInfo.groups)'


@pytest.fixture(params=EVERYTHING, ids=lambda name: name or "base")
def objects(request: pytest.FixtureRequest) -> list[Json]:
    return render(request.param)


def test_base_contains_expected_kinds() -> None:
    assert sorted(item["kind"] for item in render("")) == sorted(
        [
            "Namespace",
            "ResourceQuota",
            *["ConfigMap"] * 3,
            *["ServiceAccount", "Deployment", "PodDisruptionBudget", "NetworkPolicy"] * 2,
            *["ClusterRole", "ClusterRoleBinding"] * 3,
            *["Role", "RoleBinding"] * 4,
            "Role",
            "Secret",
            "Service",
            "MutatingWebhookConfiguration",
            *["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] * 3,
        ]
    )


def test_objects_are_unique(objects: list[Json]) -> None:
    keys = [
        (
            item["apiVersion"],
            item["kind"],
            item["metadata"].get("namespace"),
            item["metadata"]["name"],
        )
        for item in objects
    ]
    assert len(keys) == len(set(keys))


def test_every_object_has_common_labels(objects: list[Json]) -> None:
    for item in [*objects, *templates(objects)]:
        labels = item["metadata"]["labels"]
        assert set(labels) >= SELECTED_BY
        assert labels[f"{LABEL}part-of"] == "ebb"
        assert labels[f"{LABEL}managed-by"] == "kustomize"
        assert labels[f"{LABEL}version"] == VERSION


PROGRAMS = ("controller", "webhook", "extender")
SHARED = {
    "ebb-system": "namespace",
    "ebb-critical-pods": "namespace",
    "ebb-config": "config",
    "ebb-viewer": "controller",
    "ebb-today": "controller",
    "ebb-history": "controller",
    "ebb-node-taint": "policy",
    "ebb-ca": "webhook",
    "ebb-self-signed": "webhook",
    "ebb": "alerts",
    "ebb-dashboard": "dashboard",
}
"""Component labels of objects whose name contains no program."""


def test_component_label_names_program_of_object(
    objects: list[Json],
) -> None:
    for item in objects:
        name, label = item["metadata"]["name"], item["metadata"]["labels"][f"{LABEL}component"]
        own = [one for one in PROGRAMS if f"{name}-".startswith(f"ebb-{one}-")]
        assert [label] == (own or [SHARED[name]])


def test_namespaced_objects_are_in_namespace_of_ebb(objects: list[Json]) -> None:
    """An overlay may move all objects to another namespace, so no object may need its own.

    The exception is the permission to read the status of Cluster Autoscaler in its namespace. The
    controller runs without it.
    """
    elsewhere = {
        (item["kind"], item["metadata"]["name"], item["metadata"]["namespace"])
        for item in objects
        if item["metadata"].get("namespace", NAMESPACE) != NAMESPACE
    }
    assert elsewhere == {
        (kind, "ebb-controller-autoscaler", "kube-system") for kind in ("Role", "RoleBinding")
    }


def test_namespace_enforces_restricted_pods(objects: list[Json]) -> None:
    labels = find(objects, "Namespace", NAMESPACE)["metadata"]["labels"]
    for mode in ("enforce", "audit", "warn"):
        assert labels[f"pod-security.kubernetes.io/{mode}"] == "restricted"


def test_quota_allows_priority_class_of_pods(objects: list[Json]) -> None:
    """GKE rejects pods of this priority class unless a quota of the namespace allows it."""
    quota = find(objects, "ResourceQuota", "ebb-critical-pods", NAMESPACE)["spec"]
    (scope,) = quota["scopeSelector"]["matchExpressions"]
    classes = {template["spec"]["priorityClassName"] for template in templates(objects)}
    assert (scope["scopeName"], scope["operator"]) == ("PriorityClass", "In")
    assert set(scope["values"]) == classes
    assert set(quota["hard"]) == {"pods"}, "nothing that pods would have to say more for"
    replicas = sum(item["spec"]["replicas"] for item in of_kind(objects, "Deployment"))
    assert int(quota["hard"]["pods"]) >= 10 * replicas


def test_every_selector_selects_one_workload(objects: list[Json]) -> None:
    workloads = [template["metadata"]["labels"] for template in templates(objects)]
    found = list(_selectors(objects))
    assert found
    for selector in found:
        assert set(selector) == SELECTED_BY
        assert sum(selector.items() <= labels.items() for labels in workloads) == 1


def _selectors(objects: list[Json]) -> Iterator[Json]:
    for item in of_kind(objects, "Deployment", "PodDisruptionBudget"):
        yield item["spec"]["selector"]["matchLabels"]
    for item in of_kind(objects, "NetworkPolicy"):
        yield item["spec"]["podSelector"]["matchLabels"]
    for item in of_kind(objects, "Service"):
        yield item["spec"]["selector"]
    for template in templates(objects):
        for spread in template["spec"]["topologySpreadConstraints"]:
            assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
            yield spread["labelSelector"]["matchLabels"]
        anti = template["spec"]["affinity"]["podAntiAffinity"]
        assert set(anti) == {"preferredDuringSchedulingIgnoredDuringExecution"}
        for term in anti["preferredDuringSchedulingIgnoredDuringExecution"]:
            yield term["podAffinityTerm"]["labelSelector"]["matchLabels"]


def test_every_deployment_has_budget_networkpolicy_and_serviceaccount(objects: list[Json]) -> None:
    for item in of_kind(objects, "Deployment"):
        name, spec = item["metadata"]["name"], item["spec"]
        assert spec["replicas"] == 2
        budget = find(objects, "PodDisruptionBudget", name)["spec"]
        assert budget["maxUnavailable"] == 1
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        policy = find(objects, "NetworkPolicy", name)
        assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
        assert spec["template"]["spec"]["serviceAccountName"] == name, "one account a program"
        account = find(objects, "ServiceAccount", name)
        assert account["automountServiceAccountToken"] is False


def test_networkpolicy_opens_ports_of_containers(objects: list[Json]) -> None:
    for item in of_kind(objects, "Deployment"):
        policy = find(objects, "NetworkPolicy", item["metadata"]["name"])["spec"]
        ports = {
            port["containerPort"]
            for container in item["spec"]["template"]["spec"]["containers"]
            for port in container["ports"]
            if port["name"] != REPORT_PORT_NAME  # it is on 127.0.0.1
        }
        opened = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
        assert sorted(opened) == sorted(ports)


def test_commands_are_programs_of_project(objects: list[Json]) -> None:
    for item in of_kind(objects, "Deployment"):
        (container,) = containers([item])
        assert container["image"] == OURS
        program, *rest = container["command"]
        assert program in PROJECT["scripts"]
        assert item["metadata"]["name"] == program
        assert rest == ["--config", "/etc/ebb/config.yaml"]


def test_webhook_container_matches_defaults() -> None:
    objects = render("")
    (container,) = containers([find(objects, "Deployment", "ebb-webhook")])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    flags = flags_of("webhook", container)
    assert ports == {
        "https": port_of(flags["--listen"]),
        "metrics": port_of(flags["--metrics-listen"]),
    }
    _check_probes_and_environment("webhook", container)
    (port,) = find(objects, "Service", names.SERVICE)["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, "https")


def test_controller_container_matches_defaults() -> None:
    (container,) = containers([find(render(""), "Deployment", "ebb-controller")])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    flags = flags_of("controller", container)
    metrics = port_of(flags["--metrics-listen"])
    assert ports == {"metrics": metrics, REPORT_PORT_NAME: flags["--report-port"]}
    _check_probes_and_environment("controller", container)


def _check_probes_and_environment(package: str, container: Json) -> None:
    probes = [container[probe]["httpGet"] for probe in ("readinessProbe", "livenessProbe")]
    assert probes == [{"path": path, "port": "metrics"} for path in ("/readyz", "/livez")]
    routes = make_bones(Health(), SystemClock(), Metrics()).router.resources()
    assert {"/readyz", "/livez"} <= {resource.canonical for resource in routes}
    source = (ROOT / package / "__main__.py").read_text("utf-8")
    for variable in container["env"]:
        assert f'"{variable["name"]}"' in source
        path = variable["name"].removeprefix("POD_").lower()
        assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.{path}"


def test_extender_container_matches_defaults() -> None:
    (container,) = (
        found for found in containers(render("extender")) if found["command"][0] == "ebb-extender"
    )
    (port,) = container["ports"]
    assert port == {
        "name": EXTENDER_PORT_NAME,
        "containerPort": port_of(flags_of("extender", container)["--listen"]),
        "protocol": "TCP",
    }
    routes = extender_routes()
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in routes
        assert container[probe]["httpGet"]["port"] == port["name"]
    (service,) = find(render("extender"), "Service", "ebb-extender")["spec"]["ports"]
    assert (service["port"], service["targetPort"]) == (8888, "prioritize")


def extender_routes() -> set[str]:
    app = make_extender(
        View(Config().extender, TAINT_KEY),
        SystemClock(),
        ExtenderMetrics(),
        Health(),
    )
    return {resource.canonical for resource in app.router.resources()}


def flags_of(package: str, container: Json) -> Mapping[str, Any]:
    """Return the value of each flag with which a container starts its program."""
    arguments = [*container["command"][1:], *container.get("args", ())]
    return program.parsed(package, "", arguments, flags_page.PROGRAMS[f"ebb-{package}"])


def port_of(listen: str) -> int:
    return int(listen.rpartition(":")[2])


def test_webhook_configuration_is_as_expected() -> None:
    (webhook,) = find(render(""), "MutatingWebhookConfiguration", names.REGISTRATION)["webhooks"]
    service = {
        "name": names.SERVICE,
        "namespace": NAMESPACE,
        "path": MUTATE_PATH,
        "port": 443,
    }
    assert webhook.pop("clientConfig") == {"service": service}  # without a caBundle
    assert webhook.pop("admissionReviewVersions") == [
        API_VERSION.removeprefix("admission.k8s.io/")
    ]
    assert webhook == {
        "name": "nodes.webhook.kube-ebb.io",
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["nodes"],
                "scope": "Cluster",
            }
        ],
        "objectSelector": {"matchExpressions": [{"key": MARK_LABEL, "operator": "Exists"}]},
        "matchConditions": [{"name": "not-a-kubelets-update", "expression": KUBELETS_PASS}],
        "matchPolicy": "Equivalent",
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": 2,
    }


def test_secret_is_shipped_empty() -> None:
    secret = find(render(""), "Secret", names.SECRET)
    assert secret["type"] == "Opaque"
    assert not {"data", "stringData"} & set(secret)


def test_configurations_are_valid_and_observe_by_default(
    objects: list[Json], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    maps = [
        item
        for item in of_kind(objects, "ConfigMap")
        if "data" in item and item["metadata"]["name"] != "ebb-dashboard"
    ]
    found = [item["data"]["config.yaml"] for item in maps]
    assert found
    for text in found:
        path = tmp_path_factory.mktemp("config") / "config.yaml"
        path.write_text(text, "utf-8")
        mode = files.read_config(str(path)).mode
        assert mode is Mode.OBSERVE or "self-managed" in request.node.name


def test_configured_files_are_mounted(objects: list[Json]) -> None:
    for template in templates(objects):
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        for container in template["spec"]["containers"]:
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            config = volumes[mounts["/etc/ebb"]]["configMap"]["name"]
            data = find(objects, "ConfigMap", config)["data"]
            assert container["command"][-1].removeprefix("--config=").rpartition("/")[2] in data
            part = container["command"][0].removeprefix("ebb-")
            for line in data["config.yaml"].partition(f"\n{part}:")[2].splitlines():
                name, _, path = line.strip().partition(": ")
                if name.endswith("File"):
                    assert path.rpartition("/")[0] in mounts
