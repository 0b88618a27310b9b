"""Objects as large as those of real clusters are read completely."""

import msgspec
import orjson

from core.model.constraints import Requirement
from kube.decode.kinds import BUDGETS, NODES, PODS
from tests.support.kube_json import NODE, POD, changed

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def test_node_is_read_when_it_has_250_labels_of_node_feature_discovery() -> None:
    features = {
        f"feature.node.kubernetes.io/cpu-cpuid.{'AVX512VPOPCNTDQ'}{number}": "true"
        for number in range(250)
    }
    found = NODES.decode(changed(NODE, metadata__labels={"zone": "a", **features}))
    assert found.labels == {"zone": "a", **features}
    assert not found.unreadable


def test_pod_is_read_when_its_affinity_has_300_hostnames() -> None:
    names = [f"ip-10-{n}-200-200.ap-southeast-1.compute.internal.{'x' * 8}" for n in range(300)]
    expression = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": names}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    found = PODS.decode(changed(POD, spec__affinity={"nodeAffinity": {REQUIRED: terms}}))
    assert found is not None
    assert found.evaluable
    assert found.node_constraints.affinity is not None
    assert found.node_constraints.affinity[0].labels[0].values == tuple(sorted(names))


def test_budget_is_read_when_its_selector_has_500_values() -> None:
    values = [f"{number:05}-{'x' * 57}" for number in range(500)]
    expression = {"key": "app", "operator": "In", "values": values}
    found = BUDGETS.decode(
        orjson.dumps(
            {
                "metadata": {"name": "b", "namespace": "d"},
                "spec": {"selector": {"matchExpressions": [expression]}},
            }
        )
    )
    assert found.selector.requirements == (Requirement("app", "In", tuple(values)),)
    assert not found.too_much


def test_pod_is_read_when_it_has_a_megabyte_of_scripts_and_settings() -> None:
    settings = [{"name": f"S{number}", "value": '{"a": {}}'} for number in range(10_000)]
    container = {"name": "main", "args": ["x" * 500_000], "env": settings}
    found = PODS.model_or_placeholder(msgspec.Raw(changed(POD, spec__containers=[container])))
    assert found is not None
    assert found.evaluable
