"""`ebb doctor`: a broken cluster for each finding, and a healthy one without findings."""

import io
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from cli.__main__ import main
from cli.doctor.checks import CHECKS, diagnose
from cli.doctor.finding import CheckState, Diagnosis
from cli.formats.text import doctor as text
from controller.leader_report import RefusedWrites
from core.marks.wellknown import MOVE_ANNOTATION, TAINT_KEY
from core.model.pod import DETACHED_LABEL
from core.moves.note import MoveNote
from kube.decode.kinds import BUFFERS
from kube.target import NAMESPACE
from tests.manifests.kustomize import ROOT, with_components
from tests.support.plan_cli import ITEMS, dump
from tests.support.setup_cluster import (
    AUTOSCALER,
    COMPONENTS,
    FILE,
    FLAGS,
    NOW,
    REGISTRATION,
    SCHEDULER,
    Break,
    Json,
    SetupCluster,
    budget,
    bundle,
    container,
    daemon_set,
    deployment,
    endpoint_slice,
    key_of,
    node_pool,
    of_kind,
    pod,
)

CA_SECONDS = 3650 * 24 * 3600
TWO_MINUTES = ("--scale-down-unneeded-time=2m", "--scale-down-delay-after-add=2m")
EMPTY_ONLY = "--max-drain-parallelism=0"
ZERO = "--scale-down-utilization-threshold=0"
POLICY = "MutatingAdmissionPolicy ebb-node-taint"
WRITERS = "ValidatingAdmissionPolicy ebb-controller-nodes"
WRITERS_BINDING = "ValidatingAdmissionPolicyBinding ebb-controller-nodes"
POLICY_BINDING = "MutatingAdmissionPolicyBinding ebb-node-taint"


def broken(**fields: Any) -> Break:
    """Return a change of fields of the cluster."""

    def change(cluster: SetupCluster) -> None:
        for name, value in fields.items():
            setattr(cluster, name, value)

    return change


def with_settings(**settings: Any) -> Break:
    return lambda cluster: cluster.settings.update(settings)


def removed(*keys: str) -> Break:
    return lambda cluster: [cluster.objects.pop(key) for key in keys]


def put(*objects: Any) -> Break:
    return lambda cluster: cluster.put(*objects)


def flags(*given: str) -> Break:
    return lambda cluster: cluster.flags(*given)


UPDATES = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
MUTATING = "MutatingWebhookConfiguration team"
LEFT_OUT = '!request.userInfo.username.endsWith(":ebb-controller")'
"""Match condition that leaves out the requests of Ebb."""
REFUSED = RefusedWrites(
    resource="nodes",
    policy="ebb-controller-nodes",
    change="metadata.labels: team",
    until_seconds=NOW,
)


def mutating(rule: Json, **fields: Any) -> Json:
    """Return a webhook of a user that matches nodes, unless *rule* changes that."""
    webhook = {"name": "t", "rules": [{**UPDATES, "resources": ["nodes"], **rule}], **fields}
    return of_kind("MutatingWebhookConfiguration", "team", webhooks=[webhook])


def adding_policy(**fields: Any) -> tuple[Json, Json]:
    """Return a policy of a user that matches nodes, and its binding."""
    rules = [{**UPDATES, "resources": ["nodes"]}]
    spec = {"matchConstraints": {"resourceRules": rules}, **fields}
    return (
        of_kind("MutatingAdmissionPolicy", "team", spec=spec),
        of_kind("MutatingAdmissionPolicyBinding", "team", spec={"policyName": "team"}),
    )


def webhook(**fields: Any) -> Break:
    return lambda cluster: cluster.objects[REGISTRATION]["webhooks"][0].update(fields)


def ca(value: str) -> Break:
    def change(cluster: SetupCluster) -> None:
        cluster.objects[REGISTRATION]["webhooks"][0]["clientConfig"]["caBundle"] = value

    return change


def scheduler(**fields: Any) -> Break:
    return lambda cluster: (cluster.scheduler or {}).update(fields)


def extender_entry(**fields: Any) -> Break:
    return lambda cluster: (cluster.scheduler or {})["extenders"][0].update(fields)


def both(*changes: Break) -> Break:
    return lambda cluster: [change(cluster) for change in changes]


