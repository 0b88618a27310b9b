"""What a node costs where no price is known, as so much CPU, and how much of that a pod takes."""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from core.model.resources import Resources

GPU_MILLIS: Final = 11_000
"""What a GPU counts like, of CPU."""
GIB: Final = 2**30
GIB_MILLIS: Final = 130
"""What so much memory counts like."""
MILLIONTHS: Final = 10**6
NAMES_MAX: Final = 1024
"""Of resources whose parts of a GPU are remembered."""
_PARTS: Final = (
    (re.compile(r"(.*_)?gpu"), Fraction(1)),
    (re.compile(r"(.*_)?gpu_milli"), Fraction(1, 1000)),
    (re.compile(r"gpu_intel_com_(i915|xe)"), Fraction(1)),
    (re.compile(r"habana_ai_gaudi|google_com_tpu|aws_amazon_com_neuron"), Fraction(1)),
    *((re.compile(rf"nvidia_com_mig_{of}g_.*"), Fraction(of, 7)) for of in range(1, 8)),
)
"""What part of a GPU one unit is, by how metrics write the name: nvidia_com_gpu.

A slice (MIG) is so many of seven parts; accelerators that cost as much count as GPUs. Nothing
else is one: not what tells of a GPU's memory or its sharing, and not interfaces or volumes.
"""


def cost(allocatable: Resources) -> Fraction:
    """Return what a node counts like without a price, in millicores: CPU, memory, GPUs."""
    memory = Fraction(allocatable.memory_bytes * GIB_MILLIS, GIB)
    return allocatable.cpu_millis + memory + GPU_MILLIS * gpus(allocatable)


def taken(asked: Resources, allocatable: Resources) -> int | None:
    """Return what a pod takes of what a node counts like: by its largest share of what is there.

    Of CPU, memory and devices, in millionths of a millicore. None: it would not fit.
    """
    there = allocatable.devices
    worth, most = int(MILLIONTHS * cost(allocatable)), 0
    for many, whole in (
        (asked.cpu_millis, allocatable.cpu_millis),
        (asked.memory_bytes, allocatable.memory_bytes),
        *((many, there.get(name, 0)) for name, many in asked.devices.items()),
    ):
        if many > whole:
            return None
        if whole:
            most = max(most, worth * many // whole)
    return most


def gpus(amount: Resources) -> Fraction:
    """Return how many GPUs are in it, by the names of its extended resources."""
    return sum((_part(name) * many for name, many in amount.extended), Fraction())


@lru_cache(NAMES_MAX)
def _part(name: str) -> Fraction:
    written = re.sub(r"\W", "_", name)
    return next((part for names, part in _PARTS if names.fullmatch(written)), Fraction())
