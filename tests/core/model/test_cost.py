"""Cost of nodes without a price, and which resources count as GPUs: computed by hand."""

from fractions import Fraction

import pytest

from core.model.cost import cost, cost_share, gpus, taken
from core.model.resources import Resources

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "units", "expected"),
    [
        ("nvidia.com/gpu", 2, 2),
        ("amd.com/gpu", 2, 2),
        ("nvidia_com_gpu", 2, 2),
        ("gpu", 2, 2),
        ("gpu-milli", 1500, Fraction(3, 2)),
        ("alibabacloud.com/gpu-milli", 500, Fraction(1, 2)),
        ("gpu.intel.com/i915", 1, 1),
        ("gpu.intel.com/i915_monitoring", 1, 0),
        ("gpu.intel.com/memory.max", 2**34, 0),
        ("habana.ai/gaudi", 8, 8),
        ("google.com/tpu", 4, 4),
        ("aws.amazon.com/neuron", 1, 1),
        ("aws.amazon.com/neuroncore", 2, 0),
        ("nvidia.com/mig-3g.20gb", 2, Fraction(6, 7)),
        ("nvidia_com_mig_7g_80gb", 1, 1),
        ("nvidia.com/gpu.shared", 8, 0),
        ("aliyun.com/gpu-mem", 32, 0),
        ("hugepages-2Mi", GIB, 0),
        ("vpc.amazonaws.com/pod-eni", 54, 0),
        ("attachable-volumes-aws-ebs", 39, 0),
        ("smarter-devices/fuse", 20, 0),
    ],
)
def test_extended_resource_counts_as_gpus(name: str, units: int, expected: Fraction) -> None:
    assert gpus(Resources(extended=((name, units),))) == expected


def test_node_cost_sums_cpu_memory_and_gpus_when_no_price_is_set() -> None:
    more = (("hugepages-2Mi", GIB), ("nvidia.com/gpu", 2), ("vpc.amazonaws.com/pod-eni", 54))
    assert cost(Resources(4000, 16 * GIB, 0, 110, more)) == 4000 + 16 * 130 + 2 * 11_000


GPU = "nvidia.com/gpu"
NODE = Resources(96_000, 384 * GIB, 0, 110, ((GPU, 8),))
"""Costs as much as 96 cores, 8 x 11 for its GPUs and 384 x 0.13 for its memory."""
WORTH = 96_000 + 8 * 11_000 + 384 * 130


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param(Resources(), 0, id="no requests"),
        pytest.param(Resources(12_000), Fraction(WORTH, 8), id="CPU"),
        pytest.param(Resources(12_000, 96 * GIB), Fraction(WORTH, 4), id="memory"),
        pytest.param(Resources(12_000, extended=((GPU, 4),)), Fraction(WORTH, 2), id="GPUs"),
        pytest.param(Resources(96_000), WORTH, id="all CPU is the whole node"),
        pytest.param(Resources(96_001), None, id="does not fit"),
        pytest.param(Resources(1, extended=(("fpga", 1),)), None, id="resource missing on node"),
        pytest.param(Resources(1, extended=(("hugepages-2Mi", 1),)), Fraction(WORTH, 96_000)),
    ],
)
def test_pod_takes_its_largest_share_of_node_cost(
    requests: Resources, expected: Fraction | None
) -> None:
    expected_micros = None if expected is None else int(expected * 10**6)
    assert taken(requests, NODE) == expected_micros


def test_pod_takes_nothing_when_node_has_no_resources() -> None:
    assert taken(Resources(), Resources()) == 0
    assert taken(Resources(1), Resources()) is None


@pytest.mark.parametrize(
    ("requests", "whole", "expected"),
    [
        pytest.param(Resources(), NODE, Fraction(), id="no requests"),
        pytest.param(NODE, NODE, Fraction(1), id="all"),
        pytest.param(Resources(48_000), NODE, Fraction(48_000, WORTH), id="CPU"),
        pytest.param(Resources(0, GIB // 2), NODE, Fraction(65, WORTH), id="memory"),
        pytest.param(Resources(extended=((GPU, 3),)), NODE, Fraction(33_000, WORTH), id="GPUs"),
        pytest.param(
            Resources(1000, 100 * GIB, 0, 1, (("fpga", 7), (GPU, 1))),
            NODE,
            Fraction(1000 + 13_000 + 11_000, WORTH),
            id="sum of CPU, memory and GPUs",
        ),
        pytest.param(
            Resources(extended=(("nvidia.com/mig-1g.5gb", 1),)),
            Resources(extended=(("nvidia.com/mig-1g.5gb", 7),)),
            Fraction(1, 7),
            id="slice of a GPU",
        ),
        pytest.param(Resources(2000), Resources(1000), Fraction(2), id="more than the node"),
        pytest.param(Resources(1000), Resources(), Fraction(), id="node without resources"),
        pytest.param(Resources(), Resources(pods=110), Fraction(), id="node for pods only"),
    ],
)
def test_cost_share_is_requested_cost_over_cost_of_node(
    requests: Resources, whole: Resources, expected: Fraction
) -> None:
    assert cost_share(requests, whole, 2**40) == int(expected * 2**40)
    assert cost_share(requests, whole, 1) == int(expected)
