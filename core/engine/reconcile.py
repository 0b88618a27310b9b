"""The engine: which nodes can the cluster do without, together, and why must the others stay.

Pure: same cluster, same configuration, same answer. The steps are those of thesis 4.4, 4.5 and
4.7, extended to a joint plan: what one removal moves is committed before the next is judged.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.capacity.usable import Totals
from core.capacity.utilization import UtilizationLedger
from core.config.settings import Config, UsabilityMode
from core.engine import no_schedule, scale_in_targets, unschedulable
from core.engine.leader_state import LeaderState, RateLimits, observe, rate_limits, watched_until
from core.engine.no_schedule import RecentReasons
from core.engine.placement_hints import Hints, UnneededNodes
from core.engine.plan import Placement, Plan, ReachSums, ReservedNode
from core.engine.planner import Delays, InTime, Planner, unlimited_time
from core.engine.protection import protected_unmarked
from core.engine.reserve import RESERVE, reserve_nodes
from core.engine.reserve_hysteresis import NeededNodes, ReserveHits
from core.engine.snapshot import ClusterSnapshot
from core.model.cluster import Cluster
from core.model.now import Now


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """What one pass has found."""

    snapshot: ClusterSnapshot = field(compare=False)
    """What it was judged on; the nodes of a cluster without news may be of another version."""
    state: LeaderState
    plan: Plan
    rate_limits: RateLimits
    no_schedule_blockers: no_schedule.Against
    """Empty where no mark is to become hard."""
    at: int
    """Unix seconds."""
    requeue_at: int | None
    """When time alone may change something, unix seconds; None: never."""
    short_reaches: frozenset[str]
    """Reaches in which too few of the pods that are to be expected would find room, by key."""
    skipped: bool = False
    """Nothing had changed since the last one, whose answer this is."""

    @property
    def watched_seconds(self) -> int:
        """Return for how long the leader has looked on."""
        return self.at - (
            self.at if self.state.first_pass_at is None else self.state.first_pass_at
        )

    def is_valid_for(
        self, cluster: Cluster, config: Config, memory: LeaderState, now_seconds: int
    ) -> bool:
        """Say whether a pass over this would find the same."""
        return (
            memory is self.state
            and config is self.snapshot.config
            and self.at <= now_seconds
            and (self.requeue_at is None or now_seconds < self.requeue_at)
            and cluster == self.snapshot.cluster
        )


def reconcile(
    cluster: Cluster,
    config: Config,
    memory: LeaderState,
    now_seconds: int,
    *,
    in_time: InTime = unlimited_time,
    last: PassResult | None = None,
) -> PassResult:
    """Return the plan for the cluster at *now_seconds* (unix), and what the leader remembers.

    A node is removed once it has been a candidate for longer than the delay (thesis 4.5: `>`), or
    as its policy says; an empty node at once. If nothing has changed since the *last* pass, that
    pass is answered again.
    """
    now = Now(now_seconds)
    if last is not None and last.is_valid_for(cluster, config, memory, now_seconds):
        return replace(last, state=memory.unchanged(now), at=now_seconds, skipped=True)
    survey = ClusterSnapshot(
        cluster,
        config,
        now,
        last.snapshot.pod_index if last else None,
        recent=memory.recent_templates,
        shut=memory.skipped_until(now),
    )
    seen = observe(memory, survey, now)
    held = rate_limits(seen, survey, now)
    found, seen = _judged(survey, seen, held, now, in_time)
    waiting = {one.pod for one in found.pending}
    placed = unschedulable.pending_since(seen.pending_since, cluster, waiting, now)
    kept, short, back = _reserve(seen, survey, now)
    found = replace(found, reserve=kept, held=protected_unmarked(survey, kept, held))
    goes = frozenset(one.node for one in found.removals)
    against = against_hard(survey, placed, now, kept, goes) if config.hardens else {}
    begins = (
        RecentReasons.of_new_leader(survey.marks, now) if memory.first_pass_at is None else None
    )
    lately = (begins or seen.no_schedule_reasons).observe(against, now)
    following = scale_in_targets.choose_targets(seen.scale_in_targets, survey, found.kept)
    seen = replace(
        seen,
        pending_since=placed,
        no_schedule_reasons=lately,
        reserve_hits=back,
        scale_in_targets=following,
    )
    seen = seen.with_kept_nodes(found.held, [one.node for one in kept], now)
    return PassResult(
        snapshot=survey,
        state=seen,
        plan=found,
        rate_limits=held,
        no_schedule_blockers=lately.added_to(against),
        at=now_seconds,
        short_reaches=short,
        requeue_at=now.next_change if found.complete else now_seconds,
    )


def _reserve(
    memory: LeaderState, survey: ClusterSnapshot, now: Now
) -> tuple[tuple[ReservedNode, ...], frozenset[str], ReserveHits]:
    """Return the empty nodes that are kept, the reaches short of room, and what to remember."""
    needed, short = reserve_nodes(memory, survey, now)
    until = watched_until(memory, survey.config.budgets.reserve.length_seconds)
    knows = until is None or now.reached(until)
    seen = NeededNodes(survey, frozenset(one.node for one in needed if knows))
    back = memory.reserve_hits.observe(seen, now)
    return back.kept_longer(survey, needed, RESERVE, now), short, back


def _judged(
    survey: ClusterSnapshot, memory: LeaderState, held: RateLimits, now: Now, in_time: InTime
) -> tuple[Plan, LeaderState]:
    """Make the plan of this moment, and remember since when each node has been a candidate."""
    if survey.policy_type.finds_places:
        listing = UnneededNodes(memory.hints, memory.candidates, survey, now)
        found = make_plan(survey, pace=held, in_time=in_time, listed=listing)
        return found, replace(memory, candidates=listing.since, hints=listing.seen())
    candidates = _candidates(survey, memory.candidates, now)
    due_at, delay = survey.policy_type.due_at, survey.config.delay_seconds
    delays = {
        name: due_at(at, delay) if name in survey.non_empty_nodes else at
        for name, at in candidates.items()
    }
    found = make_plan(survey, pace=held, in_time=in_time, listed=delays)
    return found, replace(memory, candidates=candidates, hints=Hints())


def against_hard(
    survey: ClusterSnapshot,
    placed: Mapping[str, int],
    now: Now,
    kept: Sequence[ReservedNode] = (),
    goes: Collection[str] = (),
) -> no_schedule.Against:
    """Say what speaks against hard marks now, asked for or not; *placed*: as in Memory.

    *kept* are nodes that must be open to pods that come, *goes* those that are to have a mark.
    """
    cluster = survey.cluster
    stuck = unschedulable.blocked_by_no_schedule(
        cluster, placed, now, survey.reaches.beyond, survey.unevaluated
    )
    found = no_schedule.reasons_against(survey, stuck, goes)
    for node, why in kept:
        if node in found:
            found[node] = (*found[node], why)
    return found


def plan(
    cluster: Cluster,
    config: Config,
    *,
    due: frozenset[str] | None = None,
    removals_max: int | None = None,
    pace: RateLimits | None = None,
    now_seconds: int | None = None,
) -> Plan:
    """Choose which nodes can go together, and say where their pods would go: see `judge`."""
    survey = ClusterSnapshot(
        cluster, config, Now.at(now_seconds), shut=pace.failed_writes if pace else ()
    )
    return make_plan(survey, due=due, removals_max=removals_max, pace=pace)


def make_plan(
    survey: ClusterSnapshot,
    *,
    due: frozenset[str] | None = None,
    removals_max: int | None = None,
    pace: RateLimits | None = None,
    in_time: InTime = unlimited_time,
    listed: Delays | UnneededNodes | None = None,
) -> Plan:
    """Choose which nodes can go together, and say where their pods would go.

    Nodes that already carry a mark are judged first, in the order of their marks, and need not be
    due. *due* names the others whose delay has elapsed; None: all. At most *removals_max* nodes
    go, the marked ones among them; None: no limit. *pace* is what holds back at this moment; None:
    what could go in the long run, under the lasting limits alone. Once *in_time* says that there
    is no time left, no further node is tried that carries no mark. *listed* names the candidates
    of this moment, for a policy that counts them, or finds them out while the plan is made, and
    who of them is due; None: time plays no part.

    A node that is not marked goes if every reach stays within the thresholds without it; one that
    is marked, if it stays within the leave thresholds: a load that moves a little changes nothing.

    Candidates are tried in order (price, pods to move, utilization, name) until none of those
    that are left can go. Raises: nothing; "no" stands in Plan.kept.
    """
    work, pending = prepare(survey, due=due, pace=pace, in_time=in_time, listed=listed)
    before, figures, buffers = _totals(work.account), work.figures(), work.buffers()
    removals = work.remove_all(removals_max)
    gone = {removal.node for removal in removals}
    after = _totals(work.account)
    return Plan(
        policy=survey.config.policy,
        usability=work.account.whole.usability,
        usability_derived=survey.policy_type.thresholds
        and survey.config.usability is UsabilityMode.AUTO,
        before=before[0],
        after=after[0],
        reaches=_reaches(work.account, before[1:], after[1:])
        if survey.policy_type.thresholds
        else (),
        removals=removals,
        kept=work.kept(gone),
        pending=pending,
        marked_infeasible=tuple(sorted(work.marked - gone)),
        figures=figures,
        buffers=buffers,
        complete=not work.out_of_time,
    )


def prepare(
    survey: ClusterSnapshot,
    *,
    due: frozenset[str] | None = None,
    pace: RateLimits | None = None,
    in_time: InTime = unlimited_time,
    listed: Delays | UnneededNodes | None = None,
) -> tuple[Planner, tuple[Placement, ...]]:
    """Return a plan's work before any node went, and where the pods go that look for a place."""
    work = Planner(survey, due=due, pace=pace, in_time=in_time, listed=listed)
    return work, work.settle()


