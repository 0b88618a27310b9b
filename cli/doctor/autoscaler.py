"""Checks of the autoscaler: Cluster Autoscaler's flags, and NodePools of Karpenter.

docs/install.md and docs/karpenter.md explain the recommended values.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from cli.doctor.finding import (
    Check,
    CheckResult,
    Evidence,
    Facts,
    first_unread,
    ok,
    problem,
    unknown,
    unread,
    values,
)
from cli.doctor.programs import Program, UnreadableFlagError, autoscalers
from cli.input.setup import DEPLOYMENTS, NODE_POOLS
from core.config.settings import Scope
from core.eligibility.scalability import Autoscalers
from core.marks.wellknown import TAINT_KEY
from core.model.humanize import duration, plural
from kube.decode.kinds import STATUSES

DELAY_SECONDS_MAX: Final = 120
"""Recommended maximum of the two delays of Cluster Autoscaler."""
DEFAULT_DELAY: Final = "10m"
DELAYS: Final = ("scale-down-unneeded-time", "scale-down-delay-after-add")
THRESHOLD: Final = "scale-down-utilization-threshold"
DEFAULT_THRESHOLD: Final = "0.5"
PARALLEL: Final = "max-drain-parallelism"
IGNORED: Final = ("ignore-daemonsets-utilization", "ignore-mirror-pods-utilization")
STARTUP_TAINTS: Final = ("startup-taint", "ignore-taint")
"""Flags with keys of taints with which a node counts as not Ready."""
WHEN_EMPTY: Final = "WhenEmpty"
EMPTY_OR_MORE: Final = "WhenEmptyOrUnderutilized"
"""Default consolidationPolicy of Karpenter."""
MOST: Final = duration(DELAY_SECONDS_MAX)
NO_POOLS: Final = "nothing to check: no NodePool of Karpenter was found"
NONE_FOUND: Final = "nothing to check: no Cluster Autoscaler was found"
FLAGS_HIDDEN: Final = "Cluster Autoscaler runs where its flags cannot be read"
ASK_PROVIDER: Final = (
    "compare the settings of your managed autoscaler with docs/install.md#the-autoscaler"
)


def _autoscaler(facts: Facts) -> CheckResult:
    programs, pools = autoscalers(facts), values(facts.setup.of(NODE_POOLS))
    if not pools and (
        keeping := [evidence for program in programs for evidence in _keeping(program)]
    ):
        return problem("Cluster Autoscaler removes no empty nodes", keeping)
    key = facts.config.cluster_autoscaler.status
    if programs:
        return ok(f"{programs[0].object} runs Cluster Autoscaler")
    if pools or _has_status(facts):
        pooled = f"Karpenter has {plural(len(pools), 'NodePool')}"
        return ok(
            pooled if pools else f"found Cluster Autoscaler by its status in ConfigMap {key}"
        )
    absent = Evidence(f"ConfigMap {key}", "", "does not exist")
    missing = first_unread(facts, DEPLOYMENTS, NODE_POOLS) or _unread_status(facts)
    return missing or problem(
        "neither Cluster Autoscaler nor a NodePool of Karpenter was found", [absent]
    )


def _has_status(facts: Facts) -> bool:
    key = facts.config.cluster_autoscaler.status
    return Autoscalers.of(facts.cluster, key).status is not None


def _unread_status(facts: Facts) -> CheckResult | None:
    """Return UNKNOWN if Cluster Autoscaler's status ConfigMap could not be read, else None."""
    why = facts.cluster_input.why_absent(STATUSES.name)
    namespace, _, name = facts.config.cluster_autoscaler.status.partition("/")
    dump = f"the output of `kubectl get cm {name} -n {namespace} -o json`"
    return unread(STATUSES.resource, why, dump) if why else None


def _keeping(program: Program) -> Iterator[Evidence]:
    """Yield the values because of which Cluster Autoscaler removes no empty nodes, if any."""
    if program.replicas == 0:
        yield Evidence(program.object, "spec.replicas", "0")
    elif not program.boolean("scale-down-enabled", default=True):
        yield program.evidence("scale-down-enabled", "true")
    elif program.number(THRESHOLD, DEFAULT_THRESHOLD) == 0:
        # DaemonSet and static pods also run on empty nodes. Unless their requests are ignored,
        # the utilization of such a node is never 0.
        yield from (
            program.evidence(flag, "false")
            for flag in IGNORED
            if not program.boolean(flag, default=False)
        )


