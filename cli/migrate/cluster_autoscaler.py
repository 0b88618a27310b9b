"""Convert flags of Cluster Autoscaler: from a command line, a container, or Helm values."""

from collections.abc import Mapping, Sequence
from typing import Final

from cli.migrate.settings_file import SHELL, containers, field, is_autoscaler, words
from cli.migrate.tool import DRAINING, OBSERVE, Migrated, SourceSetting, TargetSetting, Tool
from cli.migrate.values import DURATION, FLAG, INTERVAL, MODE, NUMBER, SHARE, read

POLICY: Final = "NodeUtilization"
THRESHOLD: Final = "scale-down-utilization-threshold"
TAKEN: Final[Mapping[str, TargetSetting]] = {
    "scale-down-enabled": TargetSetting(("mode",), MODE),
    THRESHOLD: TargetSetting(("nodeUtilization", "utilization"), SHARE),
    "scale-down-unneeded-time": TargetSetting(("unneededTime",), DURATION),
    "scale-down-delay-after-add": TargetSetting(("cooldown", "delayAfterAdd"), DURATION),
    "scan-interval": TargetSetting(("controller", "interval"), INTERVAL),
    "skip-nodes-with-system-pods": TargetSetting(("nodeUtilization", "keepSystem"), FLAG),
    "skip-nodes-with-local-storage": TargetSetting(("nodeUtilization", "keepLocalStorage"), FLAG),
}
OTHERS: Final = "remains a setting of the autoscaler"
CUSTOM: Final = "skip-nodes-with-custom-controller-pods"
_BY_REASON: Final[Mapping[str, str]] = {
    "node groups and sizes remain with the autoscaler; `budgets` and `pools` limit marks": """
        cloud-provider cores-total enforce-node-group-min-size gpu-total max-nodes-total
        memory-total node-group-auto-discovery nodes""",
    "scale-up remains with the autoscaler": """
        balance-similar-node-groups balancing-ignore-label balancing-label
        enable-proactive-scaleup estimator expander force-ds ignore-taint
        initial-node-group-backoff-duration max-binpacking-time max-node-group-backoff-duration
        max-node-provision-time max-node-startup-time max-nodegroup-binpacking-duration
        max-nodes-per-scaleup new-pod-scale-up-delay node-group-backoff-reset-timeout
        parallel-scale-up scale-from-unschedulable scale-up-from-zero startup-taint
        startup-taint-prefix status-taint""",
    "limits concurrent removals; in Ebb, `budgets.maxMarked` limits the marked nodes": """
        max-bulk-soft-taint-count max-bulk-soft-taint-time max-drain-parallelism
        max-empty-bulk-delete max-scale-down-parallelism""",
    "configures evictions; evictions by Ebb, if enabled, follow `drain`": """
        cordon-node-before-terminating daemonset-eviction-for-empty-nodes
        daemonset-eviction-for-occupied-nodes drain-priority-config max-graceful-termination-sec
        max-pod-eviction-time""",
    "whether pods of unknown controllers block the removal of their node; in Ebb they do not: the "
    "node may be marked, and is removed when they have ended": CUSTOM,
    "whether pods of small ReplicaSets block the removal of their node; in Ebb they do not": """
        min-replica-count""",
    "how long pods of kube-system block the removal of their node; in Ebb as long as they run, "
    "unless `nodeUtilization.keepSystem` is false": "blocking-system-pod-distruption-timeout",
    "the autoscaler ignores pods of lower priority; in Ebb requests of running ones count, and "
    "the cutoff is -10, the autoscaler's default": "expendable-pods-priority-cutoff",
    "Ebb counts the CPU and memory requests of all pods of a node": """
        ignore-daemonsets-utilization ignore-mirror-pods-utilization
        scale-down-gpu-utilization-threshold""",
    "nodes that are not Ready remain with the autoscaler": """
        max-total-unready-percentage ok-total-unready-count scale-down-unready-enabled
        scale-down-unready-time""",
    "Ebb skips a node that did not become empty; `backoff` says how long": """
        scale-down-delay-after-delete scale-down-delay-after-failure scale-down-delay-type-local
        unremovable-node-recheck-timeout""",
}
WITHOUT: Final[Mapping[str, str]] = {
    name: why for why, names in _BY_REASON.items() for name in names.split()
}
"""Explanation for each flag without an equivalent; all flags not listed here get OTHERS."""
NOTES: Final = (
    "minimum size of node groups: Ebb does not know it; the autoscaler removes no node below it",
    "scale-up and removal of empty nodes: remain with the autoscaler, which must keep running",
    f"draining: the autoscaler evicts a node's pods; {DRAINING}",
)
EMPTY_ALONE: Final = (
    "with 0 only nodes without requests are removed; Ebb has no equivalent, so the mode is "
    "observe; with `mode: enforce` it would mark nodes under `nodeUtilization.utilization`, 50%"
)