def stopped(cluster: SetupCluster) -> None:
    cluster.objects[AUTOSCALER]["spec"]["replicas"] = 0


def no_pools(cluster: SetupCluster) -> None:
    cluster.none = ("NodePool",)


def no_autoscaler(cluster: SetupCluster) -> None:
    cluster.objects.pop(AUTOSCALER)
    cluster.objects.pop("ConfigMap kube-system/cluster-autoscaler-status")
    cluster.put({"kind": "ConfigMap", "metadata": {"name": "other", "namespace": "ops"}})
    cluster.none = ("NodePool",)


def with_policy(cluster: SetupCluster) -> None:
    """Replace the webhook by the admission policy."""
    cluster.objects.pop(REGISTRATION)
    cluster.none = ("MutatingWebhookConfiguration",)
    found = {key_of(one): one for one in with_components("admission-policy")}
    cluster.objects |= {key: found[key] for key in (POLICY, POLICY_BINDING)}


def policy_of_other_taint(cluster: SetupCluster) -> None:
    with_policy(cluster)
    cluster.objects[POLICY]["spec"]["variables"][0]["expression"] = '"other/key"'


def bare_scheduler(cluster: SetupCluster) -> None:
    cluster.scheduler, cluster.scored = None, 0
    cluster.put(pod("kube-scheduler-cp-1", "kube-system", "kube-scheduler", "--v=2"))


def costs(cluster: SetupCluster) -> None:
    owner = {"kind": "ReplicaSet", "name": "web", "controller": True}
    for number in range(2):
        annotations = {"controller.kubernetes.io/pod-deletion-cost": str(number)}
        given: Any = {"ownerReferences": [owner], "annotations": annotations}
        cluster.put(pod(f"web-{number}", "shop", **given))


def detached(begun: int | None) -> Any:
    """Return a pod that a move has detached at a time; without a note if it is None."""
    owner = {"kind": "ReplicaSet", "name": "web-h", "uid": "u", "controller": False}
    note = MoveNote(begun, begun + 600).encode() if begun is not None else ""
    given: Any = {"annotations": {MOVE_ANNOTATION: note}, "ownerReferences": [owner]}
    return pod("web-1-x", "shop", labels={DETACHED_LABEL: "h"}, **given)


def bound_to_group(cluster: SetupCluster) -> None:
    """Bind permissions to all ServiceAccounts of Ebb's namespace, by a rule for all resources."""
    name = "ebb-controller-eviction"
    group = {"kind": "Group", "name": f"system:serviceaccounts:{NAMESPACE}"}
    cluster.objects[f"ClusterRoleBinding {name}"]["subjects"] = [group]
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    cluster.objects[f"ClusterRole {name}"]["rules"] = [rule]


def no_requests(cluster: SetupCluster) -> None:
    one = pod("bare", "shop")
    del one["spec"]["containers"][0]["resources"]
    cluster.put(one)


