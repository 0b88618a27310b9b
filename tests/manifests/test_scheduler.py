import re

import pytest
import yaml

from core.model.schedulers import KNOWN
from extender.formulas import SCORE_MARKED_SOFT_MAX, SCORE_MAX
from extender.scores import ANY_POD, SCORES
from tests.manifests.kustomize import MANIFESTS, ROOT, Json, containers, documents, find, render
from tests.manifests.test_objects import extender_routes
from tests.support.builders import node
from webhook import names

FILE = MANIFESTS / "scheduler" / "kube-scheduler-config.yaml"
EXTENDER_SCORE_MAX = 10
RESOURCES = ("cpu", "memory")
NODE_SCORE_MAX = 100
DEFAULT_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
"""kube-scheduler's score plugins; each gives 0 to 100 points times its weight."""
DEVICES_WEIGHT = 2
"""DynamicResources, for pods whose claim lists alternatives; by default from 1.36 on."""


def second() -> Json:
    data = find(render("second-scheduler"), "ConfigMap", "ebb-scheduler-config")["data"]
    found: Json = yaml.safe_load(data["scheduler.yaml"])
    return found


def stanzas() -> tuple[Json, Json]:
    (config,) = documents(FILE)
    (own,), (beside,) = config["extenders"], second()["extenders"]
    return own, beside


def test_both_schedulers_ask_in_the_same_way() -> None:
    own, beside = stanzas()
    assert own.pop("urlPrefix") == f"http://{_service()['clusterIP']}:8888"
    assert beside.pop("urlPrefix") == "http://127.0.0.1:8888"
    assert own == beside
    assert own == {
        "prioritizeVerb": "prioritize",
        "weight": 100,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "200ms",
    }
    assert f"/{own['prioritizeVerb']}" in extender_routes()


def profiles() -> tuple[Json, Json]:
    (config,) = documents(FILE)
    (own,), (beside,) = config["profiles"], second()["profiles"]
    return own, beside


def test_both_schedulers_take_the_fuller_node_where_scores_are_equal() -> None:
    own, beside = profiles()
    assert own.pop("schedulerName") == "default-scheduler"
    assert beside.pop("schedulerName") == "ebb-scheduler"
    assert own == beside
    fit = {"type": "MostAllocated", "resources": [{"name": n, "weight": 1} for n in RESOURCES]}
    off = [{"name": "NodeResourcesBalancedAllocation"}]
    assert own == {
        "plugins": {"multiPoint": {"disabled": off}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": fit}}],
    }


@pytest.mark.parametrize("shipped", [True, False])
def test_a_mark_outweighs_all_preferences_together(*, shipped: bool) -> None:
    """With what we ship as with a profile that is kube-scheduler's own."""
    points = stanzas()[0]["weight"] * NODE_SCORE_MAX // EXTENDER_SCORE_MAX
    off = profiles()[0]["plugins"]["multiPoint"]["disabled"] if shipped else []
    weights = DEFAULT_WEIGHTS.keys() - {one["name"] for one in off}
    most = sum(DEFAULT_WEIGHTS[name] for name in weights)
    assert most == (11 if shipped else 12)
    preferences = NODE_SCORE_MAX * (most + DEVICES_WEIGHT)
    assert (SCORE_MAX - SCORE_MARKED_SOFT_MAX) * points > preferences
    # With `pack` the nearest unmarked node is an empty one, a step above the marked. The soft
    # taint speaks for it too: that plugin's points are on its side, at most the others' are not.
    taint = NODE_SCORE_MAX * DEFAULT_WEIGHTS["TaintToleration"]
    least = min(score().of(node("n"), ANY_POD) for score in SCORES.values())
    nearest = least - SCORE_MARKED_SOFT_MAX
    assert nearest * points + taint > preferences - taint


def _service() -> Json:
    found: Json = find(render("extender"), "Service", "ebb-extender")["spec"]
    return found


def test_the_stanza_with_tls_is_complete() -> None:
    commented = FILE.read_text("utf-8").partition("# - urlPrefix")[2]
    text = "- urlPrefix" + commented.replace("\n# ", "\n").replace("#     #", "#")
    (stanza,) = yaml.safe_load(text)
    assert stanza["urlPrefix"] == f"https://{_service()['clusterIP']}:8888"
    assert stanza["enableHTTPS"] is True
    tls = stanza["tlsConfig"]
    assert tls["serverName"] == f"ebb-extender.{names.NAMESPACE}.svc"
    assert {"caFile", "certFile", "keyFile"} < set(tls)
    assert "insecure" not in tls


def test_the_second_scheduler_has_a_name_and_a_lease_of_its_own() -> None:
    config = second()
    assert [one["schedulerName"] for one in config["profiles"]] == ["ebb-scheduler"]
    assert "ebb-scheduler" in KNOWN, "its pods can be judged as those of the cluster's own"
    assert config["leaderElection"] == {
        "leaderElect": True,
        "resourceName": "ebb-scheduler",
    }
    deployment = find(render("second-scheduler"), "Deployment", "ebb-scheduler")
    scheduler, _ = containers([deployment])
    assert "--leader-elect-resource-namespace=$(POD_NAMESPACE)" in scheduler["command"]
    own = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert scheduler["env"] == [{"name": "POD_NAMESPACE", "valueFrom": own}]
    assert config["apiVersion"] == documents(FILE)[0]["apiVersion"]


def test_the_document_shows_the_same_profile_and_stanza() -> None:
    text = (ROOT / "docs" / "how-it-works.md").read_text("utf-8")
    found = re.search(r"```yaml\n(profiles:\n.*?)```", text, re.DOTALL)
    assert found
    shown = yaml.safe_load(found[1])
    assert shown == {"profiles": [profiles()[0]], "extenders": [stanzas()[0]]}
