"""Writes that the policies of manifests/base/write-policies refuse to accounts of Ebb, as tables.

An entry is the name of a write, the object that it changes, and its JSON merge patch.
"""

from typing import Any, Final

from core.marks.wellknown import (
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    MOVE_ANNOTATION,
    OLD_PROTECTION_ANNOTATION,
    PROTECTION_ANNOTATION,
    REMOVAL_DISABLED,
    SCALE_DOWN_DISABLED_ANNOTATION,
)
from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL
from tests.e2e.api import Json
from tests.e2e.objects import DETAILS, TAINT, THEIRS, node, pod

Refused = tuple[str, str, Json]
"""Name of a write, name of the object, merge patch."""

PLAIN, MARKED, OPTED_OUT, PROTECTED, TIDY = "plain", "marked", "opted-out", "protected", "tidy"
"""Names of the nodes: unmarked; with a PreferNoSchedule mark; opted out, but still marked; with a
protection of another owner; with an opt-out of another tool."""
ZONE: Final = "topology.kubernetes.io/zone"
MISSING_OWNER: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "missing",
    "uid": "00000000-0000-4000-8000-000000000000",
}
MARK: Final = {
    "labels": {MARK_LABEL: "PreferNoSchedule"},
    "annotations": {DETAILS_ANNOTATION: DETAILS},
}


def nodes() -> list[Json]:
    """Return the Nodes, as an administrator creates them."""
    made = {
        PLAIN: node(PLAIN, labels={ZONE: "a"}, annotations={"example.org/a": "1"}),
        MARKED: node(MARKED, labels=MARK["labels"], annotations=MARK["annotations"]),
        OPTED_OUT: node(
            OPTED_OUT,
            labels=MARK["labels"],
            annotations={**MARK["annotations"], KEEP_ANNOTATION: "true"},
        ),
        PROTECTED: node(PROTECTED, annotations={SCALE_DOWN_DISABLED_ANNOTATION: "true"}),
        TIDY: node(TIDY, annotations={REMOVAL_DISABLED: "true"}),
    }
    for name, taints in ((PLAIN, [THEIRS]), (MARKED, [THEIRS, TAINT]), (OPTED_OUT, [TAINT])):
        made[name]["spec"] = {"taints": taints}
    return list(made.values())


def _metadata(**fields: Any) -> Json:
    return {"metadata": fields}


def _labels(**labels: str | None) -> Json:
    return _metadata(labels=labels)


def _annotated(**annotations: str | None) -> Json:
    return _metadata(annotations=annotations)


def _taints(*taints: Json) -> Json:
    return {"spec": {"taints": list(taints)}}


ON_NODES: Final[tuple[Refused, ...]] = (
    ("cordon", PLAIN, {"spec": {"unschedulable": True}}),
    ("pod range", PLAIN, {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}}),
    ("provider", PLAIN, {"spec": {"providerID": "other://machine"}}),
    ("own NoExecute taint", MARKED, _taints(THEIRS, {**TAINT, "effect": "NoExecute"})),
    ("own taint stronger than mark", MARKED, _taints(THEIRS, {**TAINT, "effect": "NoSchedule"})),
    ("own taint with a text", MARKED, _taints(THEIRS, {**TAINT, "value": "x"})),
    ("own taint without a mark", PLAIN, _taints(THEIRS, TAINT)),
    ("another taint", PLAIN, _taints(THEIRS, {**THEIRS, "key": "example.org/b"})),
    ("NoExecute taint", PLAIN, _taints(THEIRS, {"key": "b", "effect": "NoExecute"})),
    ("effect of another taint", PLAIN, _taints({**THEIRS, "effect": "NoExecute"})),
    ("value of another taint", PLAIN, _taints({**THEIRS, "value": "2"})),
    ("removal of another taint", PLAIN, {"spec": {"taints": None}}),
    ("owner that does not exist", PLAIN, _metadata(ownerReferences=[MISSING_OWNER])),
    ("finalizer", PLAIN, _metadata(finalizers=["example.org/never"])),
    ("new label", PLAIN, _labels(**{"example.org/new": "1"})),
    ("changed label", PLAIN, _labels(**{ZONE: "b"})),
    ("removed label", PLAIN, _labels(**{ZONE: None})),
    ("label of the hostname", PLAIN, _labels(**{"kubernetes.io/hostname": "other"})),
    ("role", PLAIN, _labels(**{"node-role.kubernetes.io/control-plane": ""})),
    ("protected label", PLAIN, _labels(**{"a.node-restriction.kubernetes.io/b": "c"})),
    ("unknown label of Ebb", PLAIN, _labels(**{"kube-ebb.io/new": "1"})),
    ("unknown mark", PLAIN, _labels(**{MARK_LABEL: "NoExecute"})),
    ("empty mark", PLAIN, _labels(**{MARK_LABEL: ""})),
    ("new annotation", PLAIN, _annotated(**{"example.org/b": "1"})),
    ("changed annotation", PLAIN, _annotated(**{"example.org/a": "2"})),
    ("removed annotation", PLAIN, _annotated(**{"example.org/a": None})),
    ("opt-out", PLAIN, _annotated(**{KEEP_ANNOTATION: "true"})),
    ("removed opt-out", OPTED_OUT, _annotated(**{KEEP_ANNOTATION: None})),
    ("changed opt-out", OPTED_OUT, _annotated(**{KEEP_ANNOTATION: "false"})),
    ("stronger mark on an opt-out", OPTED_OUT, _labels(**{MARK_LABEL: "NoSchedule"})),
    ("mark on an opt-out of another tool", TIDY, _metadata(**MARK)),
    ("old record", PLAIN, _annotated(**{OLD_PROTECTION_ANNOTATION: "marked"})),
    ("protection with another value", PLAIN, _annotated(**{DO_NOT_DISRUPT_ANNOTATION: "false"})),
    ("removed protection", PROTECTED, _annotated(**{SCALE_DOWN_DISABLED_ANNOTATION: None})),
    ("changed protection", PROTECTED, _annotated(**{SCALE_DOWN_DISABLED_ANNOTATION: "false"})),
    ("claimed protection", PROTECTED, _annotated(**{PROTECTION_ANNOTATION: "marked"})),
    (
        "claimed protection beside a new one",
        PROTECTED,
        _annotated(**{PROTECTION_ANNOTATION: "marked", DO_NOT_DISRUPT_ANNOTATION: "true"}),
    ),
)

