import pytest
import yaml

from core.config.document import parse
from kube.target import NAMESPACE
from tests.manifests.kustomize import Json, find, of_kind, render, templates, with_components
from webhook import names

PARSED = "config.yaml"


def certificate(name: str) -> Json:
    found: Json = find(render("cert-manager"), "Certificate", name)["spec"]
    return found


def test_certificate_has_names_of_webhook_service() -> None:
    own = names.server_names(NAMESPACE)
    assert certificate("ebb-webhook")["dnsNames"] == [
        n for n in own if n.startswith(names.SERVICE)
    ]


def test_certificate_is_mounted_at_configured_path() -> None:
    objects = render("cert-manager")
    text = find(objects, "ConfigMap", "ebb-config")["data"][PARSED]
    config = parse(yaml.safe_load(text), PARSED).webhook
    (template,) = templates([find(objects, "Deployment", "ebb-webhook")])
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    mounts = template["spec"]["containers"][0]["volumeMounts"]
    (mount,) = (found for found in mounts if found["name"] == "tls")
    assert volumes["tls"]["secret"]["secretName"] == certificate("ebb-webhook")["secretName"]
    assert config.cert_dir == mount["mountPath"]


def test_webhook_configuration_trusts_ca_of_certificate() -> None:
    objects = render("cert-manager")
    webhook = find(objects, "MutatingWebhookConfiguration", names.REGISTRATION)
    source = webhook["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert source == f"{NAMESPACE}/ebb-webhook"
    leaf, ca = certificate("ebb-webhook"), certificate("ebb-ca")
    assert leaf["issuerRef"]["name"] == "ebb-ca"
    assert ca["isCA"]
    issuer = find(objects, "Issuer", "ebb-ca")
    assert issuer["spec"]["ca"]["secretName"] == ca["secretName"]
    find(objects, "Issuer", ca["issuerRef"]["name"])


def test_secret_of_webhook_is_removed() -> None:
    assert of_kind(render("cert-manager"), "Secret") == []


def test_component_changes_only_configuration_and_webhook() -> None:
    before, after = render(""), render("cert-manager")
    changed = {one["metadata"]["name"] for one in (*before, *after)
               if one not in before or one not in after}  # fmt: skip
    of_webhook = {
        one["metadata"]["name"]
        for one in (*before, *after)
        if one["metadata"]["labels"]["app.kubernetes.io/component"] == "webhook"
    }
    assert changed <= of_webhook | {"ebb-config"}


@pytest.mark.parametrize("first", ["cert-manager", "admission-policy"])
def test_components_can_be_combined_in_any_order(first: str) -> None:
    """Only unused certificates may remain."""
    (second,) = {"cert-manager", "admission-policy"} - {first}
    objects = with_components(first, second)
    assert len(of_kind(objects, "MutatingAdmissionPolicy")) == 1
    left = {
        one["kind"]
        for one in objects
        if one["metadata"]["labels"]["app.kubernetes.io/component"] == "webhook"
    }
    assert left == (set() if first == "cert-manager" else {"Certificate", "Issuer"})
