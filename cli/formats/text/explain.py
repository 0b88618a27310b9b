"""The answers of `ebb explain` and `ebb reasons` as text."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from cli.answers import Explained, NodeExplained, PodExplained, Reasons
from cli.explain.explainer import NodeAnswer, NodeVerdict, PodAnswer
from cli.explain.reasons import REASONS, advice, with_placeholders
from cli.formats.text import leader
from cli.formats.text.reaches import in_percent
from cli.input.cluster_input import ClusterInput
from cli.input.mark_status import MarkStatus
from cli.terminal import Table, say
from core.engine.plan import REACHES_SHOWN
from core.model.humanize import amounts, first, plural, timestamp
from core.model.node_lifecycle import why_leaving
from core.model.pod import Pod
from core.model.reason import Blocker

NODES_SHOWN: Final = 5
NOT_CONSIDERED: Final = (
    "Only a running controller knows how long nodes have been candidates, which nodes were added "
    "recently, how long pods have been Pending, and the peak demand. It may mark the node later."
)


def write(answer: Explained, out: Console) -> None:
    """Write explanations, separated by empty lines."""
    for number, explained in enumerate(answer.explanations):
        if number:
            say(out, "", "")
        if isinstance(explained, NodeExplained):
            write_node(explained, out)
        else:
            write_pod(explained, out)


def write_node(explained: NodeExplained, out: Console) -> None:
    """Write why a node is removable or not, its mark's state, and where its pods could run."""
    answer, origin = explained.answer, explained.cluster_input.origin
    facts_of_node = (("node", answer.node.name), *node_facts(explained), *origin)
    say(out, Table("", "", rows=facts_of_node, left=(0, 1)))
    for title, blockers in node_reasons(answer):
        _write_reasons(title, blockers, answer.node.name, out)
    if answer.placements or answer.unassigned:
        say(out, "", _moves(answer))
    facts = explained.cluster_input.facts
    if facts is None:
        say(out, "", NOT_CONSIDERED)
    else:
        rows = leader.rows_about_node(
            facts, answer.node.name, explained.limits, explained.now_seconds
        )
        say(out, "", Table("known to the leader", "", rows=rows, left=(0, 1)))


def write_pod(explained: PodExplained, out: Console) -> None:
    """Write whether a pod is movable, on which nodes it could run, and what rejects it."""
    answer = explained.answer
    facts = _pod_facts(answer, explained.cluster_input)
    say(out, Table("", "", rows=facts, left=(0, 1)))
    _write_reasons("not movable because", answer.blockers, answer.pod.node or "", out)
    _write_reasons("lifetime and disruption", answer.remarks, answer.pod.node or "", out)
    if answer.rejections:
        say(out, "")
        rows = [(rule, f"{count:,}") for rule, count in answer.rejections]
        say(out, Table("rejected by", "nodes", rows=rows))


def write_codes(answer: Reasons, out: Console) -> None:
    """Write reason codes with their meaning and fix."""
    reasons = [with_placeholders(REASONS[code]) for code in answer.codes]
    rows = ((reason.code, reason.meaning, reason.fix) for reason in reasons)
    say(out, Table("code", "means", "cheapest fix", rows=rows, left=(0, 1, 2)))


def _write_reasons(title: str, blockers: Sequence[Blocker], node: str, out: Console) -> None:
    """Write a table of all blockers, and for each reason code once its meaning and fix.

    Nothing is written without blockers. *title*: heading of the table. *node*: name for the fixes.
    """
    if blockers:
        by_code: dict[str, list[Blocker]] = {}  # in order of first occurrence
        for blocker in blockers:
            by_code.setdefault(blocker.code, []).append(blocker)
        rows = [row for code, group in by_code.items() for row in _reason(code, group, node)]
        say(out, "", Table(title, "", "", rows=rows, left=(0, 1, 2)))