def _settings_of(document: object) -> Sequence[SourceSetting]:
    if isinstance(document, list) and all(isinstance(word, str) for word in document):
        return _flags(document)
    args = field(document, "extraArgs")
    if isinstance(args, dict):
        return _ours([SourceSetting(_name(key), value) for key, value in args.items()], [])
    return [given for container in containers(document) for given in _flags(_command(container))]


def _command(container: object) -> list[str]:
    """Return the words of a container's command line; for `sh -c TEXT`, the words of TEXT."""
    command_line: list[str] = []
    for part in (field(container, "command"), field(container, "args")):
        command_line += [str(word) for word in part] if isinstance(part, list) else []
    if len(command_line) > 2 and command_line[1] == SHELL:
        return words(command_line[2], "command")
    return command_line


def _flags(given: Sequence[str]) -> Sequence[SourceSetting]:
    """Parse the words of a command line to flags; empty if they are not Cluster Autoscaler's.

    As there, a value follows = or is the next word, and - and _ in names are equal.
    """
    settings: list[SourceSetting] = []
    left = list(reversed(given))
    program = []
    while left:
        word = left.pop()
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            (settings.append(SourceSetting(word, None)) if settings else program.append(word))
        elif equals:
            settings.append(SourceSetting(_name(name), value))
        else:
            apart = left and not left[-1].startswith("-") and not _is_flag(_name(name))
            settings.append(SourceSetting(_name(name), left.pop() if apart else "true"))
    return _ours(settings, program)


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("_", "-")


def _is_flag(name: str) -> bool:
    return name in TAKEN and TAKEN[name].value_type in (FLAG, MODE)


def _ours(settings: Sequence[SourceSetting], program: Sequence[str]) -> Sequence[SourceSetting]:
    """Return *settings* if they are Cluster Autoscaler's, otherwise an empty sequence.

    They are if *program* (the words before the first flag) names Cluster Autoscaler, or if at
    least one setting is a flag of it.
    """
    named = any(map(is_autoscaler, program))
    return (
        settings
        if named or any(setting.key in TAKEN or setting.key in WITHOUT for setting in settings)
        else ()
    )


def _convert(given: Sequence[SourceSetting]) -> Migrated:
    result = Migrated.by(POLICY)
    thresholds = [setting for setting in given if setting.key == THRESHOLD]
    empty_alone = thresholds and read(THRESHOLD, thresholds[-1].value, NUMBER) == 0
    others = [setting for setting in given if not (empty_alone and setting.key == THRESHOLD)]
    result.each(others, TAKEN, lambda key: WITHOUT.get(key, OTHERS))
    if empty_alone:
        result.put(("mode",), OBSERVE)
        result.leave(thresholds[-1], EMPTY_ALONE)
    if all(setting.key != CUSTOM for setting in given):
        result.notes.append(f"{CUSTOM}, on by default: {WITHOUT[CUSTOM]}")
    result.notes.extend(NOTES)
    return result


TOOL: Final = Tool("Cluster Autoscaler", TAKEN, _settings_of, _convert)
