"""Amounts of what pods ask for and nodes offer: CPU in millicores, memory and storage in bytes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

KNOWN: Final = ("cpu", "memory", "ephemeral-storage", "pods")
"""What has a field of its own."""
HUGE_PAGES: Final = "hugepages-"
ATTACHABLE: Final = "attachable-volumes-"
"""Counts of volumes: no pod requests them by this name."""
NO_DEVICES: Final = (HUGE_PAGES, ATTACHABLE)
"""How names begin that stand beside those of devices, but are of what every node has."""


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of what pods ask for and nodes offer; whole numbers."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    ephemeral_bytes: int = 0
    pods: int = 0
    extended: tuple[tuple[str, int], ...] = ()
    """Extended resources (nvidia.com/gpu, hugepages-2Mi): (name, whole units), sorted by name."""

    def __add__(self, other: "Resources") -> "Resources":
        return self._combine(other, 1)

    def __sub__(self, other: "Resources") -> "Resources":
        return self._combine(other, -1)

    def fits_in(self, free: "Resources") -> bool:
        """Say whether there is room, as kube-scheduler's filter compares: 0 always fits."""
        have = dict(free.extended) if self.extended else {}
        return (
            self.pods <= free.pods
            and (not self.cpu_millis or self.cpu_millis <= free.cpu_millis)
            and (not self.memory_bytes or self.memory_bytes <= free.memory_bytes)
            and (not self.ephemeral_bytes or self.ephemeral_bytes <= free.ephemeral_bytes)
            and all(amount <= have.get(name, 0) for name, amount in self.extended)
        )

    @property
    def devices(self) -> Mapping[str, int]:
        """Return those of the extended resources that are devices."""
        return {name: many for name, many in self.extended if is_device(name)}

    @staticmethod
    def total(amounts: Iterable["Resources"]) -> "Resources":
        """Add up many amounts at once; `a + b + ...` would make an object for every step."""
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
    """Say of a resource whether it is one that some nodes have and others do not, as GPUs are."""
    return name not in KNOWN and not name.startswith(NO_DEVICES)
