"""`ebb migrate` with the settings of estafette's node compactor."""

import json
from typing import Any

import pytest
import yaml

from tests.support.migrating import fault, made

LIMIT, REQUIRED = "scaleDownCPURequestRatioLimit", "scaleDownRequiredUnderutilizedNodeCount"
DATA_KEY = "estafette-k8s-node-compactor-config.yaml"
POOLS = {
    "nodepool1": {"enabled": True, LIMIT: 0.75, REQUIRED: 5},
    "nodepool2": {"enabled": True, LIMIT: 0.6, REQUIRED: 3},
}
"""The pools that the compactor's README documents."""


def config_map(data: str) -> str:
    named = {"name": "estafette-k8s-node-compactor", "namespace": "estafette"}
    return yaml.safe_dump({"kind": "ConfigMap", "metadata": named, "data": {DATA_KEY: data}})


def deployment(**environment: str) -> str:
    env = [{"name": name, "value": value} for name, value in environment.items()]
    spec = {"containers": [{"name": "estafette-k8s-node-compactor", "env": env}]}
    return yaml.safe_dump({"kind": "Deployment", "spec": {"template": {"spec": spec}}})


def pool(**fields: object) -> str:
    return json.dumps({"nodePools": {"a": fields}})


def on(limit: float, required: int) -> dict[str, Any]:
    return {"enabled": True, LIMIT: limit, REQUIRED: required}


def pools_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = made(text)[0]["underutilizedCount"]["pools"]
    return found


@pytest.mark.parametrize("indent", [None, 4, "\t"])
def test_documented_pools_are_converted_from_json_and_configmap(indent: int | str | None) -> None:
    text = json.dumps({"nodePools": POOLS}, indent=indent)
    fields, comments = made(text)
    assert fields == {
        "mode": "observe",
        "policy": "UnderutilizedCount",
        "underutilizedCount": {
            "pools": {
                "nodepool1": {"enabled": True, "limit": "75%", "required": 5},
                "nodepool2": {"enabled": True, "limit": "60%", "required": 3},
            }
        },
    }
    assert "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS" in comments
    assert made(config_map(text)) == (fields, comments)


def test_durations_are_read_from_environment_of_deployment() -> None:
    times = {
        "MINIMUM_NODE_AGE_SECONDS": "0",
        "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS": "600",
        "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS": "60",
        "ESTAFETTE_LOG_FORMAT": "json",
    }
    text = config_map(json.dumps({"nodePools": POOLS})) + "---\n" + deployment(**times)
    fields, comments = made(text)
    assert (fields["unneededTime"], fields["controller"]) == ("10m", {"interval": "1m"})
    assert "# - MINIMUM_NODE_AGE_SECONDS=0: " in comments
    assert "# - unneededTime: " not in comments


def test_helm_values_are_converted() -> None:
    fields, comments = made(
        yaml.safe_dump(
            {
                "configmap": {"compactorConfig": json.dumps({"nodePools": POOLS})},
                "minimumNodeAgeSeconds": 0,
                "neededMarkedTimeForRemovalSeconds": 600,
                "sleepDurationBetweenIterationsSeconds": 90,
                "replicaCount": 1,
            }
        )
    )
    assert (fields["unneededTime"], fields["controller"]) == ("10m", {"interval": "1m30s"})
    assert fields["underutilizedCount"]["pools"].keys() == POOLS.keys()
    assert "# - MINIMUM_NODE_AGE_SECONDS=0: " in comments


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"enabled": False}),
        ({"enabled": False, LIMIT: 0, REQUIRED: 0}, {"enabled": False}),
        ({LIMIT: 0.6}, {"enabled": False, "limit": "60%"}),
        ({LIMIT: None, REQUIRED: 3}, {"enabled": False, "required": 3}),
        (on(1, 1), {"enabled": True, "limit": "100%", "required": 1}),
        (on(0.625, 3), {"enabled": True, "limit": "62.5%", "required": 3}),
        (on(1e-3, 100), {"enabled": True, "limit": "0.1%", "required": 100}),
    ],
)
def test_pool_is_converted(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert pools_of(pool(**fields)) == {"a": expected}


def test_mode_is_observe_when_no_pool_is_enabled() -> None:
    assert made(pool(**{LIMIT: 0.6}))[0]["mode"] == "observe"


def test_pool_with_empty_name_is_converted() -> None:
    text = json.dumps({"nodePools": {"": POOLS["nodepool1"], "on": {}}})
    assert pools_of(text).keys() == {"", "on"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (pool(enabled=True, **{REQUIRED: 5}), f"nodePools.a.{LIMIT}: missing; allowed: "),
        (pool(enabled=True, **{LIMIT: 0.75}), f"nodePools.a.{REQUIRED}: missing; allowed: "),
        (pool(enabled=True, **{LIMIT: 0, REQUIRED: 5}), f"nodePools.a.{LIMIT}: '0'; allowed: "),
        (pool(enabled=True, **{LIMIT: 75, REQUIRED: 5}), f"nodePools.a.{LIMIT}: '75'; allowed: "),
        (pool(enabled=True, **{LIMIT: 0.5, REQUIRED: 0}), f"nodePools.a.{REQUIRED}: '0'; "),
        (pool(**{LIMIT: "75%"}), f"nodePools.a.{LIMIT}: '75%'; allowed: "),
        (pool(enabled="yes"), "nodePools.a.enabled: 'yes'; allowed: true | false"),
        ('{"nodePools": {"a": 5}}', "nodePools.a: 5; allowed: a mapping"),
        ('{"nodePools": {"a b": {}}}', "converted configuration: underutilizedCount.pools."),
        (config_map("{"), f"data.{DATA_KEY}: {{: not JSON: "),
        (config_map("{}"), f"data.{DATA_KEY}: {{}}; allowed: a mapping with nodePools"),
        (config_map(""), f"data.{DATA_KEY}: "),
        (deployment(MINIMUM_NODE_AGE_SECONDS="0"), "nodePools: missing; allowed: "),
        (
            config_map(json.dumps({"nodePools": POOLS}))
            + "---\n"
            + deployment(NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS="10m"),
            "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS: '10m'; allowed: ",
        ),
    ],
)
def test_invalid_input_is_reported_in_one_line(text: str, told: str) -> None:
    assert fault(text).startswith(told)


def test_unknown_field_becomes_comment() -> None:
    text = json.dumps({"nodePools": {"a": {"enabeld": True}}, "other": [1]})
    comments = made(text)[1]
    assert "# - nodePools.a.enabeld=True: " in comments
    assert "# - other=['1']: " in comments
