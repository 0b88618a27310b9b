"""Checks of kube-scheduler: which nodes it prefers, and whether it calls the extender.

A KubeSchedulerConfiguration is a file on the nodes of the control plane, which no API serves. So
the command takes a copy of it; without one, only the flags of kube-scheduler's pods are visible.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cli.doctor.finding import (
    Check,
    CheckResult,
    Evidence,
    Facts,
    ok,
    problem,
    unknown,
    unread,
)
from cli.doctor.programs import Program, schedulers
from cli.input.setup import SYSTEM_PODS, running_extenders
from core.model.humanize import plural

FIT: Final = "NodeResourcesFit"
BALANCED: Final = "NodeResourcesBalancedAllocation"
PACKING: Final = ("MostAllocated", "RequestedToCapacityRatio")
DEFAULT_STRATEGY: Final = "LeastAllocated"
CONFIG: Final = "config"
"""Flag of kube-scheduler that names its configuration."""
VERB: Final = "prioritize"
WEIGHT_MIN: Final = 100
"""Weight with which the scores of the extender outweigh all plugins together."""
NEWER_SECONDS: Final = 60
"""Time after the start of the extender after which kube-scheduler calls it."""
METRIC: Final = "ebb_extender_prioritize_requests_total"
GIVE_OPTION: Final = (
    "copy the file that kube-scheduler's flag --config names, and run "
    "`ebb doctor --scheduler-config FILE`"
)
LOOK_AT_METRIC: Final = (
    f'create a pod, and check that the metric {METRIC} with result="scored" increases '
    "(docs/metrics.md)"
)


def _scoring(facts: Facts) -> CheckResult:
    if facts.scheduler is not None:
        evidence = [*_spreading(facts, facts.scheduler)]
        if evidence:
            return problem("kube-scheduler prefers emptier nodes", evidence)
        return ok(f"{facts.scheduler_file}: every profile prefers fuller nodes")
    programs = schedulers(facts)
    if bare := _without_file(programs):
        return problem(
            f"kube-scheduler has no configuration file, so it uses {DEFAULT_STRATEGY}", bare
        )
    if programs:
        evidence = [program.evidence(CONFIG, "") for program in programs]
        why = "the configuration of kube-scheduler is a file on the control-plane nodes"
        return unknown(why, GIVE_OPTION, *evidence)
    return _no_scheduler(facts)


def _without_file(programs: Sequence[Program]) -> list[Evidence]:
    return [
        Evidence(program.object, f"--{CONFIG}", "not set")
        for program in programs
        if program.text(CONFIG) is None
    ]


def _no_scheduler(facts: Facts) -> CheckResult:
    read = facts.setup.of(SYSTEM_PODS)
    if read.absent:
        return unread(SYSTEM_PODS.resource, read.absent)
    return unknown(
        "no pod runs kube-scheduler, so it is probably part of a managed control plane",
        "look up the scheduler profile of your provider "
        f"(docs/install-reference.md#managed-clusters-eks-gke-aks), or {GIVE_OPTION}",
    )


def _spreading(facts: Facts, content: Mapping[str, Any]) -> Iterator[Evidence]:
    """Yield the settings because of which profiles of kube-scheduler prefer emptier nodes.

    *content*: the KubeSchedulerConfiguration.
    """
    for profile in _mappings(content.get("profiles")) or ({},):
        name = profile.get("schedulerName", "default-scheduler")
        where = f"{facts.scheduler_file}, profile {name!s:.80}"
        fit = (
            plugin.get("args")
            for plugin in _mappings(profile.get("pluginConfig"))
            if plugin.get("name") == FIT
        )
        strategy = _within(next(fit, None), "scoringStrategy", "type") or DEFAULT_STRATEGY
        if strategy not in PACKING:
            yield Evidence(where, f"{FIT}.scoringStrategy.type", f"{strategy!s:.80}")
        elif not _disables(profile, BALANCED):
            yield Evidence(where, BALANCED, "enabled")


def _disables(profile: Mapping[str, Any], plugin: str) -> bool:
    return any(
        entry.get("name") in (plugin, "*")
        for point in ("multiPoint", "score")
        for entry in _mappings(_within(profile, "plugins", point, "disabled"))
    )


def _extender(facts: Facts) -> CheckResult:
    installed = bool(running_extenders(facts.cluster, facts.namespace))
    if facts.scheduler is not None and (wrong := _of_file(facts, facts.scheduler, installed)):
        return wrong
    if not installed:
        return ok("Ebb's extender is optional, and not installed")
    called = facts.setup.extender.value
    if called is not None and (scored := called.by_result.get("scored", 0)):
        counted = f"counted by {plural(called.replicas, 'replica')} of the extender"
        return ok(f"{plural(scored, 'call')} of kube-scheduler, {counted}")
    if bare := _without_file(schedulers(facts)):
        return problem("kube-scheduler has no configuration that names the extender", bare)
    if called is None:
        return unknown(facts.setup.extender.absent, LOOK_AT_METRIC)
    return _not_called(facts, called.by_result)


def _of_file(facts: Facts, content: Mapping[str, Any], installed: bool) -> CheckResult | None:  # noqa: FBT001 a fact
    """Return the problem with the extender in kube-scheduler's configuration, or None.

    *content*: the KubeSchedulerConfiguration. *installed*: pods of the extender run.
    """
    listed = [
        extender
        for extender in _mappings(content.get("extenders"))
        if extender.get("prioritizeVerb") == VERB
    ]
    if installed and not listed:
        evidence = [
            Evidence(facts.scheduler_file, "extenders", f"none with prioritizeVerb: {VERB}")
        ]
        return problem("kube-scheduler's configuration lacks Ebb's extender", evidence)
    if listed and not installed:
        evidence = [Evidence(f"namespace {facts.namespace}", "pods of the extender", "0")]
        return problem(
            "kube-scheduler is configured to call the extender, but no pod of the extender runs",
            evidence,
        )
    wrong = [evidence for extender in listed for evidence in _wrong(facts, extender)]
    return (
        problem("the entry of the extender in kube-scheduler's configuration is wrong", wrong)
        if wrong
        else None
    )


def _not_called(facts: Facts, by_result: Mapping[str, int]) -> CheckResult:
    evidence = [
        Evidence("metrics of ebb-extender", f"{VERB} calls, {result}", str(count))
        for result, count in sorted(by_result.items())
    ]
    if any(by_result.values()):
        return problem("the extender gives no scores to kube-scheduler", evidence)
    started = max(
        (pod.created_seconds or 0 for pod in running_extenders(facts.cluster, facts.namespace)),
        default=0,
    )
    newer = [
        pod
        for pod in facts.cluster.pods
        if pod.node is not None
        and not pod.stays_with_node
        and pod.scheduler in facts.config.schedulers
        and (pod.created_seconds or 0) > started + NEWER_SECONDS
    ]
    if not newer:
        return unknown(
            "no pod was scheduled since the extender started",
            "create a pod, and run `ebb doctor` again",
            *evidence,
        )
    scheduled = Evidence(f"Pod {newer[0].key}", "spec.nodeName", str(newer[0].node))
    seen = f"kube-scheduler did not call the extender for {plural(len(newer), 'new pod')}"
    return problem(seen, [*evidence, scheduled])


def _wrong(facts: Facts, extender: Mapping[str, Any]) -> Iterator[Evidence]:
    """Yield the fields of an extender's entry that differ from manifests/scheduler."""
    where = f"{facts.scheduler_file}, extender {extender.get('urlPrefix', '')!s:.80}"
    for field in ("nodeCacheCapable", "ignorable"):
        if extender.get(field) is not True:
            yield Evidence(where, field, f"{extender.get(field, False)!s:.80}".lower())
    weight = extender.get("weight", 0)
    if not isinstance(weight, int) or weight < WEIGHT_MIN:
        yield Evidence(where, "weight", f"{weight!s:.80}")


def _mappings(value: object) -> Sequence[Mapping[str, Any]]:
    """Return the mappings in a list; empty if *value* is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _within(value: object, *path: str) -> object:
    """Return the value at a path of nested mappings, or None if the path does not exist."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


CHECKS: Final = (
    Check(
        code="scheduler-scoring",
        question="Does kube-scheduler prefer fuller nodes?",
        effect="new pods go to emptier nodes, so marked nodes empty more slowly and fewer nodes "
        "are removable",
        fix="use the profile of manifests/scheduler/kube-scheduler-config.yaml "
        "(docs/install-reference.md#kube-scheduler-if-you-run-it-yourself)",
        run=_scoring,
    ),
    Check(
        code="extender",
        question="Does kube-scheduler call the extender?",
        effect="the scores of the extender have no effect",
        fix="configure kube-scheduler as in "
        "docs/install-reference.md#kube-scheduler-if-you-run-it-yourself, or remove the component "
        "extender",
        run=_extender,
    ),
)
