"""Structs that decode the objects around Ebb, with only the fields that `ebb doctor` checks."""

import msgspec

from kube.decode.objects import Name, Struct


class Labels(Name):
    labels: dict[str, str] | None = None


class Container(Struct):
    name: str = ""
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None


class PodSpec(Struct):
    containers: list[Container] | None = None


class PodObject(Struct):
    metadata: Labels
    spec: PodSpec | None = None


class Template(Struct):
    spec: PodSpec | None = None


class DeploymentSpec(Struct):
    replicas: int | None = None
    template: Template | None = None


class DeploymentObject(Struct):
    metadata: Name
    spec: DeploymentSpec | None = None


class ApiRule(Struct):
    """A rule of an RBAC role, a webhook's registration, or a policy."""

    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None
    verbs: list[str] | None = None
    operations: list[str] | None = None
    scope: str = "*"


class Expression(Struct):
    key: str = ""
    operator: str = ""


class Selector(Struct):
    match_expressions: list[Expression] | None = None


class ClientConfig(Struct):
    ca_bundle: str = ""


class NamedExpression(Struct):
    """A variable or match condition in CEL."""

    name: str = ""
    expression: str = ""


class Webhook(Struct):
    name: str = ""
    client_config: ClientConfig | None = None
    failure_policy: str = "Fail"
    object_selector: Selector | None = None
    rules: list[ApiRule] | None = None
    match_conditions: list[NamedExpression] | None = None


class RegistrationObject(Struct):
    metadata: Name
    webhooks: list[Webhook] | None = None


class MatchConstraints(Struct):
    resource_rules: list[ApiRule] | None = None


class PolicySpec(Struct):
    match_constraints: MatchConstraints | None = None
    match_conditions: list[NamedExpression] | None = None
    variables: list[NamedExpression] | None = None


class PolicyObject(Struct):
    metadata: Name
    spec: PolicySpec | None = None


class PolicyBindingSpec(Struct):
    policy_name: str = ""
    validation_actions: list[str] | None = None


class PolicyBindingObject(Struct):
    metadata: Name
    spec: PolicyBindingSpec | None = None


class Conditions(Struct):
    ready: bool | None = None


class Endpoint(Struct):
    conditions: Conditions | None = None


class SliceObject(Struct):
    metadata: Labels
    endpoints: list[Endpoint] | None = None


class RoleObject(Struct):
    metadata: Name
    rules: list[ApiRule] | None = None


class Subject(Struct):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleReference(Struct):
    kind: str = ""
    name: str = ""


class BindingObject(Struct):
    metadata: Name
    role_ref: RoleReference = msgspec.field(default_factory=RoleReference)
    subjects: list[Subject] | None = None