def node_reasons(answer: NodeAnswer) -> Iterator[tuple[str, Sequence[Blocker]]]:
    """Yield the reasons of a node with their heading, such as those against its removal."""
    yield "not removable because", answer.blockers
    yield "not marked now because", answer.rate_limits
    yield "scale-down not allowed because", answer.reserved
    yield "stays PreferNoSchedule because", answer.no_schedule_blockers
    yield "may empty late because", answer.long_lived
    yield "pods not evicted because", answer.not_evicted
    yield "pods not moved because", answer.not_moved


def node_facts(explained: NodeExplained) -> list[tuple[str, str]]:
    """Return rows of label and text: the verdict, the mark, the rank and the reaches of a node."""
    answer = explained.answer
    with_it = sum(pod.stays_with_node for pod in answer.pods)
    rank = (
        f"price {float(answer.price):g}, {plural(answer.to_move, 'pod')} to move, "
        f"{in_percent(answer.share)} requested"
    )
    return [
        ("verdict", _verdict(answer)),
        *_mark_facts(explained.status, explained.now_seconds),
        ("ranked by", answer.policy_text or rank),
        ("pods", f"{len(answer.pods)} ({with_it} DaemonSet or static pods)"),
        *_scale_ins(explained.status),
        *_surge_moves(answer),
        ("reaches", _reaches(answer)),
        ("autoscaler", _scalability(answer)),
    ]


def _scale_ins(status: MarkStatus) -> list[tuple[str, str]]:
    """Return a row about pods of the node that scale-ins delete first; empty if there are none."""
    if not status.scaled_in_first:
        return []
    order = "first" if status.mark else "after the pods of marked nodes"
    return [("scale-ins", f"delete {plural(status.scaled_in_first, 'pod')} of this node {order}")]


def _surge_moves(answer: NodeAnswer) -> list[tuple[str, str]]:
    if answer.moved is None or not answer.to_move:
        return []
    return [("surge moves", f"would move {plural(answer.moved, 'pod')} of this node")]


def _reaches(answer: NodeAnswer) -> str:
    """Return the names of the reaches that contain the node, or why there are none.

    A reach is a set of nodes that some pods can use; its thresholds apply to the node.
    """
    if not answer.reached:
        return "none: no pod that Ebb may move could run here, so no threshold applies"
    reaches = [f"{reach.name} ({plural(len(reach.nodes), 'node')})" for reach in answer.reaches]
    alone = "none: the pods that could run here can run on no other node"
    return first(reaches, REACHES_SHOWN) or alone


def _scalability(answer: NodeAnswer) -> str:
    state, evidence, _ = answer.scalability
    return f"{state.value.replace('-', ' ')}: {evidence}"


def _reach(answer: PodAnswer) -> str:
    if answer.reach is None:
        return f"{plural(answer.admitted, 'node')}: a set for which Ebb checks no thresholds"
    return f"{answer.reach.name} ({plural(answer.admitted, 'node')})"


def _verdict(answer: NodeVerdict) -> str:
    if (why := why_leaving(answer.node)) is not None:
        return f"already leaving: {why}"
    if answer.order is not None:
        return f"removable, number {answer.order} in the plan"
    codes = list(dict.fromkeys(blocker.code for blocker in answer.blockers))
    all_of = " (all must be resolved)" if len(codes) > 1 else ""
    return f"not removable: {', '.join(codes)}{all_of}"


