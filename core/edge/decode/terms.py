"""What a pod's template asks of its surroundings, as it stands on the wire."""

from typing import Final

import msgspec

from core.edge.decode.objects import Struct


class Toleration(Struct):
    """A toleration."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Expression(Struct):
    """A selector requirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeTerm(Struct):
    """A node selector term."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(Struct):
    """Node selector terms, any of which suffices."""

    node_selector_terms: list[NodeTerm] | None = None


class NodeAffinity(Struct):
    """Node affinity."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class LabelSelector(Struct):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class PodTerm(Struct):
    """A pod affinity term."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PodAffinity(Struct):
    """Pod affinity or anti-affinity."""

    required: list[PodTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Spread(Struct):
    """A topology spread constraint."""

    max_skew: int | None = None
    topology_key: str = ""
    when_unsatisfiable: str | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


AFFINITY_DECODER: Final = msgspec.json.Decoder(Affinity | None)
TOLERATIONS_DECODER: Final = msgspec.json.Decoder(list[Toleration] | None)
LABELS_DECODER: Final = msgspec.json.Decoder(LabelSelector | None)
SPREADS_DECODER: Final = msgspec.json.Decoder(list[Spread] | None)
