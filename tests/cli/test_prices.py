"""`ebb prices import` turns a CSV or metrics into the setting `prices`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.__main__ import main
from cli.prices import KARPENTER, OPENCOST, TYPE
from core.config.prices import PRICES_MAX
from core.engine.zones import ZONE_LABEL
from core.model.constraints import HOST_LABEL
from runtime.files import parse_config

CAPACITY = "karpenter.sh/capacity-type"
HEAD = "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\n"


def run(
    capsys: pytest.CaptureFixture[str], folder: Path, *contents: str
) -> tuple[int, list[tuple[dict[str, str], float]], str]:
    """Return the exit code, the prices with their labels, and standard error."""
    paths = []
    for number, content in enumerate(contents):
        (folder / str(number)).write_text(content)
        paths.append(str(folder / str(number)))
    code = main(["prices", "import", *paths])
    out, err = capsys.readouterr()
    if code == 0:
        parse_config(f"{HEAD}{out}".encode(), "printed")
    found = (yaml.safe_load(out) or {}).get("prices", ())
    return code, [(one["nodeSelector"], float(one["price"])) for one in found], err


def offering(capacity: str, zone: str, price: str) -> str:
    labels = f'capacity_type="{capacity}",instance_type="m5",zone="{zone}"'
    return f"{KARPENTER}{{{labels}}} {price}\n"


def cost(node: str, price: str, of_type: str = "m5") -> str:
    return f'{OPENCOST}{{instance="{node}",node="{node}",instance_type="{of_type}"}} {price}\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(
            "type,zone,price\nm5,,0.1\nm5,a,2e-1\n",
            [({TYPE: "m5", ZONE_LABEL: "a"}, 0.2), ({TYPE: "m5"}, 0.1)],
            id="csv, an empty cell is any value",
        ),
        pytest.param(
            "price,example.com/size\r\n1,large\r\n",
            [({"example.com/size": "large"}, 1.0)],
            id="csv with a label",
        ),
        pytest.param(
            "# TYPE x gauge\nx 1\n" + offering("on-demand", "a", "0.1")
            + offering("on-demand", "b", "0.1") + offering("spot", "a", "0.03")
            + offering("spot", "b", "0.04"),
            [
                ({CAPACITY: "spot", TYPE: "m5", ZONE_LABEL: "a"}, 0.03),
                ({CAPACITY: "spot", TYPE: "m5", ZONE_LABEL: "b"}, 0.04),
                ({CAPACITY: "on-demand", TYPE: "m5"}, 0.1),
            ],
            id="Karpenter, zones of one price are one entry",
        ),
        pytest.param(
            cost("a", "0.1") + cost("b", "0.1") + cost("c", "0.000001", ""),
            [({HOST_LABEL: "c"}, 0.000001), ({TYPE: "m5"}, 0.1)],
            id="OpenCost, a node without type is named",
        ),
    ],
)  # fmt: skip
def test_prices_are_read(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    content: str,
    expected: list[tuple[dict[str, str], float]],
) -> None:
    assert run(capsys, tmp_path, content) == (0, expected, "")


@pytest.mark.parametrize(
    "series",
    [{"value": [1.5, "0.2"]}, {"values": [[1, "0.1"], [2, "0.2"]]}],
    ids=["instant", "range"],
)
@pytest.mark.parametrize("named", [True, False])
def test_answer_of_prometheus_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, series: Any, *, named: bool
) -> None:
    metric = {"instance_type": "m5", "capacity_type": "spot", "zone": "a"}
    metric |= {"__name__": KARPENTER} if named else {}
    answer = {"status": "success", "data": {"result": [{"metric": metric, **series}]}}
    found = run(capsys, tmp_path, json.dumps(answer))
    assert found == (0, [({CAPACITY: "spot", TYPE: "m5"}, 0.2)], "")


def test_price_of_type_is_mean_when_nodes_differ(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, found, err = run(capsys, tmp_path, cost("a", "0.1") + cost("b", "0.3"))
    assert (code, found) == (0, [({TYPE: "m5"}, 0.2)])
    assert err.endswith(
        f"nodes with {TYPE}=m5 cost from 0.1 to 0.3; their price becomes the mean, 0.2\n"
    )


def test_files_are_joined(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    more = "type,price\nc5,0.3\n"
    code, found, _ = run(capsys, tmp_path, cost("a", "0.1"), more, more)
    assert (code, found) == (0, [({TYPE: "c5"}, 0.3), ({TYPE: "m5"}, 0.1)])


TOO_MANY = "type,price\n" + "".join(f"t{number},1\n" for number in range(PRICES_MAX + 1))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "headings none; allowed: a CSV with a column price"),
        ("type\nm5\n", "headings type; allowed: a CSV with a column price"),
        ("type,price\nm5,cheap\n", "line 2: price: 'cheap'; allowed: a number from 0 on"),
        ("type,price\nm5,-1\n", "line 2: price: '-1'; allowed: a number from 0 on"),
        ("type,price\nm5,1e99\n", "line 2: price: '1e99'; allowed: a number from 0 on"),
        ("type,price\nm5,NaN\n", "line 2: price: 'NaN'; allowed: a number from 0 on"),
        ("type,price\nm5\n", "line 2: has more or fewer cells than there are headings"),
        ("type,price\n,1\n", "line 2: has a price, but no label"),
        ("type,price\nm5,1\nm5,2\n", "m5: has a second price, 2"),
        ('type,price\n"m5,1\n', "not a CSV: "),
        ("{", "allowed: a CSV with a column price"),
        ('{"data":{"result":[{"metric":{}}]}}', "has no prices; allowed: a CSV"),
        (cost("a", "many"), "not a page of metrics: "),
        ("# only comments\n", "has no prices; allowed: a CSV"),
        (TOO_MANY, "1,001 prices; allowed: up to 1,000; keep only the prices of your nodes"),
    ],
)
def test_wrong_file_is_an_error_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, problem: str
) -> None:
    code, found, err = run(capsys, tmp_path, content)
    assert (code, found, err.count("\n")) == (2, [], 1)
    assert err.startswith(f"ebb: {tmp_path}/0: ")
    assert problem in err
