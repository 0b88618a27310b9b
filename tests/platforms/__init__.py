"""Clusters in the shapes of the platforms that people run, from a generator of ours."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import orjson

from tests.platforms import aks, eks, gke, k3s, kind, kubeadm
from tests.platforms.objects import Json

PLATFORMS: Final[Mapping[str, Callable[[], Iterator[Json]]]] = {
    "aks": aks.items,
    "eks": eks.items,
    "gke": gke.items,
    "k3s": k3s.items,
    "kind": kind.items,
    "kubeadm": kubeadm.items,
}


def dump(platform: str) -> bytes:
    """Return what the documented dump command would print."""
    items = list(PLATFORMS[platform]())
    return orjson.dumps({"apiVersion": "v1", "kind": "List", "items": items})
