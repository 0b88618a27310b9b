"""Cluster Autoscaler: flags from a command line, a container, or values of the Helm chart."""

from collections.abc import Mapping, Sequence
from typing import Final

from cli.migrate.given import SHELL, containers, field, is_autoscaler, words
from cli.migrate.tool import DRAINING, OBSERVE, Given, Migrated, Taken, Tool
from cli.migrate.values import DURATION, FLAG, INTERVAL, MODE, NUMBER, SHARE, read

POLICY: Final = "NodeUtilization"
THRESHOLD: Final = "scale-down-utilization-threshold"
TAKEN: Final[Mapping[str, Taken]] = {
    "scale-down-enabled": Taken(("mode",), MODE),
    THRESHOLD: Taken(("nodeUtilization", "utilization"), SHARE),
    "scale-down-unneeded-time": Taken(("delay",), DURATION),
    "scale-down-delay-after-add": Taken(("cooldown", "afterNodeAdd"), DURATION),
    "scan-interval": Taken(("controller", "interval"), INTERVAL),
    "skip-nodes-with-system-pods": Taken(("nodeUtilization", "keepSystem"), FLAG),
    "skip-nodes-with-local-storage": Taken(("nodeUtilization", "keepLocalStorage"), FLAG),
}
OTHERS: Final = "stays with the autoscaler"
CUSTOM: Final = "skip-nodes-with-custom-controller-pods"
_BY_REASON: Final[Mapping[str, str]] = {
    "groups and their size at the cloud stay there; `budgets` and `pools` limit marks": """
        cloud-provider cores-total enforce-node-group-min-size gpu-total max-nodes-total
        memory-total node-group-auto-discovery nodes""",
    "scale-up stays with the autoscaler": """
        balance-similar-node-groups balancing-ignore-label balancing-label
        enable-proactive-scaleup estimator expander force-ds ignore-taint
        initial-node-group-backoff-duration max-binpacking-time max-node-group-backoff-duration
        max-node-provision-time max-node-startup-time max-nodegroup-binpacking-duration
        max-nodes-per-scaleup new-pod-scale-up-delay node-group-backoff-reset-timeout
        parallel-scale-up scale-from-unschedulable scale-up-from-zero startup-taint
        startup-taint-prefix status-taint""",
    "how many nodes go at once; in Ebb, `budgets.maxMarked` limits how many are marked": """
        max-bulk-soft-taint-count max-bulk-soft-taint-time max-drain-parallelism
        max-empty-bulk-delete max-scale-down-parallelism""",
    "a rule of evictions; those of Ebb, if they are enabled, go by `drain`": """
        cordon-node-before-terminating daemonset-eviction-for-empty-nodes
        daemonset-eviction-for-occupied-nodes drain-priority-config max-graceful-termination-sec
        max-pod-eviction-time""",
    "whether pods of controllers that the autoscaler does not know keep their node; in Ebb they "
    "do not: it may be marked, and goes once they have ended": CUSTOM,
    "pods of ReplicaSets with fewer replicas keep their node there; in Ebb they do not": """
        min-replica-count""",
    "how long pods of kube-system keep their node there; in Ebb as long as they are on it, unless "
    "`nodeUtilization.keepSystem` is false": "blocking-system-pod-distruption-timeout",
    "pods of lower priority count for nothing there; in Ebb what running ones ask for counts, and "
    "the cutoff is -10, the autoscaler's default": "expendable-pods-priority-cutoff",
    "Ebb counts what all pods of a node ask for, CPU and memory": """
        ignore-daemonsets-utilization ignore-mirror-pods-utilization
        scale-down-gpu-utilization-threshold""",
    "nodes that are not ready are left to the autoscaler": """
        max-total-unready-percentage ok-total-unready-count scale-down-unready-enabled
        scale-down-unready-time""",
    "Ebb leaves a node that did not empty alone for `backoff`": """
        scale-down-delay-after-delete scale-down-delay-after-failure scale-down-delay-type-local
        unremovable-node-recheck-timeout""",
}
WITHOUT: Final[Mapping[str, str]] = {
    name: why for why, names in _BY_REASON.items() for name in names.split()
}
"""Explanation for each flag without an equivalent; any other flag has OTHERS."""
NOTES: Final = (
    "group size at the cloud: Ebb does not ask for it; the autoscaler waits while it is not met",
    "scale-up rules, and removing empty nodes: stay with the autoscaler, which must go on running",
    f"draining: the autoscaler evicts a node's pods; {DRAINING}",
)
EMPTY_ALONE: Final = (
    "only nodes without requests go: Ebb marks no others for that, so it observes; with "
    "`mode: enforce` it would mark nodes under `nodeUtilization.utilization`, 50%"
)


def _settings_of(one: object) -> Sequence[Given]:
    if isinstance(one, list) and all(isinstance(word, str) for word in one):
        return _flags(one)
    args = field(one, "extraArgs")
    if isinstance(args, dict):
        return _ours([Given(_name(key), value) for key, value in args.items()], [])
    return [given for container in containers(one) for given in _flags(_command(container))]


def _command(container: object) -> list[str]:
    """Return the command line of a container; if it is `sh -c`, the words that the shell runs."""
    found: list[str] = []
    for part in (field(container, "command"), field(container, "args")):
        found += [str(word) for word in part] if isinstance(part, list) else []
    if len(found) > 2 and found[1] == SHELL:
        return words(found[2], "command")
    return found


def _flags(given: Sequence[str]) -> Sequence[Given]:
    """Parse flags as Cluster Autoscaler does: value after = or as next word, - and _ are equal."""
    found: list[Given] = []
    left = list(reversed(given))
    program = []
    while left:
        word = left.pop()
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            (found.append(Given(word, None)) if found else program.append(word))
        elif equals:
            found.append(Given(_name(name), value))
        else:
            apart = left and not left[-1].startswith("-") and not _is_flag(_name(name))
            found.append(Given(_name(name), left.pop() if apart else "true"))
    return _ours(found, program)


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("_", "-")


def _is_flag(name: str) -> bool:
    return name in TAKEN and TAKEN[name].kind in (FLAG, MODE)


def _ours(found: Sequence[Given], program: Sequence[str]) -> Sequence[Given]:
    """Return the flags if the program's name or at least one flag is Cluster Autoscaler's."""
    named = any(map(is_autoscaler, program))
    return found if named or any(one.key in TAKEN or one.key in WITHOUT for one in found) else ()


def _convert(given: Sequence[Given]) -> Migrated:
    result = Migrated.by(POLICY)
    thresholds = [one for one in given if one.key == THRESHOLD]
    empty_alone = thresholds and read(THRESHOLD, thresholds[-1].value, NUMBER) == 0
    others = [one for one in given if not (empty_alone and one.key == THRESHOLD)]
    result.each(others, TAKEN, lambda key: WITHOUT.get(key, OTHERS))
    if empty_alone:
        result.put(("mode",), OBSERVE)
        result.leave(thresholds[-1], EMPTY_ALONE)
    if all(one.key != CUSTOM for one in given):
        result.notes.append(f"{CUSTOM}, on by default: {WITHOUT[CUSTOM]}")
    result.notes.extend(NOTES)
    return result


TOOL: Final = Tool("Cluster Autoscaler", TAKEN, _settings_of, _convert)
