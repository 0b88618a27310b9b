"""Terms that select pods by the labels of their namespace."""

import random
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest

from core.cluster import namespaces
from core.cluster.namespaces import (
    AFFINITY_FIELD,
    ANTI_AFFINITY_FIELD,
    Namespace,
    NamespaceNames,
)
from core.cluster.volumes import Attachment
from core.eligibility.drainability import SAFE_TO_EVICT, why_kept
from core.marks.wellknown import KEEP_ANNOTATION
from core.model.constraints import (
    DisruptionFacts,
    NamespaceChoice,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
)
from core.model.errors import InvalidInputError
from core.model.pod import Pod
from core.placement.matching import matches_requirement, selects
from kube.decode.kinds import ATTACHMENTS, NAMESPACES
from tests.support.cluster_pods import cluster_pods, in_order_of
from tests.support.kube_json import pod as read_pod

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SHOP = Namespace(name="shop", labels={"team": "a", "env": "prod"})
BANK = Namespace(name="bank", labels={"team": "b", "env": "prod"})
TEST = Namespace(name="test", labels={"team": "a"})
ALL = (BANK, SHOP, TEST)


def chosen(*requirements: Requirement, names: tuple[str, ...] = ()) -> PodAffinityTerm:
    return PodAffinityTerm(PodSelector(None, ()), HOST, NamespaceChoice(names, requirements))


def looked_up(pods: Sequence[Pod], spaces: Sequence[Namespace]) -> list[Pod]:
    return in_order_of(pods, namespaces.with_namespaces(cluster_pods(*pods), spaces))


def names_of(term: PodAffinityTerm, *others: Pod, apart: bool = True) -> tuple[str, ...] | None:
    pod_constraints = PodConstraints(apart=(term,)) if apart else PodConstraints(near=(term,))
    one = Pod(
        namespace="shop",
        name="x",
        pod_constraints=pod_constraints,
        unsupported=(ANTI_AFFINITY_FIELD,),
    )
    (found, *_) = looked_up([one, *others], ALL)
    (term, *_) = found.pod_constraints.apart or found.pod_constraints.near
    assert term.chosen is None
    assert found.unsupported == ()
    return term.selector.namespaces


@pytest.mark.parametrize(
    ("requirements", "names"),
    [
        ([Requirement("team", "In", ("a",))], ("shop", "test")),
        ([Requirement("team", "In", ("a", "b", "c"))], ("bank", "shop", "test")),
        ([Requirement("team", "In", ("c",))], ()),
        ([Requirement("team", "NotIn", ("a",))], ("bank",)),
        ([Requirement("env", "NotIn", ("prod",))], ("test",)),
        ([Requirement("env", "Exists")], ("bank", "shop")),
        ([Requirement("env", "DoesNotExist")], ("test",)),
        ([Requirement("env", "Exists"), Requirement("team", "In", ("a",))], ("shop",)),
    ],
)
def test_selector_matches_namespaces(
    requirements: list[Requirement], names: tuple[str, ...]
) -> None:
    assert names_of(chosen(*requirements)) == names


def test_namespaces_that_are_named_count_too() -> None:
    term = chosen(Requirement("team", "In", ("b",)), names=("elsewhere", "shop"))
    assert names_of(term) == ("bank", "elsewhere", "shop")


def test_namespace_with_unknown_labels_repels_and_does_not_attract() -> None:
    """The pods there may match: they keep others away, and are nothing to rely on."""
    term, stranger = chosen(Requirement("team", "In", ("b",))), Pod(namespace="new", name="y")
    assert names_of(term, stranger) == ("bank", "new")
    assert names_of(term, stranger, apart=False) == ("bank",)


def test_without_namespaces_nothing_changes() -> None:
    pods = cluster_pods(
        Pod(namespace="d", name="x", pod_constraints=PodConstraints(apart=(chosen(),)))
    )
    assert namespaces.with_namespaces(pods, ()) is pods
    plain = cluster_pods(Pod(namespace="d", name="x"))
    assert namespaces.with_namespaces(plain, ALL) is plain


def test_pod_is_unchanged_when_operator_is_unknown() -> None:
    pod_constraints = PodConstraints(near=(chosen(Requirement("team", "Gt", ("1",))),))
    one = Pod(
        namespace="d", name="x", pod_constraints=pod_constraints, unsupported=(AFFINITY_FIELD,)
    )
    assert looked_up([one], ALL) == [one]


def test_other_reasons_against_the_pod_stay() -> None:
    pod_constraints = PodConstraints(near=(chosen(Requirement("env", "Exists")),))
    fields = ("spec.volumes", AFFINITY_FIELD)
    one = Pod(namespace="d", name="x", pod_constraints=pod_constraints, unsupported=fields)
    (found,) = looked_up([one], ALL)
    assert found.unsupported == ("spec.volumes",)


def test_pods_of_a_template_share_what_is_looked_up() -> None:
    pod_constraints = PodConstraints(near=(chosen(Requirement("env", "Exists")),))
    pods = [Pod(namespace="d", name=name, pod_constraints=pod_constraints) for name in "xy"]
    one, other = looked_up(pods, ALL)
    assert one.pod_constraints is other.pod_constraints


