"""docs/install.md and docs/install-reference.md agree with manifests/ and with the code."""

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from controller.names import LEASE
from core.config.document import parse
from core.config.settings import Config, Mode
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    DETAILS_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    MOVE_ANNOTATION,
    PROTECTION_ANNOTATION,
    PROTECTION_KEYS,
    RESERVE_ANNOTATION,
    TAINT_KEY,
)
from core.model.pod import DETACHED_LABEL
from kube.target import NAMESPACE
from serving.tls_contexts import CERTIFICATE_FILE, KEY_FILE
from tests.manifests.kustomize import (
    COMPONENTS,
    ROOT,
    Json,
    containers,
    documents,
    find,
    of_kind,
    render,
)
from tests.manifests.test_objects import EVERYTHING
from tests.support.pages import console
from webhook import names
from webhook.certs import ROTATE_ANNOTATION

TEXT = "".join(
    (ROOT / "docs" / name).read_text("utf-8") for name in ("install.md", "install-reference.md")
)
BLOCKS = [
    yaml.safe_load(block)
    for block in re.findall(r"^ *```yaml\n(.*?)^ *```", TEXT, re.DOTALL | re.MULTILINE)
]
LEFT_OBJECTS = console("docs/install-reference.md", "# cert-manager, added")
SCHEDULER = ROOT / "manifests" / "scheduler" / "kube-scheduler-config.yaml"


def block(kind: str, having: str = "kind") -> Json:
    (found,) = (one for one in BLOCKS if one["kind"] == kind and having in one)
    return dict(found)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"(?<![\w/])manifests/[\w./-]+", TEXT))))
def test_paths_on_page_exist(path: str) -> None:
    assert (ROOT / path.rstrip(".")).exists()


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_log_command_selects_controller_and_works_with_older_kubectl(page: str) -> None:
    """`--all-pods` needs kubectl 1.31; the page requires 1.30."""
    text = (ROOT / page).read_text()
    (selector,) = re.findall(r"kubectl -n ebb-system logs -l (\S+) --prefix --tail=-1", text)
    assert "--all-pods" not in text
    key, _, value = selector.partition("=")
    deployments = of_kind(render(""), "Deployment")
    templates = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in deployments
    }
    assert [name for name, own in templates.items() if own.get(key) == value] == ["ebb-controller"]


@pytest.mark.parametrize(
    "path",
    sorted(
        {
            path
            for overlay in BLOCKS
            if overlay["kind"] == "Kustomization"
            for path in (*overlay["resources"], *overlay["components"])
        }
    ),
)
def test_overlays_on_page_name_existing_folders(path: str) -> None:
    assert (ROOT / path.removeprefix("../ebb/") / "kustomization.yaml").is_file()


def test_overlay_on_page_patches_existing_objects() -> None:
    overlay = block("Kustomization", having="patches")
    (image,) = overlay["images"]
    assert image["name"] in {one["image"].partition(":")[0] for one in containers(render(""))}
    (patch,) = overlay["patches"]
    change = yaml.safe_load(patch["patch"])
    metadata = change["metadata"]
    shipped = find(render(""), "ConfigMap", metadata["name"], metadata["namespace"])
    assert set(change["data"]) == set(shipped["data"])
    found = parse(yaml.safe_load(change["data"]["config.yaml"]), "docs/install-reference.md")
    assert found == Config(mode=Mode.ENFORCE), "what it shows beside the mode are the defaults"


FOLLOWED = r"(metadata|subjects\.\d+|webhooks\.\d+\.clientConfig\.service)\.namespace"
"""Paths in which kustomize itself sets the namespace of an overlay."""