OF_SET, AWAY, WITH_COST = "of-set", "away", "with-cost"
"""Names of the pods: of a ReplicaSet; taken out of it by a move; with a cost of another owner."""
HASH: Final = "abc"
OWNER: Final = {
    "apiVersion": "example.org/v1",
    "kind": "ReplicaSet",
    "name": "web-abc",
    "uid": "00000000-0000-4000-8000-000000000001",
    "controller": True,
    "blockOwnerDeletion": True,
}
"""A ReplicaSet of another API group, so that no controller deletes or releases its pods."""
DETACHED_OWNER: Final = {**OWNER, "controller": False, "blockOwnerDeletion": False}
NOTE: Final = '{"begun": 1700000000, "deadline": 1700000600}'
COST: Final = dict.fromkeys((COST_ANNOTATION, COST_OURS_ANNOTATION), "-100000001")
DETACHED: Final = {TEMPLATE_LABEL: None, DETACHED_LABEL: HASH}
BACK: Final = {TEMPLATE_LABEL: HASH, DETACHED_LABEL: None}


def pods() -> list[Json]:
    """Return the pods, as an administrator creates them."""
    of_set, away, with_cost = pod(OF_SET), pod(AWAY), pod(WITH_COST)
    of_set["metadata"] |= {
        "labels": {"app": "lone", TEMPLATE_LABEL: HASH},
        "annotations": {"example.org/a": "1"},
        "ownerReferences": [OWNER],
    }
    away["metadata"] |= {
        "labels": {"app": "lone", DETACHED_LABEL: HASH},
        "annotations": {MOVE_ANNOTATION: NOTE, **COST},
        "ownerReferences": [DETACHED_OWNER],
    }
    with_cost["metadata"] |= {"annotations": {COST_ANNOTATION: "7"}}
    return [of_set, away, with_cost]


