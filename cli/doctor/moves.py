"""Checks of surge moves: leftovers of moves, and what refuses them."""

from typing import Final

from cli.doctor.finding import Check, CheckResult, Evidence, Facts, ok, problem, unknown
from core.model.humanize import plural, timestamp
from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL, detached_pods
from core.moves.move import NO_NOTE, Move, found_move
from core.moves.note import OVERDUE_SECONDS
from core.moves.reasons import OWNER_REFERENCES


def _detached(facts: Facts) -> CheckResult:
    moves = [found_move(pod) for pod in detached_pods(facts.cluster.pods)]
    overdue = [move for move in moves if move.note.deadline + OVERDUE_SECONDS < facts.now_seconds]
    if overdue:
        evidence = [
            Evidence(
                f"Pod {move.key}",
                f"detached, deadline {_deadline(move)}",
                f"kubectl label pod {move.pod} -n {move.namespace} {TEMPLATE_LABEL}={move.hash} "
                f"{DETACHED_LABEL}-",
            )
            for move in sorted(overdue, key=lambda move: move.key)
        ]
        return problem(f"surge moves have left {plural(len(overdue), 'detached pod')}", evidence)
    if moves:
        return ok(f"{plural(len(moves), 'surge move')} in progress, none beyond its deadline")
    return ok("no pod is detached")


def _deadline(move: Move) -> str:
    return timestamp(move.note.deadline) if move.note != NO_NOTE else "unknown"


def _refused(facts: Facts) -> CheckResult:
    if not facts.config.surges:
        return ok("surge moves are disabled")
    running = facts.cluster_input.running
    leader = running.facts if running is not None else None
    if leader is None:
        return unknown(
            "only the leader knows whether the API server refuses surge moves, and its report was "
            "not read",
            "run `ebb doctor` against a live cluster, with the Role ebb-viewer "
            "(docs/install-reference.md#rights-of-people-who-run-ebb)",
        )
    if refused := leader.refused_moves.get(OWNER_REFERENCES.code, 0):
        seen = "the admission plugin OwnerReferencesPermissionEnforcement refuses surge moves"
        field = f"ReplicaSets with {OWNER_REFERENCES.code}"
        return problem(seen, [Evidence("report of the leader", field, str(refused))])
    return ok("the API server refuses no surge move")


CHECKS: Final = (
    Check(
        code="detached-pods",
        question="Does every pod that a surge move detaches return to its ReplicaSet in time?",
        effect="a detached pod keeps running without its ReplicaSet, even after a rollout or a "
        "scale to 0, so its Service may still reach an old version",
        fix="run the commands in the evidence, or `ebb cleanup --all`, which also removes "
        "everything else that Ebb has written; then see docs/alerts.md#ebbsurgeoverdue",
        run=_detached,
    ),
    Check(
        code="owner-references",
        question="Does the API server let Ebb detach pods, if surge moves are enabled?",
        effect="no pod is moved",
        fix="add the component surge-delete: it grants the permission to delete pods, which "
        "the API server demands, with a policy that refuses every deletion "
        "(docs/surge.md#permissions)",
        run=_refused,
    ),
)