BROKEN: list[tuple[str, Break, str]] = [
    ("autoscaler", no_autoscaler,
     "ConfigMap kube-system/cluster-autoscaler-status does not exist"),
    ("autoscaler", both(no_pools, flags("--scale-down-enabled=false", *TWO_MINUTES)),
     f"{AUTOSCALER}, --scale-down-enabled: false"),
    ("autoscaler", both(no_pools, stopped),
     f"{AUTOSCALER}, spec.replicas: 0"),
    ("autoscaler-status", removed("ConfigMap kube-system/cluster-autoscaler-status"),
     "ConfigMap kube-system/cluster-autoscaler-status does not exist"),
    ("autoscaler-evicts", flags(*TWO_MINUTES),
     f"{AUTOSCALER}, --scale-down-utilization-threshold: 0.5 (default)"),
    ("autoscaler", both(no_pools, flags(ZERO, *TWO_MINUTES,
                                    "--ignore-mirror-pods-utilization")),
     f"{AUTOSCALER}, --ignore-daemonsets-utilization: false (default)"),
    ("autoscaler-delays", flags(EMPTY_ONLY, TWO_MINUTES[0]),
     f"{AUTOSCALER}, --scale-down-delay-after-add: 10m (default)"),
    ("autoscaler-delays", flags(EMPTY_ONLY, "--scale-down-unneeded-time", "5m", TWO_MINUTES[1]),
     f"{AUTOSCALER}, --scale-down-unneeded-time: 5m"),
    ("autoscaler-taint", flags(EMPTY_ONLY, *TWO_MINUTES, f"--ignore-taint={TAINT_KEY}"),
     f"{AUTOSCALER}, --ignore-taint: {TAINT_KEY}"),
    ("nodepools", put(node_pool("default", consolidateAfter="30s")),
     "NodePool default, spec.disruption.consolidationPolicy: WhenEmptyOrUnderutilized"),
    ("nodepools", put(node_pool("x", consolidationPolicy="WhenEmpty", consolidateAfter="Never")),
     ("NodePool x, spec.disruption: removes no empty nodes "
     "(spec.disruption.consolidateAfter: Never)")),
    ("scheduler-scoring", scheduler(profiles=[{"schedulerName": "web"}]),
     f"{FILE}, profile web, NodeResourcesFit.scoringStrategy.type: LeastAllocated"),
    ("scheduler-scoring", lambda one: one.scheduler["profiles"][0].pop("plugins"),  # type: ignore[index]
     f"{FILE}, profile default-scheduler, NodeResourcesBalancedAllocation: enabled"),
    ("extender", scheduler(extenders=[]),
     f"{FILE}, extenders: none with prioritizeVerb: prioritize"),
    ("extender", extender_entry(ignorable=False),
     f"{FILE}, extender http://10.96.0.50:8888, ignorable: false"),
    ("extender", extender_entry(weight=1),
     f"{FILE}, extender http://10.96.0.50:8888, weight: 1"),
    ("extender", removed(f"Pod {NAMESPACE}/ebb-extender-1"),
     f"namespace {NAMESPACE}, pods of the extender: 0"),
    ("extender", broken(scored=0), "Pod shop/web-1, spec.nodeName: n1"),
    ("extender", broken(scored=0, refused=3),
     "metrics of ebb-extender, prioritize calls, refused: 3"),
    ("admission", both(removed(REGISTRATION), broken(none=(
        "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration"))),
     f"{REGISTRATION} does not exist"),
    ("admission", webhook(failurePolicy="Fail"),
     f"{REGISTRATION}, webhooks[0].failurePolicy: Fail"),
    ("admission", webhook(objectSelector={}),
     f"{REGISTRATION}, webhooks[0].objectSelector: all objects"),
    ("admission", webhook(rules=[{"resources": ["nodes"], "operations": ["CREATE"]}]),
     f"{REGISTRATION}, webhooks[0].rules.operations: CREATE"),
    ("admission", webhook(rules=[{"resources": ["nodes", "nodes/status"], "operations": ["*"]}]),
     f"{REGISTRATION}, webhooks[0].rules.resources: nodes, nodes/status"),
    ("admission", lambda one: one.objects[REGISTRATION].update(webhooks=[]),
     f"{REGISTRATION}, webhooks: none"),
    ("admission", put(endpoint_slice(ready=False)),
     f"Service {NAMESPACE}/ebb-webhook, ready endpoints: 0"),
    ("admission", policy_of_other_taint, f'{POLICY}, spec.variables, key: "other/key"'),
    ("admission", both(with_policy, lambda one: one.objects[POLICY_BINDING]["spec"].clear()),
     f"{POLICY_BINDING} does not exist"),
    ("write-policies", removed(WRITERS), f"{WRITERS} does not exist"),
    ("write-policies", removed(WRITERS_BINDING), f"{WRITERS_BINDING} does not exist"),
    ("write-policies",
     lambda one: one.objects[WRITERS_BINDING]["spec"].update(validationActions=["Audit", "Warn"]),
     f"{WRITERS_BINDING}, spec.validationActions: Audit, Warn"),
    ("mutating-admission", put(mutating({"scope": "Cluster"})),
     f"{MUTATING}, webhooks[0].rules: UPDATE nodes"),
    ("mutating-admission", put(mutating({"resources": ["pods/*"], "operations": ["*"]})),
     f"{MUTATING}, webhooks[0].rules: UPDATE pods"),
    ("mutating-admission", put(mutating({"apiGroups": ["*"], "resources": ["*"]})),
     f"{MUTATING}, webhooks[0].rules: UPDATE nodes, pods"),
    ("mutating-admission", put(*adding_policy()),
     "MutatingAdmissionPolicy team, spec.matchConstraints: UPDATE nodes"),
    ("mutating-admission", broken(refused_writes=[REFUSED]),
     ("report of the leader, ValidatingAdmissionPolicy ebb-controller-nodes refuses: "
      "metadata.labels: team")),
    ("certificates", ca(""), f"{REGISTRATION}, webhooks[0].clientConfig.caBundle: empty"),
    ("certificates", ca("!"),
     (f"{REGISTRATION}, webhooks[0].clientConfig.caBundle: cannot be read: Only base64 data is "
     "allowed")),
    ("certificates", ca("eA=="),
     f"{REGISTRATION}, webhooks[0].clientConfig.caBundle: has no certificate"),
    ("certificates", ca(bundle(NOW - CA_SECONDS - 24 * 3600)),
     f"{REGISTRATION}, webhooks[0].clientConfig.caBundle: expired at 2025-12-30 23:00:00 UTC"),
    ("certificates", ca(bundle(NOW - CA_SECONDS + 24 * 3600)),
     f"{REGISTRATION}, webhooks[0].clientConfig.caBundle: valid until 2026-01-01 23:00:00 UTC"),
    ("viewer-rights", broken(denied="pods/portforward"),
     f"your user, kubectl auth can-i create pods --subresource=portforward -n {NAMESPACE}: no"),
    ("program-rights", removed("ClusterRoleBinding ebb-controller-eviction"),
     (f"ServiceAccount {NAMESPACE}/ebb-controller, "
     "create pods --subresource=eviction -A: not allowed")),
    ("program-rights", removed(f"RoleBinding {NAMESPACE}/ebb-webhook-certs"),
     (f"ServiceAccount {NAMESPACE}/ebb-webhook, get secrets/ebb-webhook-certs -n {NAMESPACE}: "
     "not allowed")),
    ("capacity-buffers", broken(absent={BUFFERS.name: "404: no such kind"}),
     "capacitybuffers, list: 404: no such kind"),
    ("daemonsets", put(daemon_set("agent", {"key": "other", "operator": "Exists"})),
     ("DaemonSet kube-system/agent, tolerations: none for "
     "status-taint.cluster-autoscaler.kubernetes.io/kube-ebb")),
    ("budgets", put(budget("strict", desired=3, allowed=0)),
     "PodDisruptionBudget shop/strict, status.disruptionsAllowed: 0 (3 of 3 pods must be Ready)"),
    ("cost-writers", costs,
     "ReplicaSet shop/web, pods with a deletion cost of another controller: 2"),
    ("requests", no_requests, "Pod shop/bare, pods without requests: 1"),
    ("detached-pods", put(detached(NOW - 700)),
     ("Pod shop/web-1-x, detached, deadline 2025-12-31 23:58:20 UTC: kubectl label pod web-1-x "
     "-n shop pod-template-hash=h kube-ebb.io/detached-")),
    ("detached-pods", put(detached(None)),
     ("Pod shop/web-1-x, detached, deadline unknown: kubectl label pod web-1-x "
     "-n shop pod-template-hash=h kube-ebb.io/detached-")),
    ("owner-references", broken(refused_moves={"surge-owner-references": 2}),
     "report of the leader, ReplicaSets with surge-owner-references: 2"),
    ("clocks", broken(local_seconds=NOW - 60),
     "this machine, seconds ahead of the API server: -60"),
    ("clocks", broken(renewed_seconds=NOW + 30), "leader a, seconds ahead of the API server: 30"),
]  # fmt: skip
"""Check that finds the problem, what breaks the cluster, and a line of the evidence."""