def on_pods(of_set: Json) -> tuple[Refused, ...]:
    """Return the writes to pods; *of_set*: the pod OF_SET as stored."""
    (container,), owner, detached = of_set["spec"]["containers"], OWNER, DETACHED_OWNER
    note = {MOVE_ANNOTATION: NOTE}
    toleration = {"key": "example.org/x", "operator": "Exists", "effect": "NoExecute"}

    def moved(**more: Any) -> Json:
        return _metadata(**{"labels": DETACHED, "annotations": note, **more})

    return (
        ("end", OF_SET, {"spec": {"activeDeadlineSeconds": 1}}),
        ("toleration", OF_SET, {"spec": {"tolerations": [toleration]}}),
        ("image", OF_SET, {"spec": {"containers": [{**container, "image": "other"}]}}),
        ("owner that does not exist", WITH_COST, _metadata(ownerReferences=[MISSING_OWNER])),
        ("second owner", OF_SET, _metadata(ownerReferences=[owner, MISSING_OWNER])),
        ("no owner", OF_SET, _metadata(ownerReferences=None)),
        ("no controller", OF_SET, _metadata(ownerReferences=[detached])),
        ("no owner in a move", OF_SET, moved(ownerReferences=None)),
        ("other owner in a move", OF_SET, moved(ownerReferences=[MISSING_OWNER])),
        ("second owner in a move", OF_SET, moved(ownerReferences=[detached, MISSING_OWNER])),
        ("twice the owner in a move", OF_SET, moved(ownerReferences=[detached, owner])),
        (
            "blocking owner in a move",
            OF_SET,
            moved(ownerReferences=[{**detached, "blockOwnerDeletion": True}]),
        ),
        ("renamed owner in a move", OF_SET, moved(ownerReferences=[{**detached, "name": "x"}])),
        ("finalizer", OF_SET, _metadata(finalizers=["example.org/never"])),
        ("removed label", OF_SET, _labels(app=None)),
        ("changed label", OF_SET, _labels(app="other")),
        ("new label", OF_SET, _labels(tier="new")),
        ("removed label in a move", OF_SET, moved(labels={**DETACHED, "app": None})),
        ("no hash", OF_SET, _labels(**{TEMPLATE_LABEL: None})),
        ("no hash, but a note", OF_SET, moved(labels={TEMPLATE_LABEL: None})),
        ("hash moved without a note", OF_SET, _labels(**DETACHED)),
        ("other hash in a move", OF_SET, moved(labels={**DETACHED, DETACHED_LABEL: "x"})),
        ("changed hash", OF_SET, _labels(**{TEMPLATE_LABEL: "x"})),
        ("other hash at the end of a move", AWAY, _labels(**{**BACK, TEMPLATE_LABEL: "x"})),
        ("hash beside the old one", AWAY, _labels(**{TEMPLATE_LABEL: HASH})),
        ("never given back", AWAY, _labels(**{DETACHED_LABEL: None})),
        ("changed hash of a move", AWAY, _labels(**{DETACHED_LABEL: "x"})),
        ("no owner after a move", AWAY, _metadata(labels=BACK, ownerReferences=None)),
        ("new hash", WITH_COST, _labels(**{TEMPLATE_LABEL: HASH})),
        ("detached without a hash", WITH_COST, _labels(**{DETACHED_LABEL: HASH})),
        ("detached with a hash", OF_SET, moved(labels={DETACHED_LABEL: HASH})),
        ("new annotation", OF_SET, _annotated(**{"example.org/b": "1"})),
        ("changed annotation", OF_SET, _annotated(**{"example.org/a": "2"})),
        ("removed annotation", OF_SET, _annotated(**{"example.org/a": None})),
        ("opt-out", OF_SET, _annotated(**{KEEP_ANNOTATION: "true"})),
        ("cost without record", OF_SET, _annotated(**{COST_ANNOTATION: "1"})),
        ("record without cost", OF_SET, _annotated(**{COST_OURS_ANNOTATION: "1"})),
        ("cost of another owner", WITH_COST, _annotated(**{COST_ANNOTATION: "1"})),
        ("removed cost", WITH_COST, _annotated(**{COST_ANNOTATION: None})),
        ("claimed cost", WITH_COST, _annotated(**{COST_OURS_ANNOTATION: "7"})),
        (
            "replaced cost",
            WITH_COST,
            _annotated(**{COST_ANNOTATION: "1", COST_OURS_ANNOTATION: "1"}),
        ),
    )


def on_registration(whole: Json) -> tuple[Refused, ...]:
    """Return the writes to the MutatingWebhookConfiguration *whole* of one webhook."""
    name, (webhook,) = whole["metadata"]["name"], whole["webhooks"]
    (rule,), client = webhook["rules"], webhook["clientConfig"]
    service = client["service"]

    def changed(**fields: Any) -> Json:
        return {"webhooks": [{**webhook, **fields}]}

    more = {**webhook, "name": "pods.webhook.kube-ebb.io"}
    fields: dict[str, Json] = {
        "url": changed(clientConfig={"url": "https://192.0.2.1/"}),
        "other namespace": changed(clientConfig={"service": {**service, "namespace": "default"}}),
        "other service": changed(clientConfig={"service": {**service, "name": "kubernetes"}}),
        "other path": changed(clientConfig={"service": {**service, "path": "/"}}),
        "other port": changed(clientConfig={"service": {**service, "port": 1}}),
        "pods": changed(rules=[{**rule, "resources": ["nodes", "pods"], "scope": "*"}]),
        "secrets": changed(rules=[{**rule, "resources": ["secrets"], "scope": "*"}]),
        "all": changed(rules=[{**rule, "apiGroups": ["*"], "resources": ["*"], "scope": "*"}]),
        "second rule": changed(rules=[rule, {**rule, "operations": ["DELETE"]}]),
        "deletions": changed(rules=[{**rule, "operations": ["*"]}]),
        "no rule": changed(rules=[]),
        "every Node": changed(objectSelector={}),
        "no Node": changed(objectSelector={"matchLabels": {"a": "b"}}),
        "other namespaces": changed(namespaceSelector={"matchLabels": {"a": "b"}}),
        "kubelets": changed(matchConditions=[]),
        "fail": changed(failurePolicy="Fail"),
        "slow": changed(timeoutSeconds=30),
        "once": changed(reinvocationPolicy="Never"),
        "exact": changed(matchPolicy="Exact"),
        "dry runs": changed(sideEffects="NoneOnDryRun"),
        "renamed": changed(name=more["name"]),
        "second webhook": {"webhooks": [webhook, more]},
        "no webhook": {"webhooks": []},
        "label": _labels(a="b"),
        "annotation": _annotated(**{"cert-manager.io/inject-ca-from": "default/x"}),
        "owner that does not exist": _metadata(ownerReferences=[MISSING_OWNER]),
        "finalizer": _metadata(finalizers=["example.org/never"]),
    }
    return tuple((title, name, patch) for title, patch in fields.items())
