"""The reader of traces whose instances have owners; it reports errors with file and line."""

import json
from pathlib import Path

import pytest

from core.config.document import parse
from core.model.errors import InvalidInputError
from core.model.pod import REPLICA_SET
from sim.history import instances
from sim.history.load import load_of
from sim.simulated_load import DAY_MS, HOUR_MS, TYPE_LABEL
from sim.variants import EMPTY
from tests.support.traces import HEAD, TYPES, node_type, write_trace

TRACES = Path(__file__).parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="no trace beside the tree")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a small trace with types beside it."""
    return write_trace(tmp_path)


def test_app_is_replica_set_with_replicas_over_time(trace: Path) -> None:
    history = instances.read(str(trace))
    assert {one.pod.owner_kind for one in history.pod_lifetimes} == {REPLICA_SET}
    found = load_of(history, parse(EMPTY, "test"))
    (deployment,) = found.load.deployments
    assert deployment.requests.cpu_millis == 48_000
    second = 1000
    assert deployment.replicas == ((0, 2), (3590 * second, 3))
    assert "pods left out (they fit on no empty node): 1" in found.notes


def test_nodes_have_types_that_fit_every_instance_without_gpu(trace: Path) -> None:
    history = instances.read(str(trace))
    here = [one for one in history.node_lifetimes if one.begins_ms == history.begins_ms]
    # Two instances fit on one node of 96 cores, which is cheaper than two of 64; one is spare.
    assert [one.node.labels[TYPE_LABEL] for one in here] == ["m-96", "m-96"]
    config = parse({**EMPTY, "prices": instances.prices(str(trace))}, "test")
    load = load_of(history, config).load
    prices = sorted(config.price_of(one.labels) for one in load.templates)
    assert [float(one) for one in prices] == [2.15, 3.2]
    assert instances.with_prices(parse(EMPTY, "test"), str(trace)).prices == config.prices
    assert instances.with_prices(config, "not read") is config


def test_load_is_cut_to_days(trace: Path) -> None:
    with trace.open("a") as file:
        file.write(f"c-0,c,1,0,1,{3 * 86_400},,\n")
    load = instances.load_of_days(str(trace), 1, parse(EMPTY, "test"))
    assert load.duration_ms == DAY_MS
    assert load.interval_ms is not None
    assert load.interval_ms < HOUR_MS


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("a-0,a,x,0,1,,,", "line 2: cpu_request: 'x'; allowed: a number from 0 to 1000000"),
        ("a-0,a,1,0,-1,,,", "line 2: memory_request: '-1'; allowed: a number from 0 to 1000000"),
        ("a-0,a,1,2000000,1,,,", "line 2: gpu_request: '2000000'; allowed: a number"),
        ("a-0,a,1,0,1,1e9,,", "line 2: creation_time: '1e9'; allowed: a number"),
        ("a-0,a,1,0,1,,,9999999999", "line 2: deletion_time: '9999999999'; allowed: a number"),
        ("a-0,a,1,0,1,20,,10", "line 2: deletion_time: is before creation_time"),
        ("a-0,,1,0,1,,,", "line 2: app_name: missing"),
        (",a,1,0,1,,,", "line 2: instance_sn: missing"),
        ("a-0,a,.,0,1,,,", "line 2: cpu_request: '.'; allowed: a number"),
        ("", "has no rows"),
    ],
)
def test_invalid_row_is_rejected_in_one_line(trace: Path, row: str, problem: str) -> None:
    trace.write_text(f"{HEAD}{row}\n")
    with pytest.raises(InvalidInputError) as caught:
        instances.read(str(trace))
    assert str(caught.value).startswith(f"{trace}: {problem}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "no node type for Linux on amd64 with an on-demand price fits every instance"),
        (json.dumps(TYPES[:1]), "no node type for Linux on amd64"),
        ('[{"name": 1}]', "Expected `str`, got `int`"),
        ("[{", "Input data was truncated"),
        (json.dumps([node_type("x", "many", "1Gi", 1.0)]), "'many' is not a Kubernetes quantity"),
        (json.dumps([node_type("x", "96", "768Gi", 0.0)]), "no node type for Linux on amd64"),
    ],
)
def test_invalid_types_are_rejected_in_one_line(trace: Path, text: str, problem: str) -> None:
    (trace.parent / instances.TYPES_FILE).write_text(text)
    with pytest.raises(InvalidInputError, match=r"instance_types\.json") as caught:
        instances.read(str(trace))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_types_are_rejected_with_their_name(trace: Path) -> None:
    (trace.parent / instances.TYPES_FILE).unlink()
    with pytest.raises(InvalidInputError, match=r"instance_types\.json: No such file"):
        instances.read(str(trace))


@pytest.mark.long
@needs_traces
def test_trace_matches_its_readme() -> None:
    history = instances.read(str(TRACES / "dlrm_2025.csv"))
    apps = {one.pod.owner_name for one in history.pod_lifetimes}
    assert (len(history.pod_lifetimes), len(apps)) == (23_871, 156)
    assert sum(one.begins_ms == history.begins_ms for one in history.pod_lifetimes) >= 7_280
    assert history.duration_ms / DAY_MS == pytest.approx(31.0, abs=0.1)
