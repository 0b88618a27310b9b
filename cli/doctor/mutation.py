"""Check whether another webhook or policy changes the objects that Ebb writes.

The policies for Ebb's own accounts see an object after all mutating webhooks and policies. They
take the change of somebody else for one of Ebb, and refuse the write.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cli.doctor.finding import (
    Check,
    CheckResult,
    Evidence,
    Facts,
    first_unread,
    ok,
    problem,
    values,
)
from cli.doctor.rights import CONTROLLER, is_granted
from cli.input.setup import (
    GUARD_BINDINGS,
    POLICIES,
    POLICY,
    POLICY_BINDINGS,
    REGISTRATIONS,
    Right,
)
from cli.input.setup_objects import ApiRule, NamedExpression
from core.config.settings import PodDeletionCost
from kube.decode.kinds import NODES, PODS
from kube.write_policies import WRITE_POLICIES
from webhook.names import REGISTRATION

ALL: Final = "*"
SCOPES: Final[Mapping[str, str]] = {NODES.resource: "Cluster", PODS.resource: "Namespaced"}
"""Scope of each kind that the controller writes, as in the rules of webhooks."""


def _mutation(facts: Facts) -> CheckResult:
    kinds = (GUARD_BINDINGS, REGISTRATIONS, POLICIES, POLICY_BINDINGS)
    if missing := first_unread(facts, *kinds):
        return missing
    written = [*_guarded(facts)]
    evidence = [*_refused(facts), *_webhooks(facts, written), *_policies(facts, written)]
    if evidence:
        return problem(
            "another webhook or policy may change the objects that Ebb writes", evidence
        )
    return ok("no other webhook or policy changes the objects that Ebb writes")


def _guarded(facts: Facts) -> Iterator[str]:
    """Yield the kinds that the controller writes and of which a policy refuses other writes."""
    refusing = {
        binding.spec.policy_name
        for binding in values(facts.setup.of(GUARD_BINDINGS))
        if binding.spec and "Deny" in (binding.spec.validation_actions or ())
    }
    on_nodes, on_pods, _ = WRITE_POLICIES
    if on_nodes in refusing:
        yield NODES.resource
    if on_pods in refusing and _writes_pods(facts):
        yield PODS.resource


def _writes_pods(facts: Facts) -> bool:
    config = facts.config
    if config.surges or config.pod_deletion_cost is PodDeletionCost.ENABLED:
        return True
    patches = config.pod_deletion_cost is PodDeletionCost.AUTO
    return patches and is_granted(facts, CONTROLLER, Right("patch", "", PODS.resource))


def _refused(facts: Facts) -> Iterator[Evidence]:
    leader = facts.cluster_input.facts
    for refused in leader.refused_writes if leader else ():
        where = f"ValidatingAdmissionPolicy {refused.policy}"
        yield Evidence("report of the leader", f"{where} refuses", refused.change)


def _webhooks(facts: Facts, written: Sequence[str]) -> Iterator[Evidence]:
    for registration in values(facts.setup.of(REGISTRATIONS)):
        name = registration.metadata.name
        for number, webhook in enumerate(registration.webhooks or ()):
            found = _changed(webhook.rules, webhook.match_conditions, written)
            if found and name != REGISTRATION:
                yield Evidence(f"{REGISTRATIONS.name} {name}", f"webhooks[{number}].rules", found)


def _policies(facts: Facts, written: Sequence[str]) -> Iterator[Evidence]:
    bindings = values(facts.setup.of(POLICY_BINDINGS))
    bound = {binding.spec.policy_name for binding in bindings if binding.spec}
    for policy in values(facts.setup.of(POLICIES)):
        name, spec = policy.metadata.name, policy.spec
        if name == POLICY or name not in bound or spec is None or spec.match_constraints is None:
            continue
        rules = spec.match_constraints.resource_rules
        if found := _changed(rules, spec.match_conditions, written):
            yield Evidence(f"{POLICIES.name} {name}", "spec.matchConstraints", found)


def _changed(
    rules: Sequence[ApiRule] | None,
    conditions: Sequence[NamedExpression] | None,
    written: Sequence[str],
) -> str:
    """Return the operation and kinds of *written* that rules match, as text; empty: none.

    Selectors are not evaluated. A match condition that names Ebb's account counts as one that
    leaves out its requests.
    """
    if any(CONTROLLER in condition.expression for condition in conditions or ()):
        return ""
    matched = [
        resource for resource in written if any(_matches(rule, resource) for rule in rules or ())
    ]
    return f"UPDATE {', '.join(matched)}" if matched else ""


def _matches(rule: ApiRule, resource: str) -> bool:
    """Return whether a rule of a webhook or policy matches updates of a kind of the core group."""
    # As in the API server, the subresource * includes the object itself.
    resources = {resource, ALL, f"{resource}/{ALL}", f"{ALL}/{ALL}"}
    return (
        rule.scope in (ALL, SCOPES[resource])
        and not {"UPDATE", ALL}.isdisjoint(rule.operations or ())
        and not {"", ALL}.isdisjoint(rule.api_groups or ())
        and not resources.isdisjoint(rule.resources or ())
    )


CHECKS: Final = (
    Check(
        code="mutating-admission",
        question="Does no other webhook or policy change the objects that Ebb writes?",
        effect="if a webhook or policy of somebody else changes an object that Ebb writes, Ebb's "
        "ValidatingAdmissionPolicy refuses the write: no node is marked or unmarked, and no pod "
        "is moved",
        fix="add a match condition that leaves out the requests of ebb-controller to the webhook "
        "or policy in the evidence; until then, let Ebb's ValidatingAdmissionPolicy only audit: "
        "`kubectl patch validatingadmissionpolicybinding "
        """ebb-controller-nodes --type=merge -p '{"spec":{"validationActions":["Audit"]}}'` """
        "(docs/install-reference.md#what-ebbs-accounts-may-write)",
        run=_mutation,
    ),
)
