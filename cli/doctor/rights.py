"""Checks of RBAC: what the user of `ebb` may read, and what Ebb's programs may do."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cli.doctor.finding import (
    Check,
    CheckResult,
    Evidence,
    Facts,
    first_unread,
    ok,
    problem,
    unknown,
    unread,
    values,
)
from cli.input.setup import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NOT_IN_DUMP,
    RBAC_KINDS,
    REGISTRATIONS,
    ROLE_BINDINGS,
    ROLES,
    Right,
    running_extenders,
)
from cli.input.setup_objects import ApiRule
from controller.names import LEASE
from core.config.settings import Mode, PodDeletionCost
from core.model.humanize import plural
from kube.cluster_kinds import KINDS, NEEDED, ONLY, SURGE_KINDS
from kube.decode.kinds import BUDGETS, BUFFERS, NODES, PODS, AnyKind
from kube.decode.selecting import CONTROLLERS, OBSERVERS
from webhook.names import REGISTRATION, SECRET

CONTROLLER: Final = "ebb-controller"
WEBHOOK: Final = "ebb-webhook"
EXTENDER: Final = "ebb-extender"
"""Names of the ServiceAccounts, as in manifests/."""
EVENTS: Final = ("events.k8s.io", "events")
FOLLOW: Final = ("list", "watch")
DEFAULT: Final = "default"
"""Namespace of Events about Nodes."""
ALL: Final = "*"


def _viewer(facts: Facts) -> CheckResult:
    access = facts.setup.access
    if access.value is None:
        return unknown(access.absent, "run `ebb doctor` against the live cluster")
    denied = [str(right) for right, allowed in access.value.items() if not allowed]
    if denied:
        evidence = [Evidence("your user", f"kubectl auth can-i {right}", "no") for right in denied]
        return problem(
            f"your user lacks {plural(len(denied), 'permission')} that `ebb` needs", evidence
        )
    return ok(f"your user has all {plural(len(access.value), 'permission')} that `ebb` needs")


def _programs(facts: Facts) -> CheckResult:
    if missing := first_unread(facts, *RBAC_KINDS):
        return missing
    needed = list(dict.fromkeys(needed_rights(facts)))
    granted = {
        account: tuple(_granted(facts, account)) for account in {account for account, _ in needed}
    }
    evidence = [
        Evidence(f"ServiceAccount {facts.namespace}/{account}", str(right), "not allowed")
        for account, right in needed
        if not any(_allows(namespace, rule, right) for namespace, rule in granted[account])
    ]
    if evidence:
        return problem(
            f"Ebb's ServiceAccounts lack {plural(len(evidence), 'permission')}", evidence
        )
    return ok(f"Ebb's ServiceAccounts have all {plural(len(needed), 'permission')} that they need")


def _buffers(facts: Facts) -> CheckResult:
    if facts.config.mode is Mode.OBSERVE:
        return ok("Ebb publishes no CapacityBuffers (mode: observe)")
    if missing := first_unread(facts, *RBAC_KINDS):
        return missing
    if not publishes(facts):
        return ok(
            "Ebb publishes no CapacityBuffers, because the component capacity-buffers is not "
            "installed"
        )
    why = facts.cluster_input.why_absent(BUFFERS.name)
    if why == NOT_IN_DUMP:
        return unread(BUFFERS.resource, why, "`kubectl get capacitybuffers -A -o json`")
    if why:
        seen = "the component capacity-buffers is installed, but CapacityBuffers cannot be read"
        return problem(seen, [Evidence(BUFFERS.resource, "list", why)])
    return ok("Ebb publishes CapacityBuffers for expected pods")


def needed_rights(facts: Facts) -> Iterator[tuple[str, Right]]:
    """Yield each permission that a program of Ebb needs, after the name of its ServiceAccount.

    The configuration decides which permissions are necessary.
    """
    yield from ((CONTROLLER, right) for right in _of_controller(facts))
    if _has_webhook(facts) and facts.config.webhook.cert_dir is None:
        yield from ((WEBHOOK, right) for right in _of_webhook(facts.namespace))
    if running_extenders(facts.cluster, facts.namespace):
        kinds = (NODES, PODS) if facts.config.extender.score == "pack" else (NODES,)
        yield from ((EXTENDER, right) for kind in kinds for right in _followed(kind))


def _has_webhook(facts: Facts) -> bool:
    registrations = values(facts.setup.of(REGISTRATIONS))
    return any(registration.metadata.name == REGISTRATION for registration in registrations)


def _followed(kind: AnyKind) -> Iterator[Right]:
    """Yield the permissions to list and watch all objects of a kind."""
    yield from (Right(verb, kind.group, kind.resource) for verb in FOLLOW)


def _of_controller(facts: Facts) -> Iterator[Right]:
    config, namespace = facts.config, facts.namespace
    for kind in KINDS:
        if kind in ONLY:
            within, _, name = ONLY[kind](config).partition("/")
            yield from (Right(verb, kind.group, kind.resource, within, name) for verb in FOLLOW)
        elif kind not in NEEDED:
            yield from _followed(kind)
    yield from (Right(verb, "", "nodes") for verb in ("get", "patch"))
    yield Right("create", *EVENTS, DEFAULT)
    yield Right("create", "coordination.k8s.io", "leases", namespace)
    for verb in ("get", "update"):
        yield Right(verb, "coordination.k8s.io", "leases", namespace, LEASE)
    if config.evicts:
        yield Right("create", "", "pods/eviction")
        yield from _followed(BUDGETS)
    if publishes(facts):
        yield from (Right(verb, "", "podtemplates", namespace) for verb in ("create", "delete"))
        for verb in ("create", "patch", "delete"):
            yield Right(verb, BUFFERS.group, BUFFERS.resource, namespace)
    if config.surges or config.pod_deletion_cost is PodDeletionCost.ENABLED:
        yield from (Right(verb, "", "pods") for verb in ("get", "patch"))
    if config.surges:
        yield from (right for kind in SURGE_KINDS for right in _followed(kind))
        yield from (Right("list", *kind.access) for kind in (*CONTROLLERS, *OBSERVERS))


def _of_webhook(namespace: str) -> Iterator[Right]:
    group = "admissionregistration.k8s.io"
    yield from (Right(verb, "", "secrets", namespace, SECRET) for verb in ("get", "update"))
    yield Right("create", *EVENTS, namespace)
    for verb in ("get", "patch"):
        yield Right(verb, group, "mutatingwebhookconfigurations", "", REGISTRATION)


def publishes(facts: Facts) -> bool:
    """Return whether Ebb publishes CapacityBuffers: its account may create them.

    False in mode observe.
    """
    create = Right("create", BUFFERS.group, BUFFERS.resource, facts.namespace)
    return facts.config.mode is Mode.ENFORCE and is_granted(facts, CONTROLLER, create)


def is_granted(facts: Facts, account: str, right: Right) -> bool:
    """Return whether RBAC objects that were read allow a permission to an account of Ebb."""
    return any(_allows(within, rule, right) for within, rule in _granted(facts, account))


def _granted(facts: Facts, account: str) -> Iterator[tuple[str, ApiRule]]:
    """Yield (namespace, rule) for each RBAC rule that is bound to a ServiceAccount of Ebb.

    An empty namespace means that the rule holds in all namespaces. *account*: name of the
    ServiceAccount.
    """
    roles = {("", role.metadata.name): role for role in values(facts.setup.of(CLUSTER_ROLES))}
    roles |= {
        (role.metadata.namespace or DEFAULT, role.metadata.name): role
        for role in values(facts.setup.of(ROLES))
    }
    for kind in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
        for binding in values(facts.setup.of(kind)):
            namespace = binding.metadata.namespace or ""
            subjects = binding.subjects or ()
            if not any(_is_of(subject, account, facts.namespace) for subject in subjects):
                continue
            of_role = namespace if binding.role_ref.kind == ROLES.name else ""
            role = roles.get((of_role, binding.role_ref.name))
            yield from ((namespace, rule) for rule in (role.rules if role else None) or ())


def _is_of(subject: Any, account: str, namespace: str) -> bool:  # noqa: ANN401 a Subject
    """Return whether the subject of an RBAC binding is or contains a ServiceAccount.

    *account*, *namespace*: name and namespace of the ServiceAccount.
    """
    if subject.kind == "Group":
        return subject.name in (
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        )
    return (subject.kind, subject.name, subject.namespace) == (
        "ServiceAccount", account, namespace,
    )  # fmt: skip


def _allows(namespace: str, rule: ApiRule, right: Right) -> bool:
    """Return whether an RBAC rule allows a permission.

    *namespace*: where the rule is bound; empty if it holds in all namespaces.
    """
    _, _, subresource = right.resource.partition("/")
    resources = {ALL, right.resource, *([f"{ALL}/{subresource}"] if subresource else [])}
    return (
        namespace in ("", right.namespace)
        and _any_of(rule.verbs, {ALL, right.verb})
        and _any_of(rule.api_groups, {ALL, right.group})
        and _any_of(rule.resources, resources)
        and (not rule.resource_names or right.name in rule.resource_names)
    )


def _any_of(given: Sequence[str] | None, wanted: set[str]) -> bool:
    return not wanted.isdisjoint(given or ())


CHECKS: Final = (
    Check(
        code="viewer-rights",
        question="May your user read everything that `ebb` shows?",
        effect="the commands of `ebb` know less than the controller: their plans ignore what your "
        "user may not read",
        fix="bind the Role ebb-viewer and the ClusterRole of "
        "docs/install-reference.md#rights-of-people-who-run-ebb to your user",
        run=_viewer,
    ),
    Check(
        code="program-rights",
        question="May Ebb's ServiceAccounts do what the configuration needs?",
        effect="calls of Ebb's programs fail with status 403, and parts of Ebb do not work",
        fix="add the component that grants the permissions to your overlay, and apply the "
        "overlay (docs/install-reference.md#your-overlay)",
        run=_programs,
    ),
    Check(
        code="capacity-buffers",
        question="Can Ebb publish CapacityBuffers, if the component capacity-buffers is "
        "installed?",
        effect="the autoscaler adds nodes only when pods are Pending",
        fix="install the CustomResourceDefinition of the autoscaler's CapacityBuffers, or remove "
        "the component capacity-buffers (docs/install-reference.md#components)",
        run=_buffers,
    ),
)
