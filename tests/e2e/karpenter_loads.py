"""The loads `churn` and `protected`: two scale-in tests of Karpenter's own performance suite.

Requests, replicas and constraints are those of test/suites/performance/balanced_churn_test.go and
do_no_disrupt_test.go. The suite leaves the choice of the nodes to Karpenter, and waits after each
step until nothing changes; here the nodes have one shape, and each step has a fixed second.
"""

from typing import Final

from core.eligibility.drainability import SAFE_TO_EVICT
from core.marks.wellknown import DO_NOT_DISRUPT_ANNOTATION
from core.model.constraints import HOST_LABEL
from tests.e2e.api import Json
from tests.e2e.live import Event, Load, NodeShape

SMALL: Final = (900, 3100)
"""CPU in millicores and memory in MiB."""
LARGE: Final = (3500, 28 * 1024)
TINY: Final = (900, 450)
CHURN_SECONDS: Final = (30.0, 180.0, 330.0)
"""Seconds of the scale-in, the scale-out and the second scale-in."""
SCALE_IN: Final = 60.0


def churn() -> Load:
    """Return 400 pods that are scaled to 200, back to 400, and to 200 again; the minimum is 23."""
    app = "churn"
    steps = zip(CHURN_SECONDS, (200, 400, 200), strict=True)
    events = [Event(-60.0, "deploy", app, *SMALL, replicas=400)]
    events += [Event(second, "scale", app, replicas=replicas) for second, replicas in steps]
    return Load(tuple(events), nodes=26, shape=NodeShape(cpu="16", memory="64Gi"))


def protected() -> Load:
    """Return 1,000 pods that are scaled to 500, beside 100 that no autoscaler may evict."""
    spread = {
        "maxSkew": 1,
        "topologyKey": HOST_LABEL,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "small"}},
    }
    keep: Json = {DO_NOT_DISRUPT_ANNOTATION: "true", SAFE_TO_EVICT: "false"}
    begin = -120.0
    events = (
        Event(begin, "deploy", "small", *SMALL, replicas=500,
              pod_spec={"topologySpreadConstraints": [spread]}),
        Event(begin, "deploy", "large", *LARGE, replicas=500),
        Event(begin, "deploy", "protected", *TINY, replicas=100, annotations=keep),
        Event(SCALE_IN, "scale", "small", replicas=250),
        Event(SCALE_IN, "scale", "large", replicas=250),
    )  # fmt: skip
    return Load(events, nodes=76, shape=NodeShape(cpu="32", memory="256Gi"))
