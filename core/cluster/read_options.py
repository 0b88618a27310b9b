"""Settings that decide how objects are understood when a Cluster is built from them."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from core.cluster.default_spread import DefaultSpread
from core.cluster.schedulers import KNOWN


class ReadOptions(NamedTuple):
    """The settings that change how API objects are decoded."""

    schedulers: Collection[str] = KNOWN
    """Schedulers whose pods are evaluable."""
    leaving_taints: Collection[str] = ()
    """Keys of taints of leaving nodes, besides core.model.node_lifecycle.LEAVING_TAINTS."""
    default_spread: Sequence[DefaultSpread] = ()
    """Topology spread constraints of pods that have none of their own."""


READ_DEFAULTS: Final = ReadOptions()
