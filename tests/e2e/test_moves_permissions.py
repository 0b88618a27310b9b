"""Surge moves on an API server that protects owner references, as OpenShift's does."""

import signal
from collections.abc import Iterator

import pytest
import yaml

from core.moves.reasons import OWNER_REFERENCES
from kube.target import NAMESPACE
from tests.e2e.api import Api, RefusedError
from tests.e2e.endpoints import never_below
from tests.e2e.install import CONTROLLER_ACCOUNT
from tests.e2e.moves import (
    NEW,
    App,
    begin,
    controllers,
    deploy,
    installed_for_moves,
    refused,
    settled,
    untouched,
)
from tests.e2e.objects import PODS
from tests.e2e.plane import ROOT, Plane, until

COMPONENT = ROOT / "manifests" / "components" / "surge-delete"
PLUGIN = "OwnerReferencesPermissionEnforcement"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Start a control plane of its own, whose API server has the admission plugin."""
    made = Plane(tmp_path_factory.mktemp("strict"), plugins=[PLUGIN])
    try:
        yield made.start()
    finally:
        made.stop()


def answer_to_delete(api: Api, name: str) -> str:
    """Return why the API server refuses a DELETE of a pod; "" if it does not. Nothing is deleted.

    A policy is in force a moment after it is created.
    """
    try:
        api.call("DELETE", f"{PODS}/{name}?dryRun=All")
    except RefusedError as fault:
        return str(fault)
    return ""


def test_pods_are_moved_only_with_permission_to_delete_which_a_policy_takes_back(
    strict: Plane,
) -> None:
    api = strict.api
    with installed_for_moves(strict), controllers(strict) as start:
        ours = strict.api_as(None, strict.token(NAMESPACE, CONTROLLER_ACCOUNT))
        deploy(api, App(start="0s"))
        (pod,) = api.get(PODS)["items"]
        name = pod["metadata"]["name"]
        with untouched(api, "web"), never_below(strict, {"web": 1}) as samples:
            leader = start().wait_ready()
            begin(api)
            until(lambda: refused(leader) == {OWNER_REFERENCES.code: 1}, "no pod may be moved")
            assert samples.detached == set()
            assert "cannot delete" in answer_to_delete(ours, name)
            for file in yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())[
                "resources"
            ]:
                strict.kubectl("apply", "-f", str(COMPONENT / file))
            until(lambda: "deletes no pods" in answer_to_delete(ours, name), "the policy is used")
            leader.stop(signal.SIGTERM)
            start()
            settled(api, {"web": 1}, NEW)
        assert samples.detached == {"web"}
        (pod,) = api.get(PODS)["items"]
        with pytest.raises(RefusedError, match="deletes no pods"):
            ours.call("DELETE", f"{PODS}/{pod['metadata']['name']}")
