"""Define reasons why Ebb does not replace a pod by a surge move now.

Further reasons are in core.eligibility.
"""

from typing import Final

from core.eligibility.surge import VOLUME
from core.marks.wellknown import KEEP_ANNOTATION
from core.model.reason import Reason
from core.moves.outcomes import SETTLE_REPLICAS, SETTLE_SECONDS

_DESCRIBE: Final = "kubectl -n {namespace} describe deployment {owner}"
_STATUS: Final = "kubectl -n {namespace} rollout status deployment {owner}"

NO_DEPLOYMENT: Final = Reason(
    "surge-no-deployment",
    "The pod does not belong to a Deployment. Only Deployments start a new pod before they delete "
    "an old one.",
    "none needed: Ebb waits until the pod terminates",
    "the pod is gone",
)
OWN: Final = Reason(
    "surge-own",
    "The pod is the leader of Ebb's controller, which cannot finish a move of its own pod. Once "
    "it is the last pod on its marked node, and at most once a day, it hands its Lease over to "
    "another replica, which then moves the pod.",
    "none needed; or move the pod yourself: kubectl -n {namespace} rollout restart deployment "
    "{owner}",
    "another replica leads",
)
STRATEGY: Final = Reason(
    "surge-strategy",
    "The strategy of the Deployment does not allow an additional pod: it is Recreate, or its "
    "maxSurge is 0.",
    "set the strategy RollingUpdate with a `maxSurge` of at least 1 in Deployment {owner}",
    "the strategy is RollingUpdate with a maxSurge of at least 1",
)
PAUSED: Final = Reason(
    "surge-paused",
    "The Deployment is paused.",
    "resume the Deployment: kubectl -n {namespace} rollout resume deployment {owner}",
    "the Deployment is not paused",
)
KEEP: Final = Reason(
    "surge-keep",
    f"The annotation {KEEP_ANNOTATION} on the Deployment or its pod template forbids surge moves.",
    f"remove the annotation {KEEP_ANNOTATION}",
    "the annotation is removed",
)
ROLLOUT: Final = Reason(
    "surge-rollout",
    "A rollout of the Deployment is in progress, or the Deployment controller has not yet "
    "processed its newest spec.",
    f"wait until the rollout has finished: {_STATUS}",
    "all pods belong to the current ReplicaSet, and the status describes the current spec",
)
UNAVAILABLE: Final = Reason(
    "surge-unavailable",
    "Not all replicas of the Deployment are available.",
    f"check its pods: {_DESCRIBE}",
    "as many pods are available as the Deployment has replicas",
)
MIN_READY: Final = Reason(
    "surge-min-ready",
    "The new pod could not become available in time: `minReadySeconds` of the Deployment is not "
    "below `progressDeadlineSeconds`, or is 10 minutes or more.",
    "lower `minReadySeconds` in Deployment {owner}, or raise its `progressDeadlineSeconds`",
    "`minReadySeconds` is below 10 minutes and below `progressDeadlineSeconds`",
)
HPA: Final = Reason(
    "surge-hpa",
    "A HorizontalPodAutoscaler scales the Deployment, whose `minReadySeconds` is 15 seconds or "
    "more. During this time, a move has one Ready pod more than the Deployment wants. The "
    "HorizontalPodAutoscaler would count the additional pod, and could add a further pod.",
    "lower `minReadySeconds` in Deployment {owner} to less than 15 seconds",
    "`minReadySeconds` is less than 15 seconds, or nothing scales the Deployment",
)
QUOTA: Final = Reason(
    "surge-quota",
    "The namespace has no room for another pod: a ResourceQuota forbids it, or the API server "
    "rejected the last pod of the ReplicaSet.",
    "raise the ResourceQuota, or check why pods are rejected: kubectl -n {namespace} describe "
    "quota",
    "the ResourceQuota has room for another pod, and the Deployment has no condition "
    "ReplicaFailure",
)
LEFT_ALONE: Final = Reason(
    "surge-left-alone",
    "The last move of the Deployment failed: its new pod did not become available on an unmarked "
    "node. Or many moves in the namespace failed within the last hour.",
    f"wait; meanwhile, check why a new pod does not start: {_DESCRIBE}",
    "the time in the message has passed, or fewer moves have failed in the namespace within an "
    "hour",
)
SETTLING: Final = Reason(
    "surge-settling",
    f"The last move of the Deployment ended less than {SETTLE_SECONDS} seconds ago. The time is "
    f"shorter with more than {SETTLE_REPLICAS} replicas.",
    "none needed",
    "the time in the message has passed",
)
OTHER_CONTROLLER: Final = Reason(
    "surge-other-controller",
    "Another ReplicaSet, ReplicationController or DaemonSet of the namespace also selects the "
    "pod. During a move the pod has no controller, so this object would adopt it.",
    "give the selector and the template of the other controller, {owner}, a label that the "
    "Deployment does not have",
    "no other controller selects the pod",
)
HASH_SELECTED: Final = Reason(
    "surge-hash-selected",
    "A Service, PodDisruptionBudget or NetworkPolicy selects pods by the label pod-template-hash, "
    "which the pod does not have during a move.",
    "let the object in the message, {owner}, select on other labels",
    "the object in the message does not select on pod-template-hash any more",
)
OWNER_REFERENCES: Final = Reason(
    "surge-owner-references",
    "The API server lets only those who may delete a pod change its owner reference (admission "
    "plugin OwnerReferencesPermissionEnforcement, as in OpenShift). Ebb may not delete pods.",
    "install the component manifests/components/surge-delete",
    "the API server lets Ebb change the owner reference of a pod",
)
NOT_DETACHED: Final = Reason(
    "surge-not-detached",
    "The API server or an admission webhook refused to take the pod out of its ReplicaSet.",
    "check the policies of the namespace; the message has the answer of the API server",
    "the time in the message has passed",
)
UNDER_WAY: Final = Reason(
    "surge-under-way",
    "A move of the Deployment is in progress. A Deployment has at most one move at a time.",
    "none needed",
    "the move has ended",
)
NOT_READY: Final = Reason(
    "surge-not-ready",
    "The pod is not Ready.",
    "check why the pod is not Ready: kubectl -n {namespace} describe pod {name}",
    "the pod is Ready",
)
YOUNG: Final = Reason(
    "surge-young",
    "The pod is younger than `surge.minPodAge`. This limit keeps pods from moving twice in a row.",
    "wait; or lower `surge.minPodAge` in the configuration",
    "the pod is older than `surge.minPodAge`",
)
CHEAPER: Final = Reason(
    "surge-other-first",
    "Another pod of the ReplicaSet has a lower pod deletion cost, so it would be deleted in place "
    "of this pod.",
    "remove the annotation controller.kubernetes.io/pod-deletion-cost of the other pod",
    "no other pod of the ReplicaSet has a lower pod deletion cost",
)
NO_PLACE: Final = Reason(
    "surge-no-place",
    "No node that stays has room for the pod in Ebb's plan.",
    "see why: ebb explain pod {namespace}/{name}",
    "another node has room for the pod in Ebb's plan",
)
BESIDE: Final = Reason(
    "surge-beside",
    "No node that stays admits the new pod and has room for it while the old pod still runs. "
    "The topology spread constraints, affinity or anti-affinity of the pod count the old pod too.",
    "add `matchLabelKeys: [pod-template-hash]` to the topology spread constraints of the "
    "pod template; or add a node where the new pod could run beside the old one",
    "a node that stays admits the new pod beside the old one",
)
HOST_PORT: Final = Reason(
    "surge-host-port",
    "The pod uses host ports. No node that stays has room for the pod and these ports free.",
    "use a Service in place of host ports, or add a node",
    "another node has room for the pod, and its host ports are free there",
)
PENDING: Final = Reason(
    "surge-pending",
    "Pods are unschedulable. Ebb begins no move until all pods are scheduled.",
    "check why they are Pending: kubectl get pods -A --field-selector status.phase=Pending",
    "no pod is unschedulable",
)
TURN: Final = Reason(
    "surge-turn",
    "As many moves are in progress, or began within an hour, as `surge.maxAtOnce`, "
    "`surge.maxPerHour` or Ebb's limit for one namespace (10) allow.",
    "none needed; to move more pods, raise `surge.maxAtOnce` or `surge.maxPerHour`",
    "earlier moves have ended, or began more than an hour ago",
)
NODE_SHARE: Final = Reason(
    "surge-node-share",
    "Within 10 minutes, a node has got as many replacements of moved pods as Ebb allows, or "
    "would have if kube-scheduler chose it for the next replacements. The limit keeps a node that "
    "claims too much capacity from getting the pods of all other nodes.",
    "wait; if the node in the message should not get so many pods, check its allocatable capacity",
    "the node has got fewer replacements within the last 10 minutes",
)
REASONS: Final = (
    NO_DEPLOYMENT,
    OWN,
    STRATEGY,
    PAUSED,
    KEEP,
    ROLLOUT,
    UNAVAILABLE,
    MIN_READY,
    HPA,
    QUOTA,
    LEFT_ALONE,
    SETTLING,
    OTHER_CONTROLLER,
    HASH_SELECTED,
    OWNER_REFERENCES,
    NOT_DETACHED,
    UNDER_WAY,
    NOT_READY,
    YOUNG,
    CHEAPER,
    VOLUME,
    NO_PLACE,
    BESIDE,
    HOST_PORT,
    PENDING,
    TURN,
    NODE_SHARE,
)