HARMLESS: dict[str, Break] = {
    "operations": put(mutating({"operations": ["CREATE", "DELETE"]})),
    "group": put(mutating({"apiGroups": ["apps"]})),
    "scope of nodes": put(mutating({"scope": "Namespaced"})),
    "scope of pods": put(mutating({"resources": ["pods"], "scope": "Cluster"})),
    "subresources": put(mutating({"resources": ["pods/status", "nodes/status", "*/scale"]})),
    "left out": put(mutating({}, matchConditions=[{"name": "ebb", "expression": LEFT_OUT}])),
    "left out of policy": put(
        *adding_policy(matchConditions=[{"name": "ebb", "expression": LEFT_OUT}])
    ),
    "no binding": put(
        adding_policy()[0],
        of_kind("MutatingAdmissionPolicyBinding", "other", spec={"policyName": "other"}),
    ),
    "no policy": put(adding_policy()[1], of_kind("MutatingAdmissionPolicy", "other", spec={})),
    "no constraints": put(*adding_policy(matchConstraints=None)),
    "pods are not written": both(
        put(mutating({"resources": ["pods"]})),
        with_settings(surge={"mode": "disabled"}, podDeletionCost="disabled"),
    ),
    "pods may not be written": both(
        put(mutating({"resources": ["pods"]})),
        with_settings(surge={"mode": "disabled"}),
        removed(
            "ClusterRoleBinding ebb-controller-scale-in",
            "ClusterRoleBinding ebb-controller-surge",
        ),
    ),
}
"""Webhooks and policies that change no object of a write of Ebb."""


