"""Estimate the cost of nodes without configured prices, and each pod's share of it.

The unit is a millicore of CPU: memory and GPUs are converted into CPU.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from core.model.resources import Resources

GPU_MILLIS: Final = 11_000
"""Millicores of CPU that cost as much as one GPU."""
GIB: Final = 2**30
GIB_MILLIS: Final = 130
"""Millicores of CPU that cost as much as 1 GiB of memory."""
MILLIONTHS: Final = 10**6
NAMES_MAX: Final = 1024
"""Maximum number of resource names whose share of a GPU is cached."""
GPU_PARTS: Final = 7000
"""Number of equal parts of a GPU: thousandths and sevenths of a GPU are whole numbers of them."""
_PARTS: Final = (
    (re.compile(r"(.*_)?gpu"), GPU_PARTS),
    (re.compile(r"(.*_)?gpu_milli"), GPU_PARTS // 1000),
    (re.compile(r"gpu_intel_com_(i915|xe)"), GPU_PARTS),
    (re.compile(r"habana_ai_gaudi|google_com_tpu|aws_amazon_com_neuron"), GPU_PARTS),
    *((re.compile(rf"nvidia_com_mig_{of}g_.*"), of * GPU_PARTS // 7) for of in range(1, 8)),
)
"""Parts of a GPU per unit of an extended resource, whose name is as in metrics: nvidia_com_gpu.

A MIG slice counts as so many sevenths of a GPU. Accelerators of a similar price count as GPUs.
Resources for GPU memory, GPU sharing, network interfaces or volumes count as none."""


def cost(allocatable: Resources) -> Fraction:
    """Return the cost of a node: its allocatable CPU, memory and GPUs, converted to millicores."""
    return Fraction(_cost_in_parts(allocatable), GIB * GPU_PARTS)


def cost_share(requests: Resources, whole: Resources, scale: int) -> int:
    """Return the cost of *requests* over that of *whole*, in units of 1 / *scale*, rounded down.

    The cost of resources without CPU, memory and GPUs is 0, and so is each share of it.
    """
    total = _cost_in_parts(whole)
    return _cost_in_parts(requests) * scale // total if total else 0


def _cost_in_parts(amount: Resources) -> int:
    # Plans compare thousands of nodes, and calculations with fractions are slow.
    times_gib = amount.cpu_millis * GIB + amount.memory_bytes * GIB_MILLIS
    return GPU_PARTS * times_gib + GIB * GPU_MILLIS * _gpu_parts(amount)


def taken(requests: Resources, allocatable: Resources) -> int | None:
    """Return the share of a node's cost that a pod takes, in millionths of a millicore.

    The cost of a node is its allocatable CPU, memory and GPUs, converted to millicores. The pod
    takes the largest of its shares of the node's CPU, memory and devices. None if the pod requests
    more than the node's allocatable.
    """
    devices = allocatable.devices
    worth, most = int(MILLIONTHS * cost(allocatable)), 0
    for many, whole in (
        (requests.cpu_millis, allocatable.cpu_millis),
        (requests.memory_bytes, allocatable.memory_bytes),
        *((many, devices.get(name, 0)) for name, many in requests.devices.items()),
    ):
        if many > whole:
            return None
        if whole:
            most = max(most, worth * many // whole)
    return most


def gpus(amount: Resources) -> Fraction:
    """Return the number of GPUs among the extended resources, which are recognized by name.

    A slice of a GPU counts as a fraction.
    """
    return Fraction(_gpu_parts(amount), GPU_PARTS)


def _gpu_parts(amount: Resources) -> int:
    return sum(_parts(name) * many for name, many in amount.extended)


@lru_cache(NAMES_MAX)
def _parts(name: str) -> int:
    written = re.sub(r"\W", "_", name)
    return next((parts for names, parts in _PARTS if names.fullmatch(written)), 0)
