"""Amounts of resources: CPU in millicores, memory and storage in bytes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

KNOWN: Final = ("cpu", "memory", "ephemeral-storage", "pods")
"""Resources that have their own field in Resources."""
HUGE_PAGES: Final = "hugepages-"
ATTACHABLE: Final = "attachable-volumes-"
"""Prefix of volume limits in a node's allocatable; pods do not request these names."""
NO_DEVICES: Final = (HUGE_PAGES, ATTACHABLE)
"""Prefixes of extended resources that are not devices, because every node offers them."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts that pods request or nodes offer, in whole units; CPU in millicores."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    ephemeral_bytes: int = 0
    pods: int = 0
    extended: tuple[tuple[str, int], ...] = ()
    """Extended resources (nvidia.com/gpu, hugepages-2Mi) as (name, whole units), sorted by
    name."""

    def __add__(self, other: "Resources") -> "Resources":
        return self._combine(other, 1)

    def __sub__(self, other: "Resources") -> "Resources":
        return self._combine(other, -1)

    def fits_in(self, free: "Resources") -> bool:
        """Return whether no amount exceeds that in *free*.

        As in kube-scheduler's filter, an amount of 0 always fits, except for the number of pods.
        """
        have = dict(free.extended) if self.extended else {}
        return (
            self.pods <= free.pods
            and (not self.cpu_millis or self.cpu_millis <= free.cpu_millis)
            and (not self.memory_bytes or self.memory_bytes <= free.memory_bytes)
            and (not self.ephemeral_bytes or self.ephemeral_bytes <= free.ephemeral_bytes)
            and all(amount <= have.get(name, 0) for name, amount in self.extended)
        )

    def offers(self, name: str) -> bool:
        """Return whether there is at least one unit of the extended resource *name*."""
        return any(known == name and units > 0 for known, units in self.extended)

    @property
    def devices(self) -> Mapping[str, int]:
        """Return the units of each extended resource that is a device such as a GPU, by name."""
        return {name: many for name, many in self.extended if is_device(name)}

    @staticmethod
    def total(amounts: Iterable["Resources"]) -> "Resources":
        """Return the sum of all *amounts*.

        Faster than `a + b + ...`, which would create an object for every step.
        """
        cpu = memory = ephemeral = pods = 0
        extended: dict[str, int] = {}
        for amount in amounts:
            cpu += amount.cpu_millis
            memory += amount.memory_bytes
            ephemeral += amount.ephemeral_bytes
            pods += amount.pods
            for name, units in amount.extended:
                extended[name] = extended.get(name, 0) + units
        return Resources(cpu, memory, ephemeral, pods, tuple(sorted(extended.items())))

    def _combine(self, other: "Resources", sign: int) -> "Resources":
        if other.extended:
            amounts = dict(self.extended)
            for name, amount in other.extended:
                amounts[name] = amounts.get(name, 0) + sign * amount
            extended = tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
        else:
            extended = self.extended
        return Resources(
            self.cpu_millis + sign * other.cpu_millis,
            self.memory_bytes + sign * other.memory_bytes,
            self.ephemeral_bytes + sign * other.ephemeral_bytes,
            self.pods + sign * other.pods,
            extended,
        )


def is_device(name: str) -> bool:
    """Return whether the resource *name* is a device such as a GPU, which only some nodes have."""
    return name not in KNOWN and not name.startswith(NO_DEVICES)
