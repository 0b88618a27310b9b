"""Checks of admission: the webhook or the policy that turns a mark into a taint."""

from base64 import b64decode
from binascii import Error as NotBase64Error
from collections.abc import Iterator
from typing import Any, Final

from cli.doctor.finding import (
    Check,
    CheckResult,
    Evidence,
    Facts,
    first_unread,
    ok,
    problem,
    unread,
    values,
)
from cli.input.setup import (
    GUARD_BINDINGS,
    GUARDS,
    POLICIES,
    POLICY,
    POLICY_BINDINGS,
    REGISTRATIONS,
    SERVICE_LABEL,
    SLICES,
)
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from core.model.errors import InvalidInputError
from core.model.humanize import duration, plural, timestamp
from kube.write_policies import WRITE_POLICIES
from serving import tls
from webhook.names import REGISTRATION, SERVICE

OPERATIONS: Final = {"CREATE", "UPDATE"}
LASTS_SECONDS_MIN: Final = 7 * 24 * 3600
"""Remaining validity below which a CA is reported; Ebb and cert-manager renew earlier."""
OURS: Final = f"MutatingWebhookConfiguration {REGISTRATION}"
KEY_VARIABLE: Final = "key"
"""Variable of the policy with the key of the taint."""


def _registration(facts: Facts) -> Any:  # noqa: ANN401 a RegistrationObject or None
    registrations = values(facts.setup.of(REGISTRATIONS))
    return next(
        (
            registration
            for registration in registrations
            if registration.metadata.name == REGISTRATION
        ),
        None,
    )


def _policy(facts: Facts) -> Any:  # noqa: ANN401 a PolicyObject or None
    policies = values(facts.setup.of(POLICIES))
    return next((policy for policy in policies if policy.metadata.name == POLICY), None)


def _admission(facts: Facts) -> CheckResult:
    registration, policy = _registration(facts), _policy(facts)
    if policy is not None:
        return _of_policy(facts, policy)
    if registration is None:
        absent = [
            Evidence(name, "", "does not exist")
            for name in (OURS, f"MutatingAdmissionPolicy {POLICY}")
        ]
        missing = first_unread(facts, REGISTRATIONS, POLICIES)
        return missing or problem(
            "neither Ebb's webhook nor its MutatingAdmissionPolicy exists", absent
        )
    if evidence := [*_changed(registration)]:
        return problem("Ebb's webhook differs from the manifests", evidence)
    slices = facts.setup.of(SLICES)
    if slices.absent:
        return unread(SLICES.resource, slices.absent)
    ready = sum(_ready(each) for each in values(slices) if _is_of_service(each, facts.namespace))
    service = f"Service {facts.namespace}/{SERVICE}"
    if not ready:
        return problem(
            "Ebb's webhook has no ready pod", [Evidence(service, "ready endpoints", "0")]
        )
    return ok(f"{OURS} exists, and {service} has {plural(ready, 'ready endpoint')}")


def _of_policy(facts: Facts, policy: Any) -> CheckResult:  # noqa: ANN401 a PolicyObject
    key = f'"{TAINT_KEY}"'
    where = f"MutatingAdmissionPolicy {POLICY}"
    variables = (policy.spec.variables if policy.spec else None) or ()
    expressions = (each.expression for each in variables if each.name == KEY_VARIABLE)
    expression = next(expressions, "")
    if expression != key:
        evidence = [Evidence(where, f"spec.variables, {KEY_VARIABLE}", expression or "missing")]
        seen = f"{where} sets another taint than {TAINT_KEY}"
        return problem(seen, evidence)
    bindings = facts.setup.of(POLICY_BINDINGS)
    if bindings.absent:
        return unread(POLICY_BINDINGS.resource, bindings.absent)
    if not any(each.spec and each.spec.policy_name == POLICY for each in values(bindings)):
        evidence = [Evidence(f"MutatingAdmissionPolicyBinding {POLICY}", "", "does not exist")]
        seen = f"{where} has no binding, so it has no effect"
        return problem(seen, evidence)
    return ok(f"{where} exists and has a binding")


def _changed(registration: Any) -> Iterator[Evidence]:  # noqa: ANN401 a RegistrationObject
    """Yield the fields of Ebb's webhook registration that differ from manifests/."""
    for number, webhook in enumerate(registration.webhooks or ()):
        field = f"webhooks[{number}]"
        if webhook.failure_policy != "Ignore":
            yield Evidence(OURS, f"{field}.failurePolicy", webhook.failure_policy)
        selector = webhook.object_selector.match_expressions if webhook.object_selector else None
        keys = [(each.key, each.operator) for each in selector or ()]
        if keys != [(MARK_LABEL, "Exists")]:
            shown = ", ".join(f"{key} {operator}" for key, operator in keys)
            yield Evidence(OURS, f"{field}.objectSelector", shown or "all objects")
        resources = {each for rule in webhook.rules or () for each in rule.resources or ()}
        operations = {each for rule in webhook.rules or () for each in rule.operations or ()}
        if resources != {"nodes"}:
            yield Evidence(
                OURS, f"{field}.rules.resources", ", ".join(sorted(resources)) or "none"
            )
        if not operations >= OPERATIONS and "*" not in operations:
            shown = ", ".join(sorted(operations)) or "none"
            yield Evidence(OURS, f"{field}.rules.operations", shown)
    if not registration.webhooks:
        yield Evidence(OURS, "webhooks", "none")


