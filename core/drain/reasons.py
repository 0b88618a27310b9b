"""Why a pod is not evicted, beside what core.guards.drainability says of it; values only."""

from typing import Final

from core.guards.drainability import SAFE_TO_EVICT
from core.model.reason import Reason

OWN: Final = Reason(
    "evict-own",
    "The pod stands in Ebb's own namespace, and Ebb evicts none of its own.",
    "drain the node by hand: kubectl drain {node} --ignore-daemonsets",
    "the pod has been replaced on another node",
)
INTERRUPTED: Final = Reason(
    "evict-interrupted",
    "The plan keeps the node although pods of it have been evicted already.",
    "nothing to do; or see what the plan says: ebb explain node {node}",
    "the plan lets the node go again",
)
COMES_BACK: Final = Reason(
    "evict-comes-back",
    "The pod, or the one that replaced it, may run on the node in spite of a hard mark: evicted, "
    "it would come back there.",
    "take the toleration of {key}, or `nodeName`, from its template",
    "its template lets the mark keep it away",
)
NOT_HARD: Final = Reason(
    "evict-not-hard",
    "Pods could still come to the node: its mark has not become hard, or has lost its taint.",
    "see what prevents that: the log of ebb-controller, and kubectl get node {node} -o yaml",
    "mark and taint of the node are hard",
)
OF_JOB: Final = Reason(
    "evict-job",
    "A Job's pod ends by itself, and an eviction would count as its failure: it is waited for.",
    f'nothing to do; or let it be evicted: annotation {SAFE_TO_EVICT}: "true" in its template',
    "the pod has finished",
)
TWO_BUDGETS: Final = Reason(
    "evict-two-budgets",
    "Several PodDisruptionBudgets protect the pod: the API server evicts no such pod.",
    "change the selectors so that one budget protects it: kubectl -n {namespace} get pdb",
    "one budget at most selects the pod",
)
NEVER_ALLOWED: Final = Reason(
    "evict-budget-never",
    "Its PodDisruptionBudget asks for all the pods that there are: it allows no eviction, ever.",
    "let the budget allow one (`maxUnavailable: 1`), or run one replica more",
    "the budget asks for fewer pods than there are",
)
NOT_NOW: Final = Reason(
    "evict-budget",
    "Its PodDisruptionBudget allows no eviction at the moment.",
    "see which of its pods are not Ready: kubectl -n {namespace} get pdb,pods",
    "the budget allows a disruption",
)
NO_PLACE: Final = Reason(
    "evict-no-place",
    "The plan knows no other place for the pod.",
    "see why: ebb explain pod {namespace}/{name}",
    "the plan has a place for it",
)
REFUSED: Final = Reason(
    "evict-refused",
    "The API server has not let the pod go; it is asked again, later each time.",
    "see what speaks against it: kubectl -n {namespace} get pdb",
    "the API server evicts the pod, or it is gone",
)
UNSETTLED: Final = Reason(
    "evict-unsettled",
    "Other pods of its controller are starting or ending, or are not Ready.",
    "see what keeps them: kubectl -n {namespace} get pods",
    "all other pods of its controller are Ready",
)
NOT_REPLACED: Final = Reason(
    "evict-not-replaced",
    "The pod was evicted, and none is Ready in its place: no other one is evicted meanwhile.",
    "see what keeps the new pod: kubectl -n {namespace} get pods",
    "as many pods of its controller are Ready as before",
)
TURN: Final = Reason(
    "evict-turn",
    "As many pods are on their way as may be at once.",
    "nothing to do; or raise the limits under `drain`",
    "those before it have been replaced",
)
REASONS: Final = (
    INTERRUPTED,
    OWN,
    COMES_BACK,
    NOT_HARD,
    OF_JOB,
    TWO_BUDGETS,
    NEVER_ALLOWED,
    NOT_NOW,
    NO_PLACE,
    REFUSED,
    UNSETTLED,
    NOT_REPLACED,
    TURN,
)