def _totals(account: UtilizationLedger) -> list[Totals]:
    """Return the sums as they stand, of the whole first."""
    return [sums.totals() for sums in (account.whole, *account.reaches)]


def _reaches(
    account: UtilizationLedger, before: Sequence[Totals], after: Sequence[Totals]
) -> tuple[ReachSums, ...]:
    return tuple(
        ReachSums(
            name=sums.reach.name,
            key=sums.reach.key,
            usability=sums.usability,
            enter=sums.enter,
            leave=sums.leave,
            before=was,
            after=is_now,
        )
        for sums, was, is_now in zip(account.reaches, before, after, strict=True)
        if sums.reach is not None
    )


def _candidates(survey: ClusterSnapshot, before: Mapping[str, int], now: Now) -> dict[str, int]:
    """Return since when each node has been a candidate without a break (thesis 4.4).

    Nodes that pass and were listed keep their time, new ones get *now*, those that fail
    or are gone are left out. Marked nodes are on their way: they are not listed, and the others
    are judged as if they had gone.
    """
    account = survey.new_ledger()
    policy = survey.policy(account)
    nodes = survey.node_order.nodes
    marked = {survey.node_order.ids[name] for name in survey.marks.keys() - survey.leaving_nodes}
    for number in sorted(marked):
        account.expect(number)
    return {
        node.name: before.get(node.name, now.seconds)
        for number, node in enumerate(nodes)
        if number not in marked
        and node.name not in survey.leaving_nodes
        and policy.listed(number, was=node.name in before)
    }
