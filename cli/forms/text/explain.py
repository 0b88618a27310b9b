"""Explanations for people."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from cli.answers import NodeExplained, PodExplained
from cli.explain.explainer import NodeAnswer, PodAnswer
from cli.explain.reasons import REASONS, advice, in_general
from cli.forms.text.reaches import in_percent
from cli.input.cluster_input import ClusterInput
from cli.input.node_status import NodeStatus
from cli.terminal import Table, say
from core.engine.plan import REACHES_SHOWN
from core.model.humanize import amounts, first, plural, timestamp
from core.model.node_lifecycle import why_leaving
from core.model.pod import Pod
from core.model.reason import Blocker

NODES_SHOWN: Final = 5
NO_DELAY: Final = (
    "Left out is what only the engine that leads has seen: the delay, nodes that came, since when "
    "pods wait, the busiest moment."
)


def write_node(explained: NodeExplained, out: Console) -> None:
    """Write all about a node."""
    answer = explained.answer
    say(out, Table("", "", rows=_node_facts(explained), left=(0, 1)))
    for title, blockers in (
        ("stays for", answer.blockers),
        ("waits for", answer.held),
        ("is kept for", answer.reserved),
        ("stays soft for", answer.against_hard),
        ("empties late for", answer.lingers),
        ("is not drained for", answer.undrained),
    ):
        _write_reasons(title, blockers, answer.node.name, out)
    if answer.placements or answer.homeless:
        say(out, "", _moves(answer))
    say(out, "", NO_DELAY)


def write_pod(explained: PodExplained, out: Console) -> None:
    """Write all about a pod."""
    answer = explained.answer
    facts = _pod_facts(answer, explained.found)
    say(out, Table("", "", rows=facts, left=(0, 1)))
    _write_reasons("not movable for", answer.blockers, answer.pod.node or "", out)
    _write_reasons("its nature", answer.nature, answer.pod.node or "", out)
    if answer.refusals:
        say(out, "")
        rows = [(rule, f"{count:,}") for rule, count in answer.refusals]
        say(out, Table("refused by", "nodes", rows=rows))


def write_codes(out: Console) -> None:
    """Write every code with what it means and what helps."""
    told = ((code, in_general(reason)) for code, reason in REASONS.items())
    rows = ((code, one.meaning, one.fix) for code, one in told)
    say(out, Table("code", "means", "cheapest fix", rows=rows, left=(0, 1, 2)))


def _write_reasons(title: str, blockers: Sequence[Blocker], node: str, out: Console) -> None:
    """Write every blocker, and once for each code what it means and what helps."""
    if blockers:
        by_code: dict[str, list[Blocker]] = {}  # in the order in which the engine gave them first
        for blocker in blockers:
            by_code.setdefault(blocker.code, []).append(blocker)
        rows = [row for code, group in by_code.items() for row in _reason(code, group, node)]
        say(out, "", Table(title, "", "", rows=rows, left=(0, 1, 2)))


def _node_facts(explained: NodeExplained) -> list[tuple[str, str]]:
    answer = explained.answer
    with_it = sum(one.stays_with_node for one in answer.pods)
    rank = (
        f"price {float(answer.price):g}, {plural(answer.to_move, 'pod')} to move, "
        f"{in_percent(answer.share)} requested"
    )
    return [
        ("node", answer.node.name),
        ("verdict", _verdict(answer)),
        *_mark_facts(explained.standing, explained.now_seconds),
        ("tried by", answer.rule or rank),
        ("pods", f"{len(answer.pods)} ({with_it} of DaemonSets or static)"),
        *_scale_ins(explained.standing),
        ("reaches", _reaches(answer)),
        *explained.found.origin,
    ]


def _scale_ins(standing: NodeStatus) -> list[tuple[str, str]]:
    """Say whether scale-ins are told to take pods from here."""
    if not standing.taken_first:
        return []
    order = "first" if standing.mark else "next, after those of marked nodes"
    return [("scale-ins", f"take {plural(standing.taken_first, 'pod')} {order}")]


def _reaches(answer: NodeAnswer) -> str:
    """Name the reaches that the node is in: whose thresholds hold for it."""
    if not answer.reached:
        return "none: no pod that may move could run here, so it is in no sum"
    reaches = [f"{one.name} ({plural(len(one.nodes), 'node')})" for one in answer.reaches]
    alone = "none but its own: pods are bound to this node alone"
    return first(reaches, REACHES_SHOWN) or alone


def _reach(answer: PodAnswer) -> str:
    """Name the nodes that the pod's constraints admit, and their reach."""
    if answer.reach is None:
        return f"{plural(answer.admitted, 'node')}; no reach"
    return f"{answer.reach.name} ({plural(answer.admitted, 'node')})"


