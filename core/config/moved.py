"""Former settings: what a configuration file says today instead.

A file with one of them is rejected, and the error names the new setting. Remove an entry once no
version that had the setting is supported any more (docs/support-policy.md).
"""

import re
from collections.abc import Mapping
from typing import Final

from core.marks.wellknown import TAINT_KEY

_STATUS: Final = "use clusterAutoscaler.status, which is namespace/name"
_HYSTERESIS: Final = "use hysteresis, a share that is added to the limits of utilization"
_PAIR: Final = "a directory with the files tls.crt and tls.key"
MOVED: Final[Mapping[str, str]] = {
    "backoff": "removed; the backoff of a node begins with 1h and doubles up to 24h",
    "budgets.maxInWindow": "use budgets.maxNewMarks",
    "budgets.window": "use budgets.period",
    "clusterAutoscaler.statusName": _STATUS,
    "clusterAutoscaler.statusNamespace": _STATUS,
    "controller.leaseDuration": "now the flag --lease-duration of ebb-controller",
    "controller.metricsListen": "now the flag --metrics-listen of ebb-controller",
    "controller.reportPort": "now the flag --report-port of ebb-controller",
    "drain": "use `eviction: {mode, after, maxAtOnce}`; maxAtOnce replaces maxInCluster",
    "excessNodes.weights": "removed; the weights are 0.8 for CPU and 0.2 for memory",
    "extender.certFile": f"now extender.certDir, {_PAIR}",
    "extender.keyFile": f"now extender.certDir, {_PAIR}",
    "extender.listen": "now the flag --listen of ebb-extender",
    "extender.staleAfter": "now the flag --stale-after of ebb-extender",
    "nodeUtilization.keepStandalone": "removed; pods without a controller always prevent the "
    "removal of their node",
    "nodeUtilization.leave": _HYSTERESIS,
    "pools[].matchExpressions": "use pools[].selector.matchExpressions",
    "pools[].maxInWindow": "use pools[].maxNewMarks",
    "pools[].minUntaintedNodes": "removed; budgets.minUntaintedNodes limits the whole cluster",
    "pools[].nodeSelector": "use pools[].selector.matchLabels",
    "pools[].releaseThresholds": _HYSTERESIS,
    "releaseThresholds": _HYSTERESIS,
    "reserve.capacityBuffers": (
        "removed; Ebb publishes CapacityBuffers where the component capacity-buffers is installed"
    ),
    "reserve.lookback": "removed; Ebb counts the pods of the last hour. Instead of 0s, use "
    "reserve.window: never",
    "reserve.maxBuffers": "removed; CapacityBuffers get at most half of the nodes",
    "scaleDownProtection.afterRelease": "use scaleDownProtection.afterUnmark",
    "scaleDownProtection.utilization": (
        "removed; an unmarked node stays protected for scaleDownProtection.afterUnmark"
    ),
    "surge.maxInCluster": "use surge.maxAtOnce",
    "surge.maxInNamespace": "removed; a namespace has at most 10 moves at the same time",
    "taintKey": f"removed; the key of the taint is always {TAINT_KEY}",
    "usability": "use usableCapacity, with the value all instead of none",
    "webhook.certFile": f"now webhook.certDir, {_PAIR}",
    "webhook.keyFile": f"now webhook.certDir, {_PAIR}",
    "webhook.listen": "now the flag --listen of ebb-webhook",
    "webhook.metricsListen": "now the flag --metrics-listen of ebb-webhook",
    "webhook.rotationSoak": "now the flag --rotation-soak of ebb-webhook",
}
"""What to write today, by the former path. Entries of lists are written `pools[]`."""


def instead_of(path: str) -> str | None:
    """Return what replaces a former setting; None if there was no setting with this path.

    *path*: path in a file, such as `pools[3].minUntaintedNodes`.
    """
    return MOVED.get(re.sub(r"\[\d+\]", "[]", path))
