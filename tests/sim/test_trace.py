"""The reader of the openb trace; it reports errors with file and line."""

from fractions import Fraction
from pathlib import Path

import pytest

from core.model.errors import InvalidInputError
from sim import trace
from sim.simulated_load import amount

TRACES = Path(__file__).parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="no openb trace beside the tree")
NODES_HEAD = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS_HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"n,x,1,1,\n", "line 2: cpu_milli: 'x'; allowed: a whole number of up to 9 digits"),
        (b"n,1,1,-1,\n", "line 2: gpu: '-1'; allowed: a whole number"),
        (b"n,1000000000,1,1,\n", "line 2: cpu_milli: '1000000000'; allowed: a whole number"),
        (b"n,1\n", "line 2: memory_mib: ''; allowed: a whole number"),
        (b",1,1,1,\n", "line 2: sn: missing"),
        (b"n,1,1,1,\n\nn,1,1,1,\n", "line 4: sn: 'n' occurs twice"),
        (b"", "has no rows"),
        (b"\xff,1,1,1,\n", "not CSV in UTF-8: "),
        (b"n" * 200_000, "not CSV in UTF-8: field larger than field limit"),
    ],
)
def test_invalid_node_list_is_rejected_in_one_line(
    tmp_path: Path, text: bytes, problem: str
) -> None:
    file = tmp_path / trace.NODES_FILE
    file.write_bytes(NODES_HEAD.encode() + text)
    with pytest.raises(InvalidInputError) as caught:
        trace.nodes(tmp_path)
    assert str(caught.value).startswith(f"{file}: {problem}")
    assert "\n" not in str(caught.value)


def test_pod_that_ends_before_it_begins_is_rejected(tmp_path: Path) -> None:
    (tmp_path / trace.PODS_FILE).write_text(f"{PODS_HEAD}p,1,1,0,0,10,9\n")
    with pytest.raises(InvalidInputError, match="line 2: deletion_time: 9 is before creation"):
        trace.pods(tmp_path)


def test_pods_are_ordered_by_creation_time(tmp_path: Path) -> None:
    rows = "late,1,1,2,500,10,10\nearly,2,3,0,0,0,4\n"
    (tmp_path / trace.PODS_FILE).write_text(PODS_HEAD + rows)
    assert [row[1:] for row in trace.pods(tmp_path)] == [
        ("early", amount(2, 3, 0), 4000),
        ("late", amount(1, 1, 1000), 0),
    ]


def test_missing_trace_is_rejected_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"openb_pod_list_default\.csv: No such file"):
        trace.pods(tmp_path)


@needs_traces
def test_trace_matches_its_readme() -> None:
    nodes, pods = trace.nodes(TRACES), trace.pods(TRACES)
    assert (len(nodes), len(pods)) == (1523, 8152)
    assert sum(shape.cpu_millis for _, shape in nodes) == 125_514_000
    load = trace.drawn(TRACES, seed=1, days=1, at_once=500)
    assert load.nodes == tuple(shape for _, shape in nodes)
    per_hour = sum(a.at_ms > 0 for a in load.arrivals) / 24
    assert Fraction(60) < per_hour < Fraction(80)  # 500 / 7.18 h