def _mark_facts(status: MarkStatus, now_seconds: int) -> list[tuple[str, str]]:
    protection = ("scale-down protection", status.protection.value)
    if status.mark is None:
        until = status.backoff_until
        backoff = [("not marked again before", timestamp(until, now_seconds))] if until else []
        wrong = (
            []
            if status.taints_correct
            else [("taint", "Ebb's taint is set without a mark: the controller removes the taint")]
        )
        return [("mark", "none"), protection, *wrong, *backoff]
    since = timestamp(status.since, now_seconds) if status.since else "unknown"
    facts = [("mark", status.effect), ("since", since)]
    if status.details is None:
        facts.append(
            (
                "details of the mark",
                "the annotation is missing or invalid: the controller writes it again",
            )
        )
    else:
        then = "extends the deadline, as the node is empty" if status.empty else "unmarks the node"
        late = f"; overdue: the controller {then}" if status.overdue else ""
        deadline = timestamp(status.details.deadline, now_seconds) + late
        owner = f"{status.details.owner}, policy {status.details.policy}"
        facts += [("deadline", deadline), ("owner", owner)]
    taint = (
        "matches the mark"
        if status.taints_correct
        else "does not match the mark: the controller corrects the taint"
    )
    left = "none: the node is empty" if status.empty else plural(status.pods_left, "pod")
    return [*facts, ("taint", taint), protection, ("pods left", left)]


def _reason(code: str, blockers: Sequence[Blocker], node: str) -> Iterator[tuple[str, str, str]]:
    for number, blocker in enumerate(blockers):
        about = f"{blocker.pod}: " if blocker.pod else ""
        yield "" if number else code, "because", about + blocker.message
    reason = advice(blockers[0], node)
    same = all(advice(blocker, node).fix == reason.fix for blocker in blockers)
    yield "", "means", reason.meaning
    yield "", "fix", reason.fix + ("" if same else "; likewise for the other pods")
    yield "", "ends when", reason.ends_when


def _moves(answer: NodeAnswer) -> Table:
    condition = "as planned" if answer.order is not None else "if only this node is removed"
    places = *answer.placements, *((key, f"no node: {why}") for key, why in answer.unassigned)
    rows = [(_with_origin(answer, pod), place) for pod, place in places]
    return Table("pod", f"would fit on ({condition})", rows=rows, left=(0, 1), names_above=True)


def _with_origin(answer: NodeAnswer, pod: str) -> str:
    """Return the pod, and where it is if the plan has placed it on the node."""
    if pod not in answer.planned_from:
        return pod
    origin = answer.planned_from[pod]
    return f"{pod} (planned here{f' from {origin}' if origin else ', now Pending'})"


def _pod_facts(answer: PodAnswer, cluster_input: ClusterInput) -> list[tuple[str, str]]:
    pod = answer.pod
    return [
        ("pod", pod.key),
        ("node", pod.node or "none: the pod is Pending"),
        ("requests", amounts(pod.requests)),
        ("movable", _movable(pod, answer)),
        *([("reach", _reach(answer))] if answer.admitted else []),
        *_future(answer),
        *cluster_input.origin,
    ]


def _movable(pod: Pod, answer: PodAnswer) -> str:
    if pod.stays_with_node:
        kind = "static" if pod.mirror else "DaemonSet"
        return f"no move needed: a {kind} pod is removed with its node"
    if answer.node is not None and answer.node.virtual:
        return "no move needed: its node is virtual and is never removed"
    if answer.node is None and pod.node is not None:
        return "no move needed: its node no longer exists, and the pod will be garbage-collected"
    if answer.blockers:
        return f"no: {', '.join(blocker.code for blocker in answer.blockers)}"
    return "yes"


def _future(answer: PodAnswer) -> list[tuple[str, str]]:
    facts = []
    if answer.node_answer is not None:
        facts.append(("its node", _verdict(answer.node_answer)))
    if answer.target is not None:
        facts.append(
            ("if its node is removed" if answer.node_answer else "planned node", answer.target)
        )
    if answer.why_no_target is not None:
        facts.append(("no node because", answer.why_no_target))
    if answer.feasible or answer.feasible_marked or answer.rejections:
        facts += [
            ("could run on", first(answer.feasible, NODES_SHOWN) or "no node"),
            ("could run on marked nodes", first(answer.feasible_marked, NODES_SHOWN) or "no node"),
        ]
    return facts