def diagnosed(*changes: Break) -> Diagnosis:
    cluster = SetupCluster()
    for change in changes:
        change(cluster)
    return diagnose(cluster.facts())


def codes(diagnosis: Diagnosis, state: CheckState) -> list[str]:
    return [one.check.code for one in diagnosis.findings if one.result.state is state]


def lines(diagnosis: Diagnosis) -> list[str]:
    return [text.line(each) for one in diagnosis.findings for each in one.result.evidence]


class TestChecks:
    def test_healthy_cluster_has_no_finding(self) -> None:
        found = diagnosed()
        assert [one for one in found.findings if one.result.state is not CheckState.OK] == []
        assert len(found.findings) == len(CHECKS)

    @pytest.mark.parametrize("harmless", HARMLESS)
    def test_webhook_or_policy_that_changes_no_write_is_no_problem(self, harmless: str) -> None:
        found = diagnosed(HARMLESS[harmless])
        assert "mutating-admission" in codes(found, CheckState.OK)

    def test_webhook_is_no_problem_when_policies_refuse_nothing(self) -> None:
        found = diagnosed(put(mutating({})), removed(WRITERS_BINDING))
        assert codes(found, CheckState.PROBLEM) == ["write-policies"]

    @pytest.mark.parametrize(("code", "change", "evidence"), BROKEN)
    def test_check_finds_broken_part_of_cluster(
        self, code: str, change: Break, evidence: str
    ) -> None:
        found = diagnosed(change)
        assert codes(found, CheckState.PROBLEM) == [code]
        assert codes(found, CheckState.UNKNOWN) == []
        assert evidence in lines(found)

    def test_every_check_has_broken_cluster(self) -> None:
        assert {code for code, _, _ in BROKEN} == {check.code for check in CHECKS}

    def test_codes_are_unique(self) -> None:
        found = [check.code for check in CHECKS]
        assert len(found) == len(set(found))

    @pytest.mark.parametrize(
        "change",
        [
            both(flags(*TWO_MINUTES), with_settings(scaleDownProtection={"scope": "all"})),
            flags(ZERO, "--ignore_daemonsets_utilization", "-ignore-mirror-pods-utilization=true",
                  *TWO_MINUTES),
            put(deployment("scaler", "ops", "reg/cluster-autoscaler@sha256:0", "sh", "-c",
                           f"exec ./cluster-autoscaler {EMPTY_ONLY} {' '.join(TWO_MINUTES)}")),
            both(put(daemon_set("agent")), with_settings(noScheduleAfter="never",
                 eviction={"mode": "disabled"})),
            both(put(budget("strict", desired=3, allowed=0)),
                 with_settings(eviction={"mode": "disabled"})),
            both(put(budget("now", desired=2, allowed=0))),
            both(costs, with_settings(podDeletionCost="disabled", surge={"mode": "disabled"})),
            with_policy,
            bound_to_group,
            both(flags("--v=4"), stopped),
            broken(scheduler=None, scored=1, live=True, objects=SetupCluster().objects),
            put(detached(NOW - 650)),
            broken(refused_moves={"surge-hash-selected": 2}),
            both(with_settings(surge={"mode": "disabled"}),
                 broken(refused_moves={"surge-owner-references": 2})),
        ],
        ids=range(14),
    )  # fmt: skip
    def test_allowed_setup_is_no_problem(self, change: Break) -> None:
        assert codes(diagnosed(change), CheckState.PROBLEM) == []

    def test_status_in_other_namespace_also_needs_its_permission(self) -> None:
        found = diagnosed(
            with_settings(clusterAutoscaler={"status": "scaling/cluster-autoscaler-status"})
        )
        assert codes(found, CheckState.PROBLEM) == ["autoscaler-status", "program-rights"]
        assert f"{AUTOSCALER}, metadata.namespace: kube-system" in lines(found)

    def test_scheduler_without_configuration_is_problem_of_scores_and_extender(self) -> None:
        found = diagnosed(bare_scheduler)
        assert codes(found, CheckState.PROBLEM) == ["scheduler-scoring", "extender"]
        assert f"{SCHEDULER}, --config: not set" in lines(found)

    @pytest.mark.parametrize("component", COMPONENTS)
    def test_permissions_suffice_only_with_components_of_settings(self, component: str) -> None:
        def change(cluster: SetupCluster) -> None:
            without = with_components(*(one for one in COMPONENTS if one != component))
            left = {key_of(one) for one in without}
            with_it = {key_of(one) for one in with_components(*COMPONENTS)}
            for key in with_it - left:
                if key.startswith(("ClusterRole", "Role")):
                    cluster.objects.pop(key)

        # The component surge also grants the permission for pod deletion costs, and without
        # capacity-buffers Ebb publishes none.
        needed = component not in ("pod-deletion-cost", "capacity-buffers")
        expected = ["program-rights"] if needed else []
        assert codes(diagnosed(change), CheckState.PROBLEM) == expected


