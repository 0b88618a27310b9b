import re

import pytest
import yaml

from extender.formulas import SCORE_MARKED_PREFER_NO_SCHEDULE_MAX, SCORE_MAX
from extender.scores import ANY_POD, SCORES
from kube.target import NAMESPACE
from tests.manifests.kustomize import MANIFESTS, ROOT, Json, documents, find, render
from tests.manifests.test_objects import extender_routes
from tests.support.builders import node

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
"""Weights of kube-scheduler's score plugins; each plugin scores 0 to 100 times its weight."""
DEVICES_WEIGHT = 2
"""Weight of DynamicResources, enabled from 1.36 on, for claims with alternatives."""


def stanza() -> Json:
    (config,) = documents(FILE)
    (found,) = config["extenders"]
    return dict(found)


def test_stanza_calls_service_of_extender() -> None:
    own = stanza()
    assert own == {
        "urlPrefix": f"http://{_service()['clusterIP']}:8888",
        "prioritizeVerb": "prioritize",
        "weight": 100,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "200ms",
    }
    assert f"/{own['prioritizeVerb']}" in extender_routes()


def profile() -> Json:
    (config,) = documents(FILE)
    (found,) = config["profiles"]
    return dict(found)


def test_profile_prefers_fuller_node() -> None:
    fit = {"type": "MostAllocated", "resources": [{"name": n, "weight": 1} for n in RESOURCES]}
    off = [{"name": "NodeResourcesBalancedAllocation"}]
    assert profile() == {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"disabled": off}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": fit}}],
    }


@pytest.mark.parametrize("shipped", [True, False])
def test_mark_outweighs_all_score_plugins_together(*, shipped: bool) -> None:
    """The test covers the shipped profile and kube-scheduler's default profile."""
    points = stanza()["weight"] * NODE_SCORE_MAX // EXTENDER_SCORE_MAX
    off = profile()["plugins"]["multiPoint"]["disabled"] if shipped else []
    weights = DEFAULT_WEIGHTS.keys() - {one["name"] for one in off}
    most = sum(DEFAULT_WEIGHTS[name] for name in weights)
    assert most == (11 if shipped else 12)
    preferences = NODE_SCORE_MAX * (most + DEVICES_WEIGHT)
    assert (SCORE_MAX - SCORE_MARKED_PREFER_NO_SCHEDULE_MAX) * points > preferences
    # With `pack`, an empty node scores only one step above marked nodes. The PreferNoSchedule
    # taint of the marked node adds the points of TaintToleration to the empty node.
    taint = NODE_SCORE_MAX * DEFAULT_WEIGHTS["TaintToleration"]
    least = min(score().of(node("n"), ANY_POD) for score in SCORES.values())
    nearest = least - SCORE_MARKED_PREFER_NO_SCHEDULE_MAX
    assert nearest * points + taint > preferences - taint


def _service() -> Json:
    found: Json = find(render("extender"), "Service", "ebb-extender")["spec"]
    return found


def test_stanza_with_tls_is_complete() -> None:
    commented = FILE.read_text("utf-8").partition("# - urlPrefix")[2]
    text = "- urlPrefix" + commented.replace("\n# ", "\n").replace("#     #", "#")
    (found,) = yaml.safe_load(text)
    assert found["urlPrefix"] == f"https://{_service()['clusterIP']}:8888"
    assert found["enableHTTPS"] is True
    tls = found["tlsConfig"]
    assert tls["serverName"] == f"ebb-extender.{NAMESPACE}.svc"
    assert {"caFile", "certFile", "keyFile"} < set(tls)
    assert "insecure" not in tls


def test_documentation_shows_same_profile_and_stanza() -> None:
    text = (ROOT / "docs" / "design" / "scores.md").read_text("utf-8")
    found = re.search(r"```yaml\n(profiles:\n.*?)```", text, re.DOTALL)
    assert found
    shown = yaml.safe_load(found[1])
    assert shown == {"profiles": [profile()], "extenders": [stanza()]}