def test_from_the_api_to_the_answer() -> None:
    term = {
        "topologyKey": HOST,
        "labelSelector": {},
        "namespaces": ["bank"],
        "namespaceSelector": {"matchLabels": {"team": "a"}, "matchExpressions": [
            {"key": "env", "operator": "DoesNotExist"}
        ]},
    }  # fmt: skip
    one = read_pod(spec__affinity={"podAntiAffinity": {REQUIRED: [term]}})
    assert one.unsupported == (ANTI_AFFINITY_FIELD,)
    (found,) = looked_up([one], ALL)
    (apart,) = found.pod_constraints.apart
    assert apart.selector == PodSelector(NamespaceNames(("bank", "test")), ())


def test_lookup_agrees_with_plain_rule() -> None:
    """As AffinityTerm.Matches of kube-scheduler says it, one namespace at a time."""
    chance = random.Random(1)
    for _ in range(500):
        spaces = [
            Namespace(
                name=f"n{number}",
                labels={key: chance.choice("xy") for key in "ab" if chance.random() < 0.6},
            )
            for number in range(6)
        ]
        requirements = tuple(
            Requirement(chance.choice("ab"), operator, tuple(chance.sample("xyz", 2)))
            for operator in chance.sample(("In", "NotIn", "Exists", "DoesNotExist"), 2)
        )
        names = tuple(sorted(chance.sample([one.name for one in spaces], chance.randint(0, 2))))
        pod_constraints = PodConstraints(apart=(chosen(*requirements, names=names),))
        pods = [Pod(namespace=one.name, name="p") for one in spaces]
        (found, *_) = looked_up(
            [replace(pods[0], pod_constraints=pod_constraints), *pods[1:]], spaces
        )
        (term,) = found.pod_constraints.apart
        for space, pod in zip(spaces, pods, strict=True):
            right = space.name in names or all(
                matches_requirement(one, space.labels or {}) for one in requirements
            )
            assert selects(term.selector, pod) is right


class TestDecoding:
    def test_namespace_is_decoded(self) -> None:
        raw = {"metadata": {"name": "shop", "labels": {"team": "a"}}}
        assert NAMESPACES.decode(orjson.dumps(raw)) == Namespace(name="shop", labels={"team": "a"})
        assert NAMESPACES.decode(b'{"metadata":{"name":"d"}}') == Namespace(name="d")

    def test_labels_beyond_the_limits_are_unknown(self) -> None:
        labels = {f"k{number}": "x" * 60 for number in range(20_000)}
        found = NAMESPACES.decode(orjson.dumps({"metadata": {"name": "d", "labels": labels}}))
        assert found.labels is None

    def test_volume_attachment_is_decoded(self) -> None:
        spec = {"attacher": "ebs", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
        raw = {"metadata": {"name": "a"}, "spec": spec, "status": {"attached": False}}
        found = Attachment(name="a", driver="ebs", node="n", volume="pv")
        assert ATTACHMENTS.decode(orjson.dumps(raw)) == found
        inline = {"metadata": {"name": "a"}, "spec": {**spec, "source": {"inlineVolumeSpec": {}}}}
        assert ATTACHMENTS.decode(orjson.dumps(inline)) == replace(found, volume="")

    @pytest.mark.parametrize("field", ["attacher", "nodeName"])
    def test_invalid_name_is_rejected(self, field: str) -> None:
        raw = {"metadata": {"name": "a"}, "spec": {field: "x" * 1_300_000}}
        with pytest.raises(InvalidInputError, match=rf"spec\.{field}"):
            ATTACHMENTS.decode(orjson.dumps(raw))


@pytest.mark.parametrize("value", ["true", "false", None])
def test_namespace_is_kept_when_its_annotation_says_so(value: str | None) -> None:
    annotations = {"kube-ebb.io/keep": value, "other": "x"}
    raw = orjson.dumps({"metadata": {"name": "shop", "annotations": annotations}})
    assert NAMESPACES.decode(raw).kept is (value == "true")


def test_pods_of_a_kept_namespace_have_its_note() -> None:
    noted = DisruptionFacts(notes=((SAFE_TO_EVICT, "true"),))
    own = DisruptionFacts(notes=((KEEP_ANNOTATION, "true"),))
    pods = (
        Pod(namespace="bank", name="a", node="n"),
        Pod(namespace="bank", name="b", node="n", daemon=True),
        Pod(namespace="bank", name="c", node="n", disruption_facts=noted),
        Pod(namespace="bank", name="d", node="n", disruption_facts=own),
        Pod(namespace="shop", name="a", node="n"),
    )
    spaces = (replace(BANK, kept=True), SHOP)
    found, before = namespaces.with_kept(spaces, cluster_pods(*pods), {})
    assert [why_kept(pod) is not None for pod in found.all] == [True, False, True, True, False]
    assert dict(found.all[2].disruption_facts.notes)[SAFE_TO_EVICT] == "true"
    assert "Namespace bank" in (why_kept(found.all[0]) or "")
    again, _ = namespaces.with_kept(spaces, cluster_pods(*pods), before)
    assert all(one is other for one, other in zip(again.all, found.all, strict=True))
    unchanged = cluster_pods(*pods)
    assert namespaces.with_kept((BANK, SHOP), unchanged, before)[0] is unchanged