def _verdict(answer: NodeAnswer) -> str:
    if (why := why_leaving(answer.node)) is not None:
        return f"counts as gone: {why}"
    if answer.order is not None:
        return f"would go, as number {answer.order} of the plan"
    codes = list(dict.fromkeys(blocker.code for blocker in answer.blockers))
    all_of = " (all of them must go)" if len(codes) > 1 else ""
    return f"stays: {', '.join(codes)}{all_of}"


def _mark_facts(standing: NodeStatus, now_seconds: int) -> list[tuple[str, str]]:
    guard = ("guard", standing.guard.value)
    if standing.mark is None:
        until = standing.left_alone_until
        backoff = [("left alone until", timestamp(until, now_seconds))] if until else []
        wrong = [] if standing.taints_right else [("taint", "ebb's taint without a mark")]
        return [("mark", "none"), guard, *wrong, *backoff]
    since = timestamp(standing.since, now_seconds) if standing.since else "not known"
    facts = [("mark", standing.mark.value), ("since", since)]
    if standing.details is None:
        facts.append(("details", "missing or damaged: the engine writes them anew"))
    else:
        then = "it gets another, as it is empty" if standing.empty else "it will be released"
        late = f"; overdue, {then}" if standing.overdue else ""
        deadline = timestamp(standing.details.deadline, now_seconds) + late
        owner = f"{standing.details.owner}, policy {standing.details.policy}"
        facts += [("deadline", deadline), ("owner", owner)]
    taint = "right" if standing.taints_right else "not that of its mark: the engine repairs it"
    left = "nothing: it is empty" if standing.empty else plural(standing.pods_left, "pod")
    return [*facts, ("taint", taint), guard, ("still to leave", left)]


def _reason(code: str, blockers: Sequence[Blocker], node: str) -> Iterator[tuple[str, str, str]]:
    for number, blocker in enumerate(blockers):
        about = f"{blocker.pod}: " if blocker.pod else ""
        yield "" if number else code, "because", about + blocker.message
    told = advice(blockers[0], node)
    same = all(advice(one, node).fix == told.fix for one in blockers)
    yield "", "means", told.meaning
    yield "", "fix", told.fix + ("" if same else "; likewise for the other pods")
    yield "", "ends when", told.lifted


def _moves(answer: NodeAnswer) -> Table:
    when = "its place in the plan" if answer.order is not None else "it alone went now"
    rows = *answer.placements, *((key, f"nowhere: {why}") for key, why in answer.homeless)
    return Table(f"pod, if {when}", "would fit on", rows=rows, left=(0, 1), names_above=True)


def _pod_facts(answer: PodAnswer, found: ClusterInput) -> list[tuple[str, str]]:
    one = answer.pod
    return [
        ("pod", one.key),
        ("node", one.node or "none: it waits for one"),
        ("asks for", amounts(one.requests)),
        ("movable", _movable(one, answer)),
        *([("reach", _reach(answer))] if answer.admitted else []),
        *_future(answer),
        *found.origin,
    ]


def _movable(one: Pod, answer: PodAnswer) -> str:
    if one.stays_with_node:
        kind = "a mirror pod" if one.mirror else "of a DaemonSet"
        return f"no need: it is {kind} and goes with its node"
    if answer.node is not None and answer.node.virtual:
        return "no need: its node is virtual and never goes"
    if answer.node is None and one.node is not None:
        return "no need: its node has left the cluster, and it is about to be collected"
    if answer.blockers:
        return f"no: {', '.join(blocker.code for blocker in answer.blockers)}"
    return "yes"


def _future(answer: PodAnswer) -> list[tuple[str, str]]:
    facts = []
    if answer.home is not None:
        facts.append(("its node", _verdict(answer.home)))
    if answer.place is not None:
        facts.append(("if its node went" if answer.home else "the plan's place", answer.place))
    if answer.why_not is not None:
        facts.append(("no place because", answer.why_not))
    if answer.takers or answer.marked_takers or answer.refusals:
        facts += [
            ("could run on", first(answer.takers, NODES_SHOWN) or "no node"),
            ("marked, but could", first(answer.marked_takers, NODES_SHOWN) or "no node"),
        ]
    return facts