def _status(facts: Facts) -> CheckResult:
    key = facts.config.cluster_autoscaler.status
    if _has_status(facts):
        return ok(f"ConfigMap {key} has the status of Cluster Autoscaler")
    programs = autoscalers(facts)
    if not programs:
        return first_unread(facts, DEPLOYMENTS) or ok(NONE_FOUND)
    if missing := _unread_status(facts):
        return missing
    evidence = [Evidence(f"ConfigMap {key}", "", "does not exist")]
    for program in programs:
        evidence.append(Evidence(program.object, "metadata.namespace", program.namespace))
        evidence += [
            program.evidence(flag, "")
            for flag in ("namespace", "status-config-map-name", "write-status-configmap")
            if program.text(flag) is not None
        ]
    return problem(f"ConfigMap {key} does not exist, but Cluster Autoscaler runs", evidence)


def _evicts(facts: Facts) -> CheckResult:
    if facts.config.scale_down_protection.scope is Scope.ALL:
        return ok("Ebb protects every node from scale-down (scaleDownProtection.scope: all)")
    return _with_flags(
        facts, _evicting, "Cluster Autoscaler evicts pods", "removes only empty nodes"
    )


def _evicting(program: Program) -> Iterator[Evidence]:
    drains = (
        program.boolean("scale-down-enabled", default=True)
        and program.number(PARALLEL, "1") > 0
        and program.number(THRESHOLD, DEFAULT_THRESHOLD) > 0
    )
    if drains:
        yield program.evidence(THRESHOLD, DEFAULT_THRESHOLD)
        yield program.evidence(PARALLEL, "1")


def _delays(facts: Facts) -> CheckResult:
    seen = f"Cluster Autoscaler waits longer than {MOST} before it removes an empty node"
    return _with_flags(
        facts,
        _long_delays,
        seen,
        f"{' and '.join(DELAYS)} are at most {MOST}",
    )


def _long_delays(program: Program) -> Iterator[Evidence]:
    for flag in DELAYS:
        if program.seconds(flag, DEFAULT_DELAY) > DELAY_SECONDS_MAX:
            yield program.evidence(flag, DEFAULT_DELAY)


def _taint(facts: Facts) -> CheckResult:
    # The prefix makes Cluster Autoscaler ignore the taint, unless a flag names it as a startup
    # taint: then marked nodes would be NotReady for it.
    # Source: StatusTaintPrefix and StartupTaintPrefix in cluster-autoscaler/utils/taints.
    if not autoscalers(facts):
        return ok(f"Cluster Autoscaler ignores the taint {TAINT_KEY} because of its prefix")

    def misread(program: Program) -> Iterator[Evidence]:
        for flag in STARTUP_TAINTS:
            if TAINT_KEY in program.texts(flag):
                yield Evidence(program.object, f"--{flag}", TAINT_KEY)

    good = f"ignores the taint {TAINT_KEY}"
    return _with_flags(
        facts, misread, f"Cluster Autoscaler does not ignore the taint {TAINT_KEY}", good
    )


def _with_flags(
    facts: Facts, wrong: Callable[[Program], Iterable[Evidence]], bad: str, good: str
) -> CheckResult:
    """Check the flags of every running Cluster Autoscaler, and return the result.

    *wrong* yields the flags that are a problem. *bad* and *good*: sentences for a result with and
    without a problem. Raises: UnreadableFlagError.
    """
    programs = autoscalers(facts)
    running = [program for program in programs if program.replicas != 0]
    if evidence := [found for program in running for found in wrong(program)]:
        return problem(bad, evidence)
    if programs:
        return ok(f"{programs[0].object}: {good if running else 'spec.replicas is 0'}")
    if missing := first_unread(facts, DEPLOYMENTS):
        return missing
    if _has_status(facts):
        return unknown(FLAGS_HIDDEN, ASK_PROVIDER)
    return ok(NONE_FOUND)


