"""Sample the Ready endpoints of Services, and the pods of their Deployments."""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from core.model.pod import DETACHED_LABEL
from tests.e2e.api import Api, Json
from tests.e2e.objects import PODS
from tests.e2e.plane import Plane

SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
SERVICE_LABEL: Final = "kubernetes.io/service-name"
SAMPLE_SECONDS: Final = 0.05
SAMPLES_MIN: Final = 10
"""A thread samples that often at least, however short the test is."""
METADATA: Final = (("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),)


def ready_endpoints(slices: Iterable[Json]) -> Counter[str]:
    """Return the number of Ready addresses by the name of the Service, over its slices."""
    found: dict[str, set[str]] = {}
    for one in slices:
        addresses = found.setdefault(one["metadata"]["labels"][SERVICE_LABEL], set())
        for endpoint in one["endpoints"] or ():
            # The API documents that a missing condition means that the endpoint is Ready.
            if endpoint.get("conditions", {}).get("ready", True):
                addresses.update(endpoint["addresses"])
    return Counter({name: len(addresses) for name, addresses in found.items()})


@dataclass
class Samples:
    """What was seen in the namespace default, every 50 ms."""

    endpoints: list[Counter[str]] = field(default_factory=list)
    """Ready endpoints by the name of the Service."""
    pods: list[Counter[str]] = field(default_factory=list)
    """Pods that were not terminating, by their label `app`."""
    detached: set[str] = field(default_factory=set)
    """Labels `app` of the pods that were ever detached."""
    fault: Exception | None = None

    def check(self, least: Mapping[str, int], most: Mapping[str, int]) -> None:
        """Raise AssertionError if a Service ever had too few endpoints, or an app too many pods.

        Also if a Service never had an endpoint: then its slices say nothing.
        """
        if self.fault is not None:
            raise AssertionError("the sampling failed") from self.fault
        seen = {name: [sample[name] for sample in self.endpoints] for name in least}
        assert [name for name, counts in seen.items() if not max(counts)] == [], "no endpoint seen"
        lowest = {name: min(counts) for name, counts in seen.items()}
        assert {name: n for name, n in lowest.items() if n < least[name]} == {}, f"below {least}"
        highest = {name: max(sample[name] for sample in self.pods) for name in most}
        assert {name: n for name, n in highest.items() if n > most[name]} == {}, f"above {most}"


@contextmanager
def never_below(
    plane: Plane, least: Mapping[str, int], most: Mapping[str, int] | None = None
) -> Iterator[Samples]:
    """Check that Services at no moment have fewer Ready endpoints than this, by their names.

    *most*: maximum number of pods by the label `app`; by default one more than *least* for each.
    """
    samples, ended, api = Samples(), threading.Event(), plane.api_as(plane.admin)

    def follow() -> None:
        try:
            while not ended.is_set() or len(samples.endpoints) < SAMPLES_MIN:
                begun = time.monotonic()
                _sample(api, samples)
                ended.wait(max(0.0, begun + SAMPLE_SECONDS - time.monotonic()))
        except Exception as fault:  # noqa: BLE001 told by the test, as a thread cannot
            samples.fault = fault

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()
    samples.check(least, most or {name: count + 1 for name, count in least.items()})


def _sample(api: Api, samples: Samples) -> None:
    slices = api.get(f"{SLICES}?resourceVersion=0")["items"]
    pods = api.call("GET", f"{PODS}?resourceVersion=0", headers=METADATA)["items"]
    left = [one["metadata"] for one in pods if "deletionTimestamp" not in one["metadata"]]
    samples.endpoints.append(ready_endpoints(slices))
    samples.pods.append(Counter(one.get("labels", {}).get("app", "") for one in left))
    samples.detached |= {one["labels"]["app"] for one in left if DETACHED_LABEL in one["labels"]}
