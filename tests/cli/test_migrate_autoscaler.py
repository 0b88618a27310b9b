"""`ebb migrate` with the flags of Cluster Autoscaler, in every format that users have."""

import json
from typing import Any

import pytest
import yaml

from tests.support.migrating import fault, made

NONE = {"mode": "observe", "policy": "NodeUtilization"}
FLAGS = [
    "--v=4",
    "--cloud-provider=aws",
    "--skip-nodes-with-local-storage=false",
    "--expander=least-waste",
    "--scale-down-utilization-threshold=0.65",
    "--scale-down-unneeded-time=5m0s",
    "--scale-down-delay-after-add=15m",
    "--scan-interval=30s",
    "--max-scale-down-parallelism=3",
    "--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled",
]
EXPECTED = NONE | {
    "nodeUtilization": {"keepLocalStorage": False, "utilization": "65%"},
    "unneededTime": "5m",
    "cooldown": {"delayAfterAdd": "15m"},
    "controller": {"interval": "30s"},
}


def deployment(**container: object) -> dict[str, Any]:
    spec = {"containers": [{"name": "autoscaler", **container}]}
    return {
        "kind": "Deployment",
        "metadata": {"name": "cluster-autoscaler"},
        "spec": {"replicas": 1, "template": {"spec": spec}},
    }


PROGRAM = "./cluster-autoscaler"
SHELL = " ".join([PROGRAM, *FLAGS, "2>&1"])
PLACES = {
    "one line": " ".join(FLAGS),
    "a line each": "\n".join(["# flags", *FLAGS, ""]),
    "a command line": " \\\n  ".join(["/usr/bin/cluster-autoscaler", *FLAGS]) + "\n",
    "a list": yaml.safe_dump(FLAGS),
    "a list as JSON": json.dumps(FLAGS),
    "a container": yaml.safe_dump({"command": [PROGRAM, *FLAGS]}),
    "args": yaml.safe_dump(deployment(command=[PROGRAM], args=FLAGS)),
    "command, as JSON": json.dumps(deployment(command=[PROGRAM, *FLAGS])),
    "a pod": yaml.safe_dump({"kind": "Pod", "spec": {"containers": [{"command": FLAGS}]}}),
    "a shell": yaml.safe_dump(deployment(command=["/bin/sh", "-c", SHELL])),
    "beside others": yaml.safe_dump_all([{"kind": "ServiceAccount"}, deployment(args=FLAGS)]),
    "the chart": yaml.safe_dump(
        {
            "extraArgs": {
                "v": 4,
                "cloud-provider": "aws",
                "skip-nodes-with-local-storage": False,
                "expander": "least-waste",
                "scale-down-utilization-threshold": 0.65,
                "scale-down-unneeded-time": "5m",
                "scale-down-delay-after-add": "15m",
                "scan-interval": "30s",
                "max-scale-down-parallelism": 3,
                "node-group-auto-discovery": "asg",
            },
            "replicaCount": 2,
        }
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_flags_are_found_in_every_format(place: str) -> None:
    fields, comments = made(PLACES[place])
    assert fields == EXPECTED
    for flag in ("expander=least-waste", "max-scale-down-parallelism=3", "cloud-provider=aws"):
        assert f"# - {flag}: " in comments
    assert "# - node-group-auto-discovery=asg" in comments
    assert "minimum size of node groups" in comments
    assert "scale-up" in comments


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--scale-down-utilization-threshold 0.5", {"nodeUtilization": {"utilization": "50%"}}),
        ("--scale-down-utilization-threshold=.5", {"nodeUtilization": {"utilization": "50%"}}),
        ("--scale-down-utilization-threshold=1", {"nodeUtilization": {"utilization": "100%"}}),
        ("-scale_down_unneeded_time=1h", {"unneededTime": "1h"}),
        ("--scale-down-unneeded-time=1.5h", {"unneededTime": "1h30m"}),
        ("--scale-down-unneeded-time=0", {"unneededTime": "0s"}),
        ("--scan-interval=10s --scan-interval=1m", {"controller": {"interval": "1m"}}),
        ("--scale-down-enabled=false", {"mode": "observe"}),
        ("--scale-down-enabled", {"mode": "observe"}),
        ("--skip-nodes-with-system-pods=false", {"nodeUtilization": {"keepSystem": False}}),
        ("--skip-nodes-with-system-pods --v=1", {"nodeUtilization": {"keepSystem": True}}),
        ("--skip-nodes-with-local-storage=F", {"nodeUtilization": {"keepLocalStorage": False}}),
    ],
)
def test_flag_is_converted(flags: str, expected: dict[str, Any]) -> None:
    assert made(flags)[0] == NONE | expected