def _is_of_service(endpoint_slice: Any, namespace: str) -> bool:  # noqa: ANN401 a SliceObject
    labels = endpoint_slice.metadata.labels or {}
    return endpoint_slice.metadata.namespace == namespace and labels.get(SERVICE_LABEL) == SERVICE


def _ready(endpoint_slice: Any) -> int:  # noqa: ANN401 a SliceObject
    """Return the number of ready endpoints in an EndpointSlice.

    In the API a missing condition means ready.
    """
    conditions = (each.conditions for each in endpoint_slice.endpoints or ())
    return sum(each is None or each.ready is not False for each in conditions)


def _certificates(facts: Facts) -> CheckResult:
    registration = _registration(facts)
    if registration is None:
        if _policy(facts) is not None:
            return ok("Ebb's MutatingAdmissionPolicy needs no certificates")
        return first_unread(facts, REGISTRATIONS) or ok("Ebb has no webhook")
    evidence, ends = [], []
    for number, webhook in enumerate(registration.webhooks or ()):
        field = f"webhooks[{number}].clientConfig.caBundle"
        until = _valid_until(
            webhook.client_config.ca_bundle if webhook.client_config else "", facts
        )
        if isinstance(until, str):
            evidence.append(Evidence(OURS, field, until))
        else:
            ends.append(until)
            if until - facts.now_seconds < LASTS_SECONDS_MIN:
                evidence.append(Evidence(OURS, field, f"valid until {timestamp(until)}"))
    if evidence:
        return problem(
            f"the CA of {OURS} is missing, invalid, or expires within "
            f"{duration(LASTS_SECONDS_MIN)}",
            evidence,
        )
    if not ends:
        return ok(f"{OURS} has no webhooks")
    return ok(f"the CA of {OURS} is valid until {timestamp(min(ends), facts.now_seconds)}")


def _valid_until(bundle: str, facts: Facts) -> int | str:
    """Return the Unix second until which a CA is valid, or a text why none is valid.

    *bundle*: a caBundle in base64. If several CAs are valid, the one that is valid longest counts.
    """
    try:
        certificates = tls.split(b64decode(bundle, validate=True))
        lives = [tls.life(certificate) for certificate in certificates]
    except (InvalidInputError, NotBase64Error) as fault:
        return f"cannot be read: {fault}"
    if not lives:
        return "has no certificate" if bundle else "empty"
    valid = [until for since, until in lives if since <= facts.now_seconds <= until]
    return max(valid) if valid else f"expired at {timestamp(max(until for _, until in lives))}"


def _write_policies(facts: Facts) -> CheckResult:
    if missing := first_unread(facts, GUARDS, GUARD_BINDINGS):
        return missing
    exist = {each.metadata.name for each in values(facts.setup.of(GUARDS))}
    bound = {
        each.spec.policy_name: each.spec.validation_actions or ()
        for each in values(facts.setup.of(GUARD_BINDINGS))
        if each.spec
    }
    needed = WRITE_POLICIES if _registration(facts) is not None else WRITE_POLICIES[:-1]
    evidence = []
    for name in needed:
        binding = f"{GUARD_BINDINGS.name} {name}"
        if name not in exist:
            evidence.append(Evidence(f"{GUARDS.name} {name}", "", "does not exist"))
        elif name not in bound:
            evidence.append(Evidence(binding, "", "does not exist"))
        elif "Deny" not in bound[name]:
            actions = ", ".join(bound[name]) or "none"
            evidence.append(Evidence(binding, "spec.validationActions", actions))
    if evidence:
        return problem(
            "a ValidatingAdmissionPolicy for Ebb's own accounts is missing or refuses nothing",
            evidence,
        )
    return ok(
        f"{len(needed)} ValidatingAdmissionPolicies refuse the writes that Ebb does not need"
    )


CHECKS: Final = (
    Check(
        code="write-policies",
        question="Does the API server refuse writes of Ebb's accounts that Ebb does not need?",
        effect="a stolen token of Ebb can delete pods and Nodes, or read every object",
        fix="apply the manifests again; if a policy refuses Ebb's own writes, see "
        "docs/install-reference.md#what-ebbs-accounts-may-write",
        run=_write_policies,
    ),
    Check(
        code="admission",
        question="Does the webhook or the admission policy turn a mark into a taint?",
        effect="a mark becomes a taint only when the controller writes the taint itself, a "
        "moment later",
        fix="apply the manifests again, and look at "
        "`kubectl -n ebb-system get pods -l app.kubernetes.io/component=webhook`; the dry run of "
        "docs/install-reference.md#check-the-installation tests the whole path",
        run=_admission,
    ),
    Check(
        code="certificates",
        question="Does the API server have a valid CA for the webhook?",
        effect="without a valid CA, the API server skips the webhook and stores marks without "
        "taints",
        fix="read the log of ebb-webhook; if a GitOps tool overwrites caBundle, see "
        "docs/install-reference.md#gitops; with cert-manager, check that its cainjector runs",
        run=_certificates,
    ),
)