def naming(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths, as kustomize writes them, of all texts that contain the namespace."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from naming(one, f"{path}.[{key}]" if "." in key else f"{path}.{key}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from naming(one, f"{path}.{number}")
    elif NAMESPACE in str(value):
        yield path.removeprefix(".")


@pytest.mark.parametrize("shipped", EVERYTHING)
def test_overlay_on_page_replaces_namespace_everywhere(shipped: str) -> None:
    replaced = {
        (target["select"]["kind"], target["select"]["name"], path)
        for one in block("Kustomization", having="namespace")["replacements"]
        for target in one["targets"]
        for path in target["fieldPaths"]
    }
    left = {
        (one["kind"], one["metadata"]["name"], path)
        for one in render(shipped)
        for path in naming(one)
        if one["kind"] != "Namespace" and not re.fullmatch(FOLLOWED, path)
    }
    assert left == (replaced if shipped == "cert-manager" else set())


def test_page_shows_configuration_of_cert_manager_component() -> None:
    data = find(render("cert-manager"), "ConfigMap", "ebb-config")["data"]
    assert block("EbbConfiguration") == yaml.safe_load(data["config.yaml"])


def test_kubeadm_configuration_mounts_files_of_scheduler() -> None:
    scheduler = block("ClusterConfiguration")["scheduler"]
    (volume,) = scheduler["extraVolumes"]
    assert volume["mountPath"] == volume["hostPath"]
    assert volume["readOnly"] is True
    (flag,) = scheduler["extraArgs"]
    assert flag["name"] == "config"
    assert flag["value"] == f"{volume['mountPath']}/{SCHEDULER.name}"
    assert f"--config={flag['value']}" in TEXT
    files = re.findall(r"(?:caFile|certFile|keyFile): (\S+)", SCHEDULER.read_text("utf-8"))
    assert {path.rpartition("/")[0] for path in files} == {volume["mountPath"]}
    for path in files:
        assert f"`{path.rpartition('/')[2]}`" in TEXT


def test_kubeadm_commands_update_configmap_that_upgrades_read() -> None:
    """Upgrades of kubeadm read the ConfigMap, and not a file on a node."""
    stored = "configmap kubeadm-config -o jsonpath='{.data.ClusterConfiguration}'"
    commands = re.findall(r"^ +((?:kubectl|kubeadm) .*kubeadm\.yaml)$", TEXT, re.MULTILINE)
    assert commands == [
        f"kubectl -n kube-system get {stored} > kubeadm.yaml",
        "kubeadm init phase upload-config kubeadm --config kubeadm.yaml",
        "kubeadm init phase control-plane scheduler --config kubeadm.yaml",
    ]


def test_object_names_on_page_exist() -> None:
    extender = find(render("extender"), "Service", "ebb-extender")
    assert f"`{extender['spec']['clusterIP']}`" in TEXT
    assert f"DNS:ebb-extender.{NAMESPACE}.svc" in TEXT
    for kind, name in re.findall(r"\b(deployment|secret|lease)[ /](ebb-[\w-]+)", TEXT):
        known = {LEASE, names.SECRET, *(one for made in MADE.values() for *_, one in made)}
        known |= {one["metadata"]["name"] for one in of_kind(render("extender"), "Deployment")}
        assert name in known, (kind, name)
    assert f"mutatingwebhookconfiguration {names.REGISTRATION}" in TEXT


def test_tls_secret_command_has_files_of_example() -> None:
    (text,) = (
        one["data"]["config.yaml"]
        for one in of_kind(render("self-managed"), "ConfigMap")
        if one["metadata"]["name"] == "ebb-config"
    )
    files = parse(yaml.safe_load(text), "self-managed").extender
    assert files.client_ca_file
    folder, _, client_ca = files.client_ca_file.rpartition("/")
    assert files.cert_dir == folder
    for name in (CERTIFICATE_FILE, KEY_FILE, client_ca):
        assert f"--from-file={name}" in TEXT
    volumes = of_kind(render("extender"), "Deployment")[-1]["spec"]["template"]["spec"]["volumes"]
    assert "ebb-extender-tls" in {one.get("secret", {}).get("secretName") for one in volumes}
    assert "secret generic ebb-extender-tls" in TEXT


def test_manual_removal_lists_every_key_on_nodes_and_pods() -> None:
    by_hand = TEXT.rpartition("```console")[2]
    for key in (MARK_LABEL, TAINT_KEY, DETAILS_ANNOTATION, *PROTECTION_KEYS, PROTECTION_ANNOTATION,
                RESERVE_ANNOTATION, BACKOFF_ANNOTATION, COST_ANNOTATION, COST_OURS_ANNOTATION,
                MOVE_ANNOTATION, DETACHED_LABEL):  # fmt: skip
        assert f"{key}-" in by_hand, key
    assert f"{ROTATE_ANNOTATION}=" in TEXT
    assert f"{KEEP_ANNOTATION}=true" in TEXT


def test_table_of_ports_matches_networkpolicies() -> None:
    found = re.findall(r"^\| `(ebb-\w+)` \| (\d+) \| (everybody|pods)\b", TEXT, re.MULTILINE)
    opened = {
        (policy["metadata"]["name"], str(port["port"]), "pods" if "from" in rule else "everybody")
        for policy in of_kind(render("extender"), "NetworkPolicy")
        for rule in policy["spec"]["ingress"]
        for port in rule["ports"]
    }
    assert set(found) == opened
    assert {
        str(port["port"])
        for policy in of_kind(render("extender"), "NetworkPolicy")
        for rule in policy["spec"]["egress"]
        for port in rule["ports"]
    } == {"53", "443", "6443"}
    assert "port 53" in TEXT
    assert "443 and 6443" in TEXT


def test_section_on_managed_clusters_matches_example() -> None:
    text = TEXT.partition("\n## Managed clusters")[2].partition("\n## ")[0]
    (example,) = documents(ROOT / "manifests" / "examples" / "managed" / "kustomization.yaml")
    components = {path.rpartition("/")[2] for path in example["components"]}
    assert set(re.findall(r"`([\w-]+)`", text)) >= components
    config = find(render("managed"), "ConfigMap", "ebb-config")["data"]["config.yaml"]
    for setting in re.findall(r"`(\w+: \{.*?\})`", text):
        assert setting in config
    found = parse(yaml.safe_load(config), "managed")
    assert found.surges, "surge moves and the deletion costs that they need are enabled"
    assert of_kind(render("managed"), "Service") == of_kind(render(""), "Service"), "no extender"


Object = tuple[str, str, str]
"""Kind in lower case, namespace (empty: none), name."""


def objects_of(objects: list[Json]) -> set[Object]:
    return {
        (one["kind"].lower(), one["metadata"].get("namespace", ""), one["metadata"]["name"])
        for one in objects
    }


def deleted(component: str, when: str) -> set[Object]:
    """Return the objects that the commands below this comment delete."""
    pattern = rf"^# {component}, {when}\b.*\n((?:kubectl .*\n)+)"
    found = re.search(pattern, LEFT_OBJECTS.commands, re.MULTILINE)
    asked = re.findall(r"kubectl (?:-n (\S+) )?delete (\S+) (.+)", found[1] if found else "")
    return {
        (kind, namespace, name)
        for namespace, kinds, listed in asked
        for kind in kinds.split(",")
        for name in listed.split()
    }


MADE = {
    "cert-manager": {
        ("secret", NAMESPACE, one["spec"]["secretName"])
        for one in of_kind(render("cert-manager"), "Certificate")
    },
}
"""Objects that other controllers create for a component."""


@pytest.mark.parametrize("component", COMPONENTS)
def test_page_deletes_exactly_objects_that_apply_leaves(component: str) -> None:
    base, whole = objects_of(render("")), objects_of(render(component))
    assert deleted(component, "added") == base - whole
    assert deleted(component, "taken out") == (whole - base) | MADE.get(component, set())


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_component_refers_to_install_page(component: str) -> None:
    path = ROOT / "manifests" / "components" / component / "kustomization.yaml"
    assert "docs/install-reference.md" in path.read_text("utf-8").partition("\napiVersion:")[0]


@pytest.mark.parametrize("component", COMPONENTS)
def test_uninstall_commands_delete_every_object_outside_of_namespace(component: str) -> None:
    steps = TEXT.partition("## Uninstalling")[2]
    asked = re.findall(r"kubectl delete (\S+) (?:-A )?-l (\S+)", steps)
    for one in render(component):
        kind, metadata = one["kind"].lower(), one["metadata"]
        if kind == "namespace" or metadata.get("namespace") == NAMESPACE:
            continue
        labels = {f"{key}={value}" for key, value in metadata["labels"].items()}
        assert any(
            kind in kinds.split(",") and labels.issuperset(selected.split(","))
            for kinds, selected in asked
        ), (kind, metadata["name"])


def needed(folder: str) -> str:
    """Return the Kubernetes version that a kustomization requires."""
    head = (ROOT / "manifests" / folder / "kustomization.yaml").read_text("utf-8")
    (found,) = re.findall(r"Kubernetes (1\.\d+) or newer", head)
    return str(found)


def test_required_kubernetes_version_matches_manifests() -> None:
    assert f"Kubernetes {needed('')} or newer" in TEXT
    component = "admission-policy"
    assert f"`{component}` needs {needed(f'components/{component}')}" in TEXT


def test_statements_about_extender_stanza_match_file() -> None:
    (config,) = documents(SCHEDULER)
    (stanza,) = config["extenders"]
    assert f"`httpTimeout: {stanza['httpTimeout']}`" in TEXT
    assert stanza["ignorable"] is True
    assert "`ignorable: true`" in TEXT


ON_NODES = (
    f"    {MARK_LABEL}: PreferNoSchedule",
    f"    {DETAILS_ANNOTATION}: '{{}}'",
    f"    {PROTECTION_ANNOTATION}: marked",
    f"    {RESERVE_ANNOTATION}: for one pod",
    f"    {BACKOFF_ANNOTATION}: 1 1795386362",
    f"      key: {TAINT_KEY}",
)
ON_PODS = (f'    {COST_OURS_ANNOTATION}: "-5"',)
THEIRS = (
    f'    {KEEP_ANNOTATION}: "true"',
    *(f'    {key}: "true"' for key in PROTECTION_KEYS),
    f'    {COST_ANNOTATION}: "-5"',
    "    kubernetes.io/hostname: kube-ebb.example",
)


def test_last_check_of_uninstallation_finds_only_keys_of_ebb() -> None:
    asked = re.findall(
        r"^ *kubectl get (nodes|pods -A .*phase!=\S+) -o yaml \| (grep -\w .*)$",
        TEXT,
        re.MULTILINE,
    )
    (_, of_nodes), (_, of_pods) = asked
    tolerated = f"    - key: {TAINT_KEY}"
    for command, ours, theirs in (
        (of_nodes, ON_NODES, THEIRS),
        (of_pods, ON_PODS, (*THEIRS, tolerated)),
    ):
        lines = "\n".join((*ours, *theirs))
        found = subprocess.run(
            command, shell=True, input=lines, capture_output=True, text=True, check=False
        )
        assert found.stdout.splitlines() == [*ours]
