"""Every code by which a node stays or a mark stays soft: what it means and what helps.

The codes stand in plans, in `ebb explain` and `ebb status`, in the metric's label `reason` and in
Events. They are a contract: add, never rename. docs/reasons.md is written from this table. A test
compares it with the codes that core/ and webhook/ use, so that neither has one that the other
lacks.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from core.guards.pod_reasons import NATURE, Reason
from core.reason import Blocker
from core.writes.soft_reasons import SOFT

NODE_WORD: Final = "NODE"
POD_WORDS: Final = ("NAMESPACE", "NAME")


class Advice(NamedTuple):
    """A reason's words about one node, and one of its pods if the blocker is about a pod."""

    meaning: str
    fix: str
    lifted: str


STAYS: Final = (
    Reason(
        "being-deleted",
        "The node is leaving: its object is being deleted, or an autoscaler, a notice of the "
        "cloud or a person has tainted it. Ebb counts it as gone and places its pods first.",
        "nothing to do: somebody is at work; if it is stuck, whoever set the taint in the message "
        "says why in its own log",
        "the node is gone, or the taint has been taken back",
    ),
    Reason(
        "virtual-node",
        "The node stands for no machine (a virtual kubelet, Fargate): there is nothing to save, "
        "so it never goes, takes no pods in a plan and is in no sum.",
        "nothing to do; if it is a machine, take away the label or taint that says otherwise",
        "neither its labels, nor its taints, nor its providerID say that it is virtual",
    ),
    Reason(
        "opted-out",
        "An annotation keeps the node: Ebb's own, Karpenter's, or Cluster Autoscaler's "
        "scale-down-disabled written by somebody else than Ebb.",
        "kubectl annotate node {node} KEY- (the key is in the message)",
        "the annotation is gone",
    ),
    Reason(
        "cordoned",
        "The node is unschedulable: somebody is working on it, and Ebb keeps its hands off.",
        "kubectl uncordon {node}",
        "the node is schedulable again",
    ),
    Reason(
        "not-ready",
        "The node's condition Ready is not True, so nothing about it can be relied on.",
        "kubectl describe node {node} (see Conditions)",
        "the kubelet reports Ready",
    ),
    Reason(
        "control-plane",
        "The node carries a control-plane label, and such nodes never go.",
        "nothing to do; if it is no control-plane node, remove the label that the message names",
        "the label is gone",
    ),
    Reason(
        "unreadable",
        "The Node could not be read, or its status has neither allocatable nor capacity, so "
        "nobody knows what it could hold: it stays and takes nothing.",
        "kubectl get node {node} -o yaml (the field is in the message); a kubelet that is "
        "restarted writes its status anew",
        "the field in the message is what the API says it must be",
    ),
    Reason(
        "pod-unreadable",
        "A pod of the node could not be read, so nobody knows what it asks for: it does not move, "
        "and its node takes nothing.",
        "kubectl -n {namespace} get pod {name} -o yaml (the field is in the message); replace it",
        "the pod is gone, or the field in the message is what the API says it must be",
    ),
    Reason(
        "asks-too-much",
        "A pod asks for more terms, constraints or labels than Ebb evaluates for one pod, or for "
        "the pods of one namespace together; so it counts as not movable, and what it asks of "
        "other pods is not evaluated.",
        "let the pod's owner ask for less (the message says of what); or move the pod yourself: "
        "kubectl -n {namespace} delete pod {name}",
        "the pod has finished, runs elsewhere, or asks for less",
    ),
    Reason(
        "pod-resource-claims",
        "A pod holds devices by resource claims (DRA), whose place Ebb cannot choose.",
        "kubectl -n {namespace} delete pod {name}, at a time when that does no harm",
        "the pod has finished, or runs elsewhere",
    ),
    Reason(
        "pod-unsupported",
        "A pod asks for something that Ebb cannot evaluate, so it counts as not movable: "
        "Ebb never guesses.",
        "change the fields that the message names in the pod's owner, or move the pod yourself: "
        "kubectl -n {namespace} delete pod {name}",
        "the pod has finished, runs elsewhere, or does not use the fields any more",
    ),
    Reason(
        "pod-volumes",
        "A pod uses a claim of which Ebb does not know enough: which volume it is bound to, which "
        "nodes reach that, or how many volumes they take; so it counts as not movable.",
        "kubectl -n {namespace} describe pod {name} (see Volumes); a dump needs pv, pvc and "
        "csinodes too",
        "every claim of the pod is bound to a volume of a known kind, or the pod has finished or "
        "runs elsewhere",
    ),
    Reason(
        "delay",
        "The node is a candidate, but has not been one for longer than the configured delay.",
        "wait; or set `delay` lower in the configuration",
        "it has been a candidate without a break for longer than `delay`",
    ),
    Reason(
        "no-room",
        "A pod of the node finds no place on the nodes that stay.",
        "ebb explain pod {namespace}/{name} (says which rule refuses which nodes)",
        "another node admits the pod and has room for it, beside all other pods that must move",
    ),
    Reason(
        "threshold",
        "Without the node, the cluster's requests would exceed a threshold of its capacity.",
        "wait for requests to fall, lower what pods ask for beyond their use, or raise "
        "`thresholds` in the configuration",
        "requests without the node are within `thresholds` of the capacity without it",
    ),
    Reason(
        "usable-threshold",
        "Capacity without the node would do in sum, but too much of it is in pieces that no pod "
        "can use.",
        "raise `thresholds`, or see whether `usability` describes your pods: the plan prints it",
        "requests are within `thresholds` of the usable capacity without the node",
    ),
    Reason(
        "reach-threshold",
        "The nodes that some of the cluster's pods can use would be too full: other nodes, behind "
        "taints or other labels, are of no use to them.",
        "wait for requests there to fall, give those nodes' pods a wider choice, or raise "
        "`thresholds`; docs/reaches.md explains reaches",
        "requests on the reach's nodes are within its thresholds of their usable capacity",
    ),
    Reason(
        "unreached",
        "Only pods that Ebb cannot evaluate could use the node, so no threshold would protect "
        "them.",
        "see those pods' own reasons: ebb explain pod; or mark nothing here",
        "a pod that Ebb can evaluate could use the node, or none that it cannot",
    ),
    Reason(
        "last-node",
        "No other node would be left that pods can use.",
        "nothing to do",
        "the cluster has another node that counts",
    ),
    Reason(
        "peak-demand",
        "Requests of now would do without the node, but those of the busiest moment in the "
        "window that is looked back on would not.",
        "wait; or set `peakWindow` shorter in the configuration",
        "the busiest moment has left the window, or would be within `thresholds` too",
    ),
    Reason(
        "headroom",
        "Without the node there would be no room for pods as large as the largest, for which "
        "room must be left.",
        "set `headroom` lower in the configuration, or lower what the largest pods ask for",
        "that many pods of that size find a place on the nodes that stay",
    ),
    Reason(
        "no-pool",
        "Pools are configured and the node is in none of them; such nodes never go.",
        "add a pool whose nodeSelector matches the node's labels to `pools`",
        "a configured pool selects the node",
    ),
    Reason(
        "min-nodes",
        "The cluster, or the node's pool, would have fewer nodes than the configured minimum.",
        "set `minNodes` lower in the configuration, if the minimum is not meant",
        "the cluster or pool has more nodes than `minNodes`, not counting those that go",
    ),
    Reason(
        "zone-balance",
        "The node's zone would fall behind another zone by more than one node.",
        "wait for nodes of the larger zones to go; or set `balanceZones: false`",
        "no zone has more nodes than the node's own, not counting those that go",
    ),
    Reason(
        "budget-marked",
        "As many nodes of the cluster, or of the pool, carry a mark as may at once.",
        "wait for marked nodes to empty and go; or raise `maxMarked`",
        "fewer nodes are marked than `maxMarked`",
    ),
    Reason(
        "budget-window",
        "As many nodes of the cluster, or of the pool, were marked within the window as may be.",
        "wait; or raise `maxInWindow`, or make `budgets.window` shorter",
        "fewer marks than `maxInWindow` are younger than `budgets.window`",
    ),
    Reason(
        "cooldown",
        "A node was added a short time ago: while the cluster grows, nothing is marked.",
        "wait; or set `cooldown.afterNodeAdd` shorter",
        "no node has been added for `cooldown.afterNodeAdd`",
    ),
    Reason(
        "pods-pending",
        "A pod turned unschedulable a short time ago that some node would admit: while room is "
        "short, nothing is marked.",
        "wait; or set `cooldown.afterPending` shorter",
        "no pod has turned unschedulable for `cooldown.afterPending`",
    ),
    Reason(
        "backoff",
        "The node was marked before and did not empty before its deadline, so it is left alone "
        "for a time that doubles with each such failure.",
        "see what kept pods on it: ebb explain node {node}; to try again at once: "
        "kubectl annotate node {node} kube-ebb.io/backoff-",
        "the time in its annotation kube-ebb.io/backoff has passed",
    ),
    Reason(
        "time-box",
        "The pass had no time left for the node, because the cluster asks much of it or because "
        "something came up that could not wait; what else speaks against it was not looked for.",
        "nothing to do: the next pass judges it; if that goes on, "
        "ebb_engine_pass_timeouts_total grows, and the engine needs a faster processor",
        "a pass reaches the node in time",
    ),
    Reason(
        "limit",
        "As many other nodes go in this plan as may go at a time.",
        "wait for those to go; or allow more (`ebb plan --max-removals`)",
        "fewer nodes are chosen before it than may go",
    ),
)
"""Why a node stays, in the order in which the page lists them."""
REASONS: Final[Mapping[str, Reason]] = {reason.code: reason for reason in (*STAYS, *SOFT, *NATURE)}
"""All, by code."""


