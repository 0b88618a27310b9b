"""PodDisruptionBudgets whose selectors are too large to evaluate."""

from typing import Any

import orjson
import pytest

from core.model.cluster import DisruptionBudget
from core.model.constraints import PodSelector
from kube.decode import budget
from kube.decode.kinds import BUDGETS


def read(selector: Any, **status: Any) -> DisruptionBudget:
    metadata = {"name": "b", "namespace": "d"}
    body = {"metadata": metadata, "spec": {"selector": selector}, "status": status}
    return BUDGETS.decode(orjson.dumps(body))


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ({"matchLabels": {f"k{n}": "v" for n in range(130_000)}}, "bytes, the limit is 49,152"),
        ({"matchLabels": {f"k{n}": "v" for n in range(2000)}}, "bytes of memory, the limit is"),
    ],
)
def test_budget_protects_its_namespace_when_its_selector_is_too_large(
    selector: Any, why: str
) -> None:
    found = read(selector, disruptionsAllowed=1)
    assert found.selector == PodSelector(("d",), ())
    assert why in found.too_much
    assert found.disruptions_allowed == 1


def test_selector_is_evaluated_when_it_is_within_the_limits() -> None:
    selector = {"matchLabels": {f"k{n}": "v" for n in range(150)}}
    assert len(orjson.dumps(selector)) < budget.SMALL_BYTES
    assert len(read(selector).selector.requirements) == 150
    larger = read({"matchLabels": {f"k{n}": "x" * 60 for n in range(150)}})
    assert (len(larger.selector.requirements), larger.too_much) == (150, "")
