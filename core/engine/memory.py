"""What has happened as far as it matters, and what follows from it now; pure."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.capacity.reaches import REACHES_MAX
from core.capacity.usable import Amount
from core.engine import arrivals, new_nodes
from core.engine.arrivals import Arrivals, Counts
from core.engine.harden import Spoken
from core.engine.new_nodes import NewNodes
from core.engine.places import Places
from core.engine.survey import Survey
from core.engine.waiting import hosted, waits
from core.engine.words import Words, moved
from core.marks.mark import Mark, backoff_of
from core.model.cluster import Cluster
from core.model.constraints import Placing
from core.model.resources import Resources

ASKED_LATELY_MAX: Final = REACHES_MAX
"""Sets of nodes that no pod asks for any more."""
REFUSED_SECONDS: Final = 60
"""So long at least a node is left alone whose mark could not be written, or not taken away."""


class Refused(NamedTuple):
    """A node on which a mark could not be written, or a hard one not taken away."""

    times: int
    until: int
    """Unix seconds; it is left alone until then."""


class Marking(NamedTuple):
    """A mark that was set."""

    since: int
    pool: str
    """Empty: none."""
    reached: bool
    """Whether some movable pod reached the node."""


class TakenBack(NamedTuple):
    """A node that the reserve needed once more after it had been handed over."""

    times: int
    needed: int
    """Unix seconds of the last look that found it needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What has happened; a program that starts anew knows nothing, and waits the delay anyway."""

    first: int | None = None
    """Unix seconds of the first look; None: there was none."""
    candidates: Mapping[str, int] = field(default_factory=dict)
    """Since when each node has been a candidate without a break."""
    policy: str = ""
    """By whose rule they have been; empty: there was no look."""
    places: Places = field(default_factory=Places)
    """Where pods of candidates are to go, under a policy that finds them places."""
    looked: int = 0
    """Unix seconds of the last look; 0: there was none."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Those of the last look, by name the uid: one that is made anew is another; empty: not read
    yet."""
    added: int | None = None
    """Unix seconds of the last machine that came; None: none since the first look."""
    waiting: frozenset[str] = frozenset()
    """Pods (namespace/name) that are unschedulable and that some node would admit, or would have
    admitted since they wait: a node that comes and goes makes none of them wait anew."""
    waited: int | None = None
    """When the last of them began to wait."""
    marked: Mapping[str, Marking] = field(default_factory=dict)
    """Marks within the window, and those that stand."""
    refused: Mapping[str, Refused] = field(default_factory=dict)
    standing: frozenset[str] = frozenset()
    """Nodes that carried a mark at the last look."""
    paced: int | None = None
    """Unix seconds of the last mark, or of the last release of a node that did not empty."""
    demand: Mapping[str, tuple[tuple[int, Amount], ...]] = field(default_factory=dict)
    """By reach, requests within the peak window: one entry a look that no later one exceeds."""
    asked: Mapping[Placing, int] = field(default_factory=dict)
    """Templates that pods have had within the peak window, one for each set of nodes, and the unix
    second of the last look that saw such a pod. Their nodes stay in the sums that the peak is held
    against: else those of others would be too full as soon as the last such pod has gone."""
    words: Words = field(default_factory=Words)
    """The reaches of the last look, by the keys under which they are remembered."""
    placed: Mapping[str, int] = field(default_factory=dict)
    """Since when pods wait for which there was a place (core.engine.waiting)."""
    spoken: Spoken = field(default_factory=dict)
    arrivals: Arrivals = field(default_factory=Arrivals)
    """Which pods have come, and when."""
    new_nodes: NewNodes = field(default_factory=NewNodes)
    """How long they take."""
    back: Mapping[str, TakenBack] = field(default_factory=dict)
    """By name; forgotten once the reserve looks back on nothing of it (core.engine.taken_back)."""
    held: Mapping[str, int] = field(default_factory=dict)
    """By node: the unix second of the last look by which it was to be held without a mark."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """The same of those that were kept for pods to be expected."""
    next_in_line: Mapping[str, int] = field(default_factory=dict)
    """Nodes without a mark that scale-ins are to empty next, each with its number: the lower, the
    sooner (core.engine.next_in_line)."""

    def expected(self, whole: Resources, now_seconds: int) -> Counts:
        """Return the pods that room is kept for; *whole*: what all nodes offer."""
        return arrivals.expected(self.arrivals, whole, now_seconds, self.new_nodes.seconds)

    def lately(self, window_seconds: int, now_seconds: int) -> list[Placing]:
        """Return the templates that pods have had within the peak window."""
        return [one for one, at in self.asked.items() if at > now_seconds - window_seconds]

    def following(self, words: Words) -> "Memory":
        """Return the memory under the keys that the reaches have now."""
        keys = moved(self.words, words)
        if not keys:
            return replace(self, words=words)
        return replace(
            self,
            words=words,
            demand={keys.get(key, key): looks for key, looks in self.demand.items()},
            arrivals=arrivals.renamed(self.arrivals, keys),
            new_nodes=new_nodes.renamed(self.new_nodes, keys),
        )

    def keeping(
        self, held: Collection[str], reserved: Collection[str], now_seconds: int
    ) -> "Memory":
        """Return the memory after a look that found these nodes to be held, and to be kept."""
        return replace(
            self,
            held=_last(self.held, held, self.nodes, now_seconds),
            reserved=_last(self.reserved, reserved, self.nodes, now_seconds),
        )

    def refusing(
        self, nodes: frozenset[str], now_seconds: int, *, delay_seconds: int, max_seconds: int
    ) -> "Memory":
        """Return the memory in which the marks of these nodes could not be written, or opened.

        Their delay begins anew, and one that is empty waits as well: who may have every write on
        some nodes refused would else have them tried in each pass, before all others. They wait
        twice as long each time, *max_seconds* at most; what fails meanwhile does not count.
        """
        nodes -= self.left_alone(now_seconds).keys()
        refused = dict(self.refused)
        for name in nodes:
            times = refused[name].times + 1 if name in refused else 1
            seconds = max(delay_seconds, REFUSED_SECONDS) * 2 ** min(times - 1, 32)
            refused[name] = Refused(times, now_seconds + min(seconds, max_seconds))
        return replace(self.forgetting(nodes), refused=refused) if nodes else self

    def left_alone(self, now_seconds: int) -> Mapping[str, int]:
        """Return the nodes that refused, and until when (unix seconds) no plan rests on them."""
        left = self.refused.items()
        return {name: one.until for name, one in left if now_seconds < one.until}

    def forgetting(self, nodes: frozenset[str]) -> "Memory":
        """Return the memory in which these nodes have not been candidates yet."""
        if nodes.isdisjoint(self.candidates):
            return self
        kept = {name: at for name, at in self.candidates.items() if name not in nodes}
        return replace(self, candidates=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What holds back now."""

    cooling_seconds: int = 0
    """How long no node is marked any more because one was added."""
    pending_seconds: int = 0
    """How long no node is marked any more because a pod turned unschedulable."""
    spacing_seconds: int = 0
    """How long no node is marked any more because one was, or did not empty in time."""
    in_window: Mapping[str, int] = field(default_factory=dict)
    """Marks within the window by pool; "" is the whole cluster."""
    on_unreached: Mapping[str, int] = field(default_factory=dict)
    """Those among them on nodes that no movable pod reaches."""
    backing_off: Mapping[str, int] = field(default_factory=dict)
    """Nodes that are left alone until then, unix seconds."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """The same of those whose mark could not be written, or not be taken away."""
    reserve: Mapping[str, Amount] = field(default_factory=dict)
    """By reach: what the busiest moment of the window needed beyond what is asked for now."""


def remember(memory: Memory, survey: Survey, now_seconds: int) -> Memory:
    """Return the memory after a look at the cluster."""
    cluster, config = survey.cluster, survey.config
    budgets = config.budgets
    nodes = {node.name: node.uid or memory.nodes.get(node.name, "") for node in cluster.nodes}
    new = _new(memory, cluster, nodes)
    words = Words.of([node.name for node in survey.ground.nodes], survey.reaches.all)
    memory = memory.following(words).forgetting(new)
    waiting = _waiting(memory, cluster, config.taint_key)
    open_to_all = {name for name, one in survey.marks.items() if one.mark is not Mark.HARD}
    may_refuse = nodes.keys() - new - open_to_all
    return replace(
        memory,
        first=now_seconds if memory.first is None else memory.first,
        candidates=memory.candidates if memory.policy in {"", config.policy} else {},
        policy=config.policy,
        looked=now_seconds,
        nodes=nodes,
        added=now_seconds if new else _added(memory, cluster, now_seconds),
        waiting=waiting,
        waited=memory.waited if waiting <= memory.waiting else now_seconds,
        marked=_marked(memory, survey, now_seconds),
        refused={
            name: one
            for name, one in memory.refused.items()
            if name in may_refuse and now_seconds < one.until + budgets.backoff.max_seconds
        },
        standing=frozenset(survey.marks),
        paced=_paced(memory, survey, now_seconds),
        demand={
            key: _demand(memory.demand.get(key, ()), now, budgets.peak_window_seconds, now_seconds)
            for key, now in survey.demand().items()
        },
        asked=_asked(memory, survey, now_seconds),
        arrivals=arrivals.follow(memory.arrivals, survey, now_seconds),
        new_nodes=new_nodes.follow(memory.new_nodes, survey, new, now_seconds),
    )


def _last(
    before: Mapping[str, int], found: Collection[str], nodes: Container[str], now_seconds: int
) -> dict[str, int]:
    """Return when each of the nodes that are there was found last."""
    known = {name: min(at, now_seconds) for name, at in before.items() if name in nodes}
    return known | dict.fromkeys(found, now_seconds)


def _new(memory: Memory, cluster: Cluster, nodes: Mapping[str, str]) -> frozenset[str]:
    """Return the machines that have come since the last look; at the first one, none has.

    Virtual nodes come with every pod, and none is a scale-up; nor is a node that is one no more,
    as its kubelet may say in turns.
    """
    if memory.first is None:
        return frozenset()
    machines = (node.name for node in cluster.nodes if not node.virtual)
    return frozenset(name for name in machines if memory.nodes.get(name) not in ("", nodes[name]))


def _marked(memory: Memory, survey: Survey, now_seconds: int) -> dict[str, Marking]:
    """Return the marks within the window, and those that stand.

    Since when is believed of who says it as in `_paced`: no kubelet, and no leader whose clock
    was ahead, uses up the window for longer than one mark does.
    """
    budgets = survey.config.budgets
    opened = now_seconds - budgets.window_seconds
    marked = {name: mark for name, mark in memory.marked.items() if mark.since > opened}
    for name, mark in survey.marks.items():
        known = memory.marked.get(name) if name in memory.standing else None
        since = known.since if known else max(mark.since, memory.looked)
        pool = budgets.pool_of(survey.ground.nodes[survey.ground.ids[name]].labels)
        marked[name] = Marking(
            min(since, now_seconds), pool.name if pool else "", survey.reaches_node(name)
        )
    return marked


def _waiting(memory: Memory, cluster: Cluster, taint_key: str) -> frozenset[str]:
    found = frozenset(pod.key for pod in hosted(cluster, taint_key))
    if found >= memory.waiting:
        return found
    return found | memory.waiting.intersection(pod.key for pod in cluster.pods if waits(pod))


def _asked(memory: Memory, survey: Survey, now_seconds: int) -> dict[Placing, int]:
    if not survey.config.budgets.peak_window_seconds:
        return {}
    latest = sorted(survey.reaches.left, key=lambda one: -memory.asked[one])[:ASKED_LATELY_MAX]
    left = {one: memory.asked[one] for one in latest}
    return left | dict.fromkeys(survey.reaches.templates, now_seconds)


def _added(memory: Memory, cluster: Cluster, now_seconds: int) -> int | None:
    """Return when the last node came, at the first look by what stands on the nodes.

    Later looks see them come: what an API server's clock says is asked for once.
    """
    if memory.first is not None:
        return memory.added
    made = (node.created_seconds for node in cluster.nodes if not node.virtual)
    return max((min(at, now_seconds) for at in made if at is not None), default=None)


def _paced(memory: Memory, survey: Survey, now_seconds: int) -> int | None:
    """Return when the last mark was set, or a node that did not empty was released.

    A node's kubelet may write the annotations that say when, not the mark itself. So they are
    believed at the first look alone, and later where a mark has come or gone since the last one:
    no kubelet holds the engine back for longer than the spacing, or hides a mark from it.
    """
    first = memory.first is None
    new = survey.marks.keys() - memory.standing
    found = [max(survey.marks[name].since, memory.looked) for name in new]
    rules = survey.config.budgets.backoff
    for node in survey.cluster.nodes:
        one = backoff_of(node.annotations)
        if one and node.name not in survey.marks and (first or node.name in memory.standing):
            found.append(one.until - rules.seconds(one.times))
    known = [] if memory.paced is None else [memory.paced]
    return max((*known, *(min(at, now_seconds) for at in found)), default=None)


def _demand(
    before: Iterable[tuple[int, Amount]], now: Amount, window_seconds: int, now_seconds: int
) -> tuple[tuple[int, Amount], ...]:
    """Keep the looks that may still be the peak: a later one that asks for more replaces them."""
    kept = [
        (second, amount)
        for second, amount in before
        if second > now_seconds - window_seconds
        and (amount.cpu_millis > now.cpu_millis or amount.memory_bytes > now.memory_bytes)
    ]
    return (*kept, (now_seconds, now))


def pace(memory: Memory, survey: Survey, now_seconds: int) -> Pace:
    """Return what follows now from what has happened; *memory* has seen the cluster last."""
    budgets = survey.config.budgets
    opened = now_seconds - budgets.window_seconds
    marks = [mark for mark in memory.marked.values() if mark.since > opened]
    cooldown, holds = budgets.cooldown, budgets.backoff.holds
    found = ((node.name, backoff_of(node.annotations)) for node in survey.cluster.nodes)
    return Pace(
        cooling_seconds=_left(memory.added, cooldown.after_node_add_seconds, now_seconds),
        pending_seconds=_left(memory.waited, cooldown.after_pending_seconds, now_seconds),
        spacing_seconds=_left(memory.paced, budgets.spacing_seconds, now_seconds),
        in_window=_by_pool(marks),
        on_unreached=_by_pool(mark for mark in marks if not mark.reached),
        backing_off={
            name: one.until for name, one in found if one and holds(one.until, now_seconds)
        },
        refused=memory.left_alone(now_seconds),
        reserve={key: _beyond_now(looks) for key, looks in memory.demand.items()},
    )


def _by_pool(marks: Iterable[Marking]) -> Mapping[str, int]:
    pools = [mark.pool for mark in marks]
    return {"": len(pools), **Counter(pool for pool in pools if pool)}


def _beyond_now(looks: Sequence[tuple[int, Amount]]) -> Amount:
    now = looks[-1][1]
    return Amount(
        max(amount.cpu_millis for _, amount in looks) - now.cpu_millis,
        max(amount.memory_bytes for _, amount in looks) - now.memory_bytes,
    )


def unseen_seconds(memory: Memory, length_seconds: int, now_seconds: int) -> int:
    """Return for how long the leader must look on until it has counted pods for so long a time.

    And as long as new nodes take, once it knows. Other settings may have it count anew.
    """
    longest = max((length_seconds, *memory.new_nodes.seconds.values()))
    return _left(memory.arrivals.since, longest, now_seconds)


def _left(since: int | None, seconds: int, now_seconds: int) -> int:
    return 0 if since is None else max(0, since + seconds - now_seconds)
