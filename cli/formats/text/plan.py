"""The plan as text: totals, removable nodes in order, and why the others are not removable."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from rich.console import Console

from cli.answers import Planned
from cli.explain.emptying import Emptying
from cli.explain.headline import DeviceChange
from cli.formats.text import buffers, headline, kept_empty, reaches
from cli.terminal import Table, say
from core.engine.plan import Plan, Removal, UnremovableNode
from core.model.humanize import first, plural
from core.model.quantity import format_bytes, format_millis
from core.model.reason import Blocker
from core.placement.reach_utilization import limit_text
from core.policies.all import POLICIES
from core.policies.policy import PolicyMetric

if TYPE_CHECKING:  # slow to import
    from sim.fewest_nodes import NodesNeeded

TARGETS_SHOWN: Final = 3
OWN_PODS_SHOWN: Final = 5
NONE: Final = "-"


def write(answer: Planned, out: Console) -> None:
    """Write the totals, the removable nodes in order, and why the others are not removable."""
    plan = answer.plan
    headline.write(answer.headline, answer.cluster_input.running, answer.now_seconds, out)
    if answer.needed is not None:
        say(out, _bound(answer.needed))
    say(out, "")
    if answer.cluster_input.target is not None:
        say(out, Table("", "", rows=answer.cluster_input.origin, left=(0, 1)), "")
    say(out, summary(plan, answer.headline.devices))
    say(out, "")
    if plan.reaches:
        reaches.write(plan.reaches, out)
        say(out, "")
    say(out, _rule(answer))
    if plan.pending:
        pods = plural(len(plan.pending), "pod")
        say(out, f"Placed first (Pending, or on a leaving node): {pods}.")
    if plan.marked_infeasible:
        say(out, f"Marked, but no longer removable: {', '.join(plan.marked_infeasible)}")
    for blocker in answer.refused:
        say(out, refusal(blocker))
    if metrics := _metrics_per_object(plan):
        say(out, "", metrics)
    say(out, *headline.groups(answer.rows, priced=answer.headline.cost is not None))
    say(out, "", _removals(answer, out.width) if plan.removals else "No node is removable.")
    for line in _legend(answer):
        say(out, line)
    if plan.kept:
        say(out, "", _unremovable(plan.kept))
    kept_empty.write(answer.kept_empty, answer.now_seconds, out)
    buffers.write(plan.buffers, out)


def _bound(needed: "NodesNeeded") -> str:
    """Return sentences about how many nodes the plan keeps, and how few the pods need."""
    from sim.fewest_nodes import IGNORED  # noqa: PLC0415 slow to import

    quality = "the fewest" if needed.found == needed.at_least else "perhaps not the fewest"
    return (
        f"Bound: the plan keeps {needed.planned:,} of {plural(needed.nodes, 'node')}. Any "
        f"placement needs at least {plural(needed.at_least, 'node')}; the best placement found "
        f"needs {needed.found:,} ({quality}). Both figures ignore {IGNORED}."
    )


def refusal(blocker: Blocker) -> str:
    """Return a sentence that says why no mark, surge move or eviction begins now."""
    return f"No mark, surge move or eviction begins now ({blocker.code}): {blocker.message}."


def _rule(answer: Planned) -> str:
    """Return the thresholds as text if the policy uses them, else its name and its metrics."""
    plan, limits = answer.plan, answer.config.thresholds
    if POLICIES[plan.policy].thresholds:
        cpu, memory = map(limit_text, (limits.cpu, limits.memory))
        maximum = f"requests may use {cpu} of usable CPU and {memory} of usable memory."
        return f"Thresholds: {maximum} {_usability(plan)}"
    metrics = (f"{metric.gauge}: {_value(metric)}" for metric in plan.figures if not metric.labels)
    return f"Policy {plan.policy}. {'; '.join(metrics)}".strip()


def _metrics_per_object(plan: Plan) -> Table | None:
    """Return a table of the metrics that the policy has for each object, such as a pool.

    Returns None if it has none. The first label of a metric names the object, which has a row. The
    other labels are parts of the column.
    """
    gauges = {gauge.name: gauge for gauge in POLICIES[plan.policy].gauges if gauge.labels}
    rows: dict[str, dict[tuple[str, ...], str]] = {}
    for metric in plan.figures:
        if metric.labels:
            name, *others = metric.labels
            rows.setdefault(name, {})[metric.gauge, *others] = _value(metric)
    if not rows:
        return None
    words = [gauge.split("_") for gauge in gauges]
    shared = sum(1 for _ in takewhile(lambda same: len(set(same)) == 1, zip(*words, strict=False)))
    columns = [
        " ".join((*gauge.split("_")[shared:], *others))
        for gauge, *others in next(iter(rows.values()))
    ]
    cells = [(name or '""', *values.values()) for name, values in rows.items()]
    return Table(next(iter(gauges.values())).labels[0], *columns, rows=cells)


def _value(metric: PolicyMetric) -> str:
    return f"{float(metric.value):.4g}"


def summary(plan: Plan, devices: Iterable[DeviceChange]) -> Table:
    """Return a table with the totals of the cluster, before and after the plan.

    *devices*: extended resources such as nvidia.com/gpu, which have rows too.
    """
    both = plan.before, plan.after
    rows = [("nodes", *(str(totals.nodes) for totals in both))]
    for number, name, unit, write in (
        (0, "cpu", ", cores", _cores),
        (1, "memory", "", format_bytes),
    ):
        for field in ("capacity", "requests", "usable"):
            cells = (write(getattr(totals, field)[number]) for totals in both)
            rows.append((f"{name} {field}{unit}", *cells))
        shares = (reaches.used(totals, number) for totals in both)
        rows.append((f"{name} requests / usable", *shares))
    for device in devices:
        rows.append((f"{device.resource} capacity", *map(str, device.capacity)))
        rows.append((f"{device.resource} requests", *map(str, device.requested)))
    return Table("nodes that pods can use", "before", "after", rows=rows)


def _cores(cpu_millis: int) -> str:
    """Format millicores as cores; one decimal place makes values in a column comparable."""
    return f"{cpu_millis / 1000:,.1f}"


def _removals(answer: Planned, width: int) -> Table:
    """Return a table of the removable nodes, and where their pods would run.

    If the table is wider than *width* characters, target nodes move below the row.
    """
    headings = "order", "removable node", "pods"
    nodes = {row.name: row for row in answer.rows}
    removal_rows = [((str(removal.order), removal.node, str(nodes[removal.node].pods)),
                     emptied_by(answer.emptying[removal.node]), list(targets(removal)))
                     for removal in answer.plan.removals]  # fmt: skip
    rows = [(*cells, by, _joined(f"{to} ({pods})" if pods else to for to, pods in targets))
            for cells, by, targets in removal_rows]  # fmt: skip
    beside = Table(*headings, "emptied by", "would fit on", rows=rows, left=(1, 3, 4))
    if beside.width <= width:
        return beside
    below = (row for cells, by, targets in removal_rows
             for row in (cells, *([("", f" by {by}", "")] if by != NONE else []),
                         *(("", f" -> {to}", pods) for to, pods in targets)))  # fmt: skip
    return Table(*headings, rows=below, left=(1,))


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts) or NONE


def emptied_by(emptying: Emptying) -> str:
    """Return as text how a node becomes empty, or the most frequent reason why it does not."""
    if emptying.staying:
        code, count = Counter(blocker.code for blocker in emptying.staying).most_common(1)[0]
        return f"nothing: {code} ({count})"
    counts = (
        (emptying.moves or 0, "moves"),
        (emptying.completing, "completion"),
        (emptying.turnover, "turnover"),
    )
    return _joined(f"{name} ({count})" for count, name in counts if count)


def _legend(answer: Planned) -> Iterator[str]:
    """Yield a sentence for each word of the column `emptied by` that occurs in the table."""
    emptyings = answer.emptying.values()
    own = {row.name: row.pods for row in answer.rows}
    if any(len(removal.placements) > own[removal.node] for removal in answer.plan.removals):
        yield "The targets also take the pods that earlier removals place on a removable node."
    if any(emptying.moves for emptying in emptyings):
        yield "moves: surge moves replace the pods."
    if any(emptying.completing for emptying in emptyings):
        yield "completion: the pods run to completion."
    if any(emptying.turnover for emptying in emptyings):
        yield "turnover: rollouts and scale-ins delete the pods."
    if any(emptying.staying for emptying in emptyings):
        yield "nothing: some pods rarely terminate; `ebb explain node NAME` says why."
    yield from _own_pods(answer)
    if answer.config.surges and any(emptying.moves is None for emptying in emptyings):
        yield "Surge moves are unknown, because Deployments and ReplicaSets were not read."


def _own_pods(answer: Planned) -> Iterator[str]:
    """Yield which of Ebb's own pods keep removable nodes, and the command that moves them."""
    own = [pod for removal in answer.plan.removals for pod in answer.emptying[removal.node].own]
    if not own:
        return
    pods = first([f"{pod.name} ({pod.node})" for pod in own], OWN_PODS_SHOWN)
    # The name of a ReplicaSet is that of its Deployment, and a hash.
    names = sorted({shlex.quote(pod.owner_name.rpartition("-")[0]) for pod in own})
    namespace = shlex.quote(answer.cluster_input.namespace)
    restart = f"kubectl -n {namespace} rollout restart deployment {' '.join(names)}"
    yield f"Ebb's own pods on removable nodes: {pods}. After these are marked, run: {restart}"


