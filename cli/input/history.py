"""Read what Ebb has done and saved, from its two ConfigMaps in a live cluster."""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.names import HISTORY, TODAY
from core.history.days import Day
from core.history.packing import read_history, read_today
from core.history.today import Today
from core.model.errors import InvalidInputError
from kube.client import Client
from kube.stores.packed_config_map import PackedConfigMap


@dataclass(frozen=True, slots=True)
class History:
    """The figures of all known days."""

    today: Today | None
    """The last figures that a leader stored; None if none did."""
    days: Mapping[int, Day]
    """Figures by number of the day; of the last one only until `today.counted_until`."""


async def read(client: Client, namespace: str) -> History:
    """Read the history. *namespace*: namespace of Ebb.

    Raises: InvalidInputError if Ebb is not installed there, UnavailableError.
    """
    stores = [PackedConfigMap(client, namespace, name) for name in (TODAY, HISTORY)]
    today, history = [await store.read() for store in stores]
    if today is None and history is None:
        problem = "not found; if Ebb is installed in another namespace, use --ebb-namespace"
        raise InvalidInputError(f"ConfigMap {namespace}/{TODAY}", problem)
    last = read_today(today.content) if today else None
    days = read_history(history.content) if history else {}
    if last is not None:
        days |= {day.number: day for day in (*last.earlier, last.day)}
    return History(last, days)
