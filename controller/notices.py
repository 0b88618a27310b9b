"""Log facts about the cluster and the configuration once, not in each reconciliation."""

import logging
from collections.abc import Iterator

from core.engine.snapshot import ClusterSnapshot
from runtime.logs import fields

log = logging.getLogger("ebb.notices")


class Notices:
    """Logs each notice when it first applies."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def observe(self, snapshot: ClusterSnapshot) -> None:
        """Log the notices about a cluster that have not been logged yet."""
        for subject, message in _notices(snapshot):
            if subject not in self._logged:
                self._logged.add(subject)
                log.warning(message, extra=fields(subject=subject))


def _notices(snapshot: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    """Yield the subject and the text of each notice; the configuration bounds their number."""
    config = snapshot.config
    if not snapshot.autoscalers.found:
        subject = f"ConfigMap {config.cluster_autoscaler.status_key}, NodePools"
        yield subject, "no autoscaler was found, so Ebb does not know which nodes it can remove"
    if config.lacks_prices:
        yield "minSavings", "minSavings has no effect, because no prices are configured"
    for name in config.budgets.empty_pools(node.labels for node in snapshot.cluster.nodes):
        yield f"pool {name}", "a configured pool selects no node"