def without(*kinds: str) -> Break:
    return lambda cluster: cluster.without(*kinds)


UNKNOWN: list[tuple[Break, set[str]]] = [
    (without("Deployment"),
     {"autoscaler-evicts", "autoscaler-delays"}),
    (removed(AUTOSCALER), {"autoscaler-evicts", "autoscaler-delays"}),
    (without("ConfigMap"), {"autoscaler-status"}),
    (both(with_policy, without("MutatingAdmissionPolicyBinding")),
     {"admission", "mutating-admission"}),
    (without("NodePool"), {"nodepools"}),
    (without("MutatingWebhookConfiguration"),
     {"admission", "certificates", "mutating-admission"}),
    (without("ValidatingAdmissionPolicy"), {"write-policies"}),
    (without("ValidatingAdmissionPolicyBinding"), {"write-policies", "mutating-admission"}),
    (without("EndpointSlice"), {"admission"}),
    (without("Role"), {"program-rights", "capacity-buffers"}),
    (without("DaemonSet"), {"daemonsets"}),
    (without("PodDisruptionBudget"), {"budgets"}),
    (broken(scheduler=None), {"scheduler-scoring"}),
    (both(broken(scheduler=None), removed(SCHEDULER)), {"scheduler-scoring"}),
    (broken(live=False),
     {"viewer-rights", "clocks", "extender", "owner-references", "mutating-admission"}),
    (broken(renewed_seconds=NOW - 600), {"clocks"}),
    (flags("--scale-down-unneeded-time=$(TIME)", EMPTY_ONLY), {"autoscaler-delays"}),
    (flags("--max-drain-parallelism=$(N)", *TWO_MINUTES), {"autoscaler-evicts"}),
    (both(broken(scored=0), put(pod("web-1", "shop"))), {"extender"}),
]  # fmt: skip
"""What cannot be seen, and the checks that depend on it."""