def targets(removal: Removal) -> Iterator[tuple[str, str]]:
    """Yield each node that would take pods, with their number, most pods first.

    After TARGETS_SHOWN nodes, one pair of texts counts the others.
    """
    targets = Counter(placement.node for placement in removal.placements)
    for node, count in targets.most_common(TARGETS_SHOWN):
        yield node, str(count)
    if len(targets) > TARGETS_SHOWN:
        yield f"{len(targets) - TARGETS_SHOWN} more", ""


def _unremovable(kept: tuple[UnremovableNode, ...]) -> Table:
    """Return a table of the reasons why nodes are not removable, each with its number of nodes.

    A node with several reasons counts in each.
    """
    nodes: dict[str, list[str]] = {}
    example: dict[str, str] = {}
    for node in kept:
        for blocker in node.blockers:
            members = nodes.setdefault(blocker.code, [])
            if not members or members[-1] != node.node:
                members.append(node.node)
            about = f"{blocker.pod}: " if blocker.pod else ""
            example.setdefault(blocker.code, f"{node.node}: {about}{blocker.message}")
    most_first = sorted(nodes.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    rows = ((code, str(len(members)), example[code]) for code, members in most_first)
    return Table("not removable because", "nodes", "for example", rows=rows, left=(0, 2))


def _usability(plan: Plan) -> str:
    usability = plan.usability
    if usability is None:
        return "All allocatable capacity counts as usable."
    how = "derived from the pods" if plan.usability_derived else "as configured"
    cpu, memory = format_millis(usability.min_cpu_millis), format_bytes(usability.min_memory_bytes)
    cores = f"{float(usability.max_cpu_per_gb):.3g}"
    return (
        f"Free capacity of a node is usable if it is at least {cpu} CPU and {memory} memory, up "
        f"to {cores} core{'' if cores == '1' else 's'} per free GB and "
        f"{float(usability.max_gb_per_cpu):.3g} GB per free core ({how})."
    )