_PAGE_HEAD: Final = """\
# Reasons

Every node that stays has all its reasons at all times, each with one of these codes. They are the same in `ebb plan`, `ebb explain`, `ebb status`, in
the label `reason` of the metric `ebb_engine_kept_nodes`, and in Events. Codes are added, never renamed.

`ebb reasons -o markdown` writes this page from `core/explain/reasons.py`; `make fix` writes it anew.

## Why a node stays
"""  # noqa: E501 lines of a page, as long as those of the others


def advice(blocker: Blocker, node: str) -> Advice:
    """Return what to say about a blocker of *node*, with its names filled in."""
    namespace, name = POD_WORDS
    if blocker.pod is not None:
        namespace, _, name = blocker.pod.partition("/")
    return _filled(REASONS[blocker.code], node=node, namespace=namespace, name=name)


def in_general(reason: Reason) -> Advice:
    """Return what to say about no node in particular: NODE, NAMESPACE and NAME stand there."""
    namespace, name = POD_WORDS
    return _filled(reason, node=NODE_WORD, namespace=namespace, name=name)


def _filled(reason: Reason, **names: str) -> Advice:
    return Advice(reason.meaning, reason.fix.format_map(names), reason.lifted.format_map(names))


def page() -> str:
    """Write docs/reasons.md."""
    soft = "## Why a mark stays soft\n\nOnly where `hardAfter` is configured.\n"
    nature = "## Why a node empties late\n\nWhat is known of a pod's leaving. It blocks nothing.\n"
    parts = [*map(_part, STAYS), soft, *map(_part, SOFT), nature, *map(_part, NATURE)]
    return "\n".join([_PAGE_HEAD, *parts])


def _part(reason: Reason) -> str:
    told = in_general(reason)
    return (
        f"### `{reason.code}`\n\n{told.meaning}\n\n"
        f"- Cheapest fix: {told.fix}.\n- It ends when {told.lifted}.\n"
    )
