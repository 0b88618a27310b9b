"""What a node counts like without a price, and which resources are GPUs: by hand."""

from fractions import Fraction

import pytest

from core.model.cost import cost, gpus
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