def test_threshold_0_is_converted_to_mode_observe() -> None:
    fields, comments = made("--scale-down-utilization-threshold=0 --scale-down-enabled=true")
    assert fields == NONE | {"mode": "observe"}
    assert "# - scale-down-utilization-threshold=0: with 0 only nodes without requests" in comments


CUSTOM = "skip-nodes-with-custom-controller-pods"


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        (
            f"{CUSTOM}=false",
            "whether pods of unknown controllers block the removal of their node; ",
        ),
        (
            "min-replica-count=2",
            "whether pods of small ReplicaSets block the removal of their node; ",
        ),
        (
            "blocking-system-pod-distruption-timeout=1h",
            "how long pods of kube-system block the removal of their node; ",
        ),
        ("expendable-pods-priority-cutoff=-5", "the autoscaler ignores pods of lower priority; "),
    ],
)
def test_flag_that_blocks_removal_of_nodes_becomes_comment(flag: str, told: str) -> None:
    assert f"# - {flag}: {told}in Ebb " in made(f"--{flag}")[1]


def test_flag_on_by_default_becomes_one_comment() -> None:
    told = "whether pods of unknown controllers block the removal of their node; in Ebb"
    assert f"# - {CUSTOM}, on by default: {told} " in made("--scan-interval=10s")[1]
    for value in ("true", "false"):
        assert made(f"--{CUSTOM}={value}")[1].count(CUSTOM) == 1


def test_argument_that_is_no_known_flag_becomes_comment() -> None:
    comments = made("cluster-autoscaler run --scan-interval=10s 2>&1 --new-one x --v")[1]
    assert "# - 2>&1: " in comments
    assert "# - new-one=x: " in comments
    assert "# - v=true: " in comments


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("--scale-down-utilization-threshold=50%", "scale-down-utilization-threshold: '50%'; "),
        ("--scale-down-utilization-threshold=1.1", "scale-down-utilization-threshold: '1.1'; "),
        ("--scale-down-utilization-threshold=-1", "scale-down-utilization-threshold: '-1'; "),
        ("--scale-down-utilization-threshold=$(T)", "scale-down-utilization-threshold: '$(T)'; "),
        ("--scale-down-unneeded-time=10", "scale-down-unneeded-time: '10'; allowed: a duration"),
        ("--scale-down-unneeded-time", "scale-down-unneeded-time: 'true'; allowed: a duration"),
        ("--scale-down-delay-after-add=-5m", "scale-down-delay-after-add: '-5m'; allowed: "),
        ("--scan-interval=0s", "scan-interval: '0s'; allowed: "),
        ("--scan-interval=500ms", "scan-interval: '500ms'; allowed: "),
        ("--scale-down-enabled=maybe", "scale-down-enabled: 'maybe'; allowed: true | false"),
        ("--scan-interval='10s", "not a command line: "),
        ("--port=80 --name=x", "holds no settings of "),
        (yaml.safe_dump(deployment(args=["-c", "x"])), "holds no settings of "),
        (yaml.safe_dump({"extraArgs": {"scan-interval": {}}}), "scan-interval: {}; allowed: "),
        (
            yaml.safe_dump_all([deployment(args=FLAGS), deployment(args=FLAGS)]),
            "cloud-provider: set by several objects of the file",
        ),
        (
            yaml.safe_dump_all([deployment(args=FLAGS), {"time_gap": "10"}]),
            "holds settings of Node Refiner and of Cluster Autoscaler",
        ),
    ],
)
def test_invalid_input_is_reported_in_one_line(text: str, told: str) -> None:
    assert fault(text).startswith(told)
