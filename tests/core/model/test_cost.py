"""What a node counts like without a price, and which resources are GPUs: by hand."""

from fractions import Fraction

import pytest

from core.model.cost import cost, gpus, taken
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
def test_what_counts_as_a_gpu(name: str, units: int, expected: Fraction) -> None:
    assert gpus(Resources(extended=((name, units),))) == expected


def test_a_node_without_a_price_counts_by_cpu_memory_and_gpus() -> None:
    more = (("hugepages-2Mi", GIB), ("nvidia.com/gpu", 2), ("vpc.amazonaws.com/pod-eni", 54))
    assert cost(Resources(4000, 16 * GIB, 0, 110, more)) == 4000 + 16 * 130 + 2 * 11_000


GPU = "nvidia.com/gpu"
NODE = Resources(96_000, 384 * GIB, 0, 110, ((GPU, 8),))
"""Counts like 96 cores, 8 x 11 for its GPUs and 384 x 0.13 for its memory."""
WORTH = 96_000 + 8 * 11_000 + 384 * 130


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(Resources(), 0, id="asks for nothing"),
        pytest.param(Resources(12_000), Fraction(WORTH, 8), id="CPU"),
        pytest.param(Resources(12_000, 96 * GIB), Fraction(WORTH, 4), id="memory"),
        pytest.param(Resources(12_000, extended=((GPU, 4),)), Fraction(WORTH, 2), id="GPUs"),
        pytest.param(Resources(96_000), WORTH, id="all of the CPU: all of it"),
        pytest.param(Resources(96_001), None, id="would not fit"),
        pytest.param(Resources(1, extended=(("fpga", 1),)), None, id="not there"),
        pytest.param(Resources(1, extended=(("hugepages-2Mi", 1),)), Fraction(WORTH, 96_000)),
    ],
)
def test_a_pod_takes_of_a_node_by_its_largest_share(
    asked: Resources, expected: Fraction | None
) -> None:
    told = None if expected is None else int(expected * 10**6)
    assert taken(asked, NODE) == told


def test_of_a_node_that_has_nothing_nothing_is_taken() -> None:
    assert taken(Resources(), Resources()) == 0
    assert taken(Resources(1), Resources()) is None
