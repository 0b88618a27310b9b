"""What a look tells beside the cluster: finished pods, and when the look was made."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from core.edge.decode.aside import FINISHED_MAX, Aside
from core.edge.decode.dump import from_dumps
from core.edge.decode.kinds import PODS
from core.edge.kube.listing import Listed
from core.model.pod import Pod
from core.model.schedulers import KNOWN
from core.survival.look import End
from core.survival.seen import ENDED_MAX
from tests.support.kube_json import MISSING, NODE, POD, changed, dump

NOW = 1_800_000_000
HOUR = 3600
Json = dict[str, Any]


def written(unix_seconds: int) -> str:
    return f"{datetime.fromtimestamp(unix_seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def finished(*statuses: Any) -> Json:
    return {"phase": "Succeeded", "containerStatuses": list(statuses)}


def over(name: str = "e", *ends: int, created: int = NOW - HOUR, **other: Any) -> bytes:
    """Return a pod that has finished; *ends*: when its containers ended."""
    states = [{"terminated": {"finishedAt": written(one)}} for one in ends]
    status = finished(*({"name": "main", "state": one} for one in states))
    owner = [{"kind": "Job", "name": "nightly-1", "controller": True}]
    return changed(
        POD,
        **{
            "metadata__name": name,
            "metadata__ownerReferences": owner,
            "metadata__creationTimestamp": written(created),
            "status": status,
            **other,
        },
    )


def of_dump(*items: bytes) -> Aside:
    found = Aside()
    from_dumps([("f", dump(NODE, POD, *items))], KNOWN, [], found)
    return found


def of_list(*items: bytes) -> Aside:
    found = Aside()
    page = b'{"metadata":{},"items":[%b]}' % b",".join((orjson.dumps(POD), *items))
    listed = Listed(finished=found.finished)
    listed.take(PODS, page)
    assert [one.name for one in listed.objects] == ["web-0"]
    return found


BOTH = pytest.mark.parametrize("look", [of_dump, of_list])
ODD = over("odd", spec__containers__0__resources={"requests": {"cpu": "-"}})
"""Makes a page be read item by item."""
NO_OBJECT = over("none", spec__containers=7)


@BOTH
@pytest.mark.parametrize("beside", [(), (ODD,), (NO_OBJECT,)])
def test_a_finished_pod_is_kept_as_it_was_with_its_end(
    look: Callable[..., Aside], beside: tuple[bytes, ...]
) -> None:
    (end,) = look(*beside, over("e", NOW - 60, NOW - 10, NOW - 30)).ends
    assert isinstance(end, End)
    assert end.at_seconds == NOW - 10
    one = end.pod
    assert (one.key, one.node, one.owner_kind) == ("shop/e", "n1", "Job")
    assert (one.owner_name, one.created_seconds) == ("nightly-1", NOW - HOUR)


@BOTH
@pytest.mark.parametrize(
    "odd",
    [
        over("e"),
        over("e", status={"phase": "Failed", "reason": "Evicted"}),
        over("e", status=finished({"state": {}})),
        over("e", status=finished({"state": {"terminated": {"finishedAt": None}}})),
        over("e", status=finished({"state": {"terminated": {"finishedAt": "soon"}}})),
        over("e", status=finished({"state": {"terminated": 7}})),
        over("e", status=finished({"state": "odd"})),
        over("e", status={"phase": "Failed", "containerStatuses": "odd"}),
        over("e", NOW, spec__containers=MISSING, metadata__name=""),
        over("e", NOW, spec__nodeName="no name"),
    ],
    ids=range(10),
)
def test_what_does_not_say_when_it_ended_is_left_out_and_spoils_nothing(
    look: Callable[..., Aside], odd: bytes
) -> None:
    found = look(odd, over("other", NOW)).ends
    assert [end.pod.name for end in found] == ["other"]


def test_a_list_that_is_read_again_counts_nobody_twice() -> None:
    found = Aside()
    for _ in range(2):
        found.finished(over("e", NOW))
    assert len(found.ends) == 1


def test_of_a_namespace_those_that_ended_last_are_kept_in_any_order() -> None:
    many = 2 * FINISHED_MAX + 7
    found = Aside()
    found.finished(over("quiet", 7, metadata__namespace="quiet"))
    for number in range(many):
        at = number * 5 % many  # 5 and the number of pods have no factor in common
        found._take(End(Pod(namespace="loud", name=f"p{at}"), at))
        assert len(found._ends["loud"]) <= 2 * FINISHED_MAX
    kept = {end.pod.key: end.at_seconds for end in found.ends}
    assert kept.pop("quiet/quiet") == 7
    assert sorted(kept.values()) == list(range(many - FINISHED_MAX, many))


def node(name: str, *beats: int) -> bytes:
    conditions = [{"type": "Ready", "lastHeartbeatTime": written(one)} for one in beats]
    return changed(NODE, metadata__name=name, status__conditions=conditions)


def created(at: int) -> Pod:
    return Pod(namespace="d", name="p", created_seconds=at)


@pytest.mark.parametrize(
    ("items", "pods", "at"),
    [
        ([], [], NOW),
        ([node("a", NOW - HOUR, NOW - 70)], [], NOW - 70),
        ([node("a", NOW - 70)], [created(NOW - 60)], NOW - 60),
        ([node("a", NOW - 70)], [created(NOW - 80)], NOW - 70),
        ([over("e", NOW, created=NOW - 5)], [created(NOW - 80)], NOW - 5),
        ([node("a", NOW - 70), node("b", NOW + HOUR), node("c", NOW - 60)], [], NOW - 60),
        ([node("a", NOW - 70), node("b", NOW + HOUR)], [], NOW - 70),
        ([node("a", NOW + HOUR)], [], NOW),
        ([], [created(NOW + HOUR)], NOW),
    ],
    ids=range(9),
)
def test_when_a_dump_was_made(items: list[bytes], pods: list[Pod], at: int) -> None:
    found = of_dump(*items)
    assert found.moment(pods, NOW) == at


def test_a_node_whose_heartbeats_cannot_be_read_says_nothing() -> None:
    found = Aside()
    found.beats("a", b'{"metadata":7}')
    assert found.moment([created(NOW - 5)], NOW) == NOW - 5


def test_the_bound_holds_all_that_counts_of_a_workload() -> None:
    assert FINISHED_MAX > ENDED_MAX
