"""Generated clusters like those of managed platforms and common distributions."""

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
    """Return the output of the documented dump command."""
    items = list(PLATFORMS[platform]())
    return orjson.dumps({"apiVersion": "v1", "kind": "List", "items": items})