class TestUnknown:
    @pytest.mark.parametrize(("change", "expected"), UNKNOWN)
    def test_check_is_unknown_when_part_cannot_be_seen(
        self, change: Break, expected: set[str]
    ) -> None:
        found = diagnosed(change)
        assert (codes(found, CheckState.PROBLEM), set(codes(found, CheckState.UNKNOWN))) == (
            [],
            expected,
        )
        for one in found.findings:
            assert bool(one.result.visible_by) is (one.result.state is CheckState.UNKNOWN)

    def test_clock_of_leader_is_unknown_when_lease_is_unreadable(self) -> None:
        found = diagnosed(broken(lease_problem="answered 403"))
        (clocks,) = (
            one.result for one in found.findings if one.result.state is CheckState.UNKNOWN
        )
        assert "the Lease l of the leader cannot be read: answered 403" in clocks.seen

    def test_flags_of_pod_are_used_when_dump_lacks_deployments(self) -> None:
        def change(cluster: SetupCluster) -> None:
            cluster.without("Deployment")
            program = pod("ca-7d9", "kube-system", *FLAGS, image="k8s/cluster-autoscaler:v1.36.1")
            cluster.put(program)

        assert codes(diagnosed(change), CheckState.UNKNOWN) == []
        found = diagnosed(
            change,
            lambda one: one.objects["Pod kube-system/ca-7d9"]["spec"].update(
                containers=[container("k8s/cluster-autoscaler", *TWO_MINUTES)]
            ),
        )
        assert codes(found, CheckState.PROBLEM) == ["autoscaler-evicts"]

    def test_object_with_invalid_field_is_unknown_and_named(self) -> None:
        found = diagnosed(put({**deployment("x", "y", "z"), "spec": {"template": 7}}))
        assert set(codes(found, CheckState.UNKNOWN)) == {"autoscaler-evicts", "autoscaler-delays"}
        (why, *_) = [
            one.result.seen for one in found.findings if one.check.code == "autoscaler-evicts"
        ]
        assert why.startswith("cannot read deployments: d.json: ")
        assert "`$.spec.template`" in why


class TestCommand:
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        file = tmp_path / "d.json"
        file.write_bytes(dump(*ITEMS))
        return str(file)

    def test_json_has_documented_fields(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["doctor", "--from-file", path, "-o", "json"]) == 0
        found = orjson.loads(capsys.readouterr().out)
        assert (found["kind"], found["source"]) == ("Diagnosis", path)
        states = [one["state"] for one in found["findings"]]
        assert found["counts"] == {
            state: states.count(state) for state in ("problem", "unknown", "ok")
        }
        for one in found["findings"]:
            assert list(one) == [
                "code", "state", "question", "seen", "evidence", "effect", "fix", "visibleBy"
            ]  # fmt: skip
            assert (one["fix"] is not None) is (one["state"] == "problem")

    @pytest.mark.parametrize(("requests", "code"), [({}, 1), ({"cpu": "1", "memory": "1Gi"}, 0)])
    def test_exit_code_is_1_for_problems_only_if_asked(
        self, requests: dict[str, str], code: int, tmp_path: Path
    ) -> None:
        items = [one for one in ITEMS if one["kind"] == "Node"]
        one = pod("a", "shop")
        one["spec"] |= {"nodeName": items[0]["metadata"]["name"]}
        one["spec"]["containers"][0]["resources"] = {"requests": requests}
        file = tmp_path / "d.json"
        file.write_bytes(dump(*items, one))
        assert main(["doctor", "--from-file", str(file)]) == 0
        assert main(["doctor", "--from-file", str(file), "--exit-code"]) == code

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            ("kind: ConfigMap", "kind: 'ConfigMap'; allowed: KubeSchedulerConfiguration"),
            ("a: [", "line 1: "),
            ("7", "kind: None; allowed: KubeSchedulerConfiguration"),
        ],
    )
    def test_invalid_scheduler_configuration_is_one_line_and_exit_code_2(
        self, content: str, told: str, path: str, tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        file = tmp_path / "s.yaml"
        file.write_text(content)
        assert main(["doctor", "--from-file", path, "--scheduler-config", str(file)]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"ebb: {file}: {told}")
        assert err.count("\n") == 1

    def test_shipped_scheduler_configuration_has_no_problem(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = str(ROOT / "manifests" / "scheduler" / FILE)
        main(["doctor", "--from-file", path, "--scheduler-config", file, "-o", "json"])
        found = orjson.loads(capsys.readouterr().out)["findings"]
        states = {one["code"]: one["state"] for one in found}
        assert states["scheduler-scoring"] == "ok"
        assert states["extender"] == "problem"  # the dump has no pod of the extender

    @pytest.mark.parametrize("width", [60, 80, 200])
    def test_table_fits_terminal(self, width: int) -> None:
        out = io.StringIO()
        text.write(
            diagnosed(no_requests, broken(live=False)),
            Console(file=out, width=width, force_terminal=True, no_color=True, highlight=False),
        )
        plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
        assert "fix" in plain
        # A name, such as the key of the taint, may be longer than its column.
        assert [
            line for line in plain.splitlines() if len(line) > width and " " in line.strip()
        ] == []