def _node_pools(facts: Facts) -> CheckResult:
    read = facts.setup.of(NODE_POOLS)
    if read.absent:
        return unread(NODE_POOLS.resource, read.absent, NODE_POOLS.dump)
    wrong = [evidence for pool in values(read) for evidence in _wrong(facts, pool)]
    if wrong:
        return problem(
            f"Karpenter evicts pods, or keeps empty nodes, in {plural(len(wrong), 'NodePool')}",
            wrong,
        )
    pools = plural(len(values(read)), "NodePool")
    return ok(f"{pools} of Karpenter: only empty nodes are removed" if values(read) else NO_POOLS)


def _wrong(facts: Facts, pool: Any) -> Iterator[Evidence]:  # noqa: ANN401 a NodePoolObject
    """Yield the disruption setting of a NodePool that differs from docs/karpenter.md, if any."""
    if pool.spec is not None and pool.spec.replicas is not None:
        return  # its number of nodes is fixed on purpose
    name = f"NodePool {pool.metadata.name}"
    disruption = pool.spec.disruption if pool.spec else None
    policy = (disruption.consolidation_policy if disruption else None) or EMPTY_OR_MORE
    pools = (known for known in facts.cluster.node_pools if known.name == pool.metadata.name)
    if fixed := next((known.fixed for known in pools), ""):
        yield Evidence(name, "spec.disruption", fixed)
    elif policy != WHEN_EMPTY:
        yield Evidence(name, "spec.disruption.consolidationPolicy", policy)


def _readable(check: Callable[[Facts], CheckResult]) -> Callable[[Facts], CheckResult]:
    """Return a check that returns UNKNOWN where *check* raises UnreadableFlagError."""

    def run(facts: Facts) -> CheckResult:
        try:
            return check(facts)
        except UnreadableFlagError as fault:
            return unknown(
                f"the value of a flag cannot be read: {fault}",
                "look up the value in the running process, and compare it with "
                "docs/install.md#the-autoscaler",
            )

    return run


_PAGE: Final = "docs/install.md#the-autoscaler"
CHECKS: Final = (
    Check(
        code="autoscaler",
        question="Does an autoscaler run that removes empty nodes?",
        effect="the nodes that Ebb empties remain",
        fix="configure an autoscaler (docs/install.md#the-autoscaler), or remove empty marked "
        "nodes yourself",
        run=_readable(_autoscaler),
    ),
    Check(
        code="autoscaler-status",
        question="Is the status of Cluster Autoscaler in the ConfigMap of the setting "
        "`clusterAutoscaler.status`?",
        effect="Ebb does not know the minimum sizes of node groups, and marks nodes that the "
        "autoscaler keeps",
        fix="set `clusterAutoscaler.status` to namespace/name of the ConfigMap to which Cluster "
        "Autoscaler writes its status, and restart ebb-controller "
        "(docs/install.md#the-autoscaler)",
        run=_status,
    ),
    Check(
        code="autoscaler-evicts",
        question="Does Cluster Autoscaler remove empty nodes only?",
        effect="Cluster Autoscaler drains nodes with a low utilization that Ebb has not marked, "
        "and evicts their pods",
        fix=f"set the flag `--{PARALLEL}=0` of Cluster Autoscaler ({_PAGE}); if it has no such "
        "flag, set `scaleDownProtection: {scope: all}` in ebb-config",
        run=_readable(_evicts),
    ),
    Check(
        code="autoscaler-delays",
        question=f"Are the scale-down delays of Cluster Autoscaler at most {MOST}?",
        effect="Cluster Autoscaler removes an empty node only after its scale-down delays",
        fix=f"set the flags `--{DELAYS[0]}=1m --{DELAYS[1]}=2m` of Cluster Autoscaler ({_PAGE})",
        run=_readable(_delays),
    ),
    Check(
        code="autoscaler-taint",
        question="Does Cluster Autoscaler count marked nodes as Ready?",
        effect="Cluster Autoscaler takes marked nodes for nodes that have not started yet",
        fix="remove Ebb's taint from the flags `--startup-taint` and `--ignore-taint` of Cluster "
        f"Autoscaler ({_PAGE})",
        run=_taint,
    ),
    Check(
        code="nodepools",
        question="Does Karpenter remove empty nodes only?",
        effect="Karpenter evicts pods of nodes that Ebb has not marked, or removes no empty "
        "nodes (`consolidateAfter: Never`)",
        fix="set `consolidationPolicy: WhenEmpty` and a short `consolidateAfter` in every "
        "NodePool (docs/karpenter.md#configuration)",
        run=_node_pools,
    ),
)
