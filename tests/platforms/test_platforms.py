"""`ebb plan` for clusters like those of real platforms, compared with the tables in `expected/`.

After an intended change run `python -m tests.platforms kubeadm | ebb plan --from-file -
--max-cpu 80% --max-memory 80% > tests/platforms/expected/kubeadm.txt 2>&1`, and review the diff
like an operator of the platform.
"""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from cli.__main__ import main
from core.config.settings import Config
from core.engine import reconcile
from tests.platforms import PLATFORMS, dump
from tests.platforms.expected import CPU, MINIMUMS, NEVER, STAYS
from tests.platforms.picture import picture
from tests.support.builders import EIGHTY_PERCENT
from tests.support.kube_json import cluster_from_dumps
from tests.support.page_commands import programs
from tests.support.pages import commands, console
from tests.support.reference import Reference

EXPECTED = Path(__file__).parent / "expected"
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PLAN = console("docs/reaches.md", "tests.platforms kubeadm")
EIGHTY = ("--max-cpu", "80%", "--max-memory", "80%")


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(platform: str, tmp_path: Path) -> str:
    file = tmp_path / f"{platform}.json"
    file.write_bytes(dump(platform))
    return str(file)


def test_plan_prints_expected_table(
    platform: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--from-file", path, *EIGHTY]) == 0
    out, err = capsys.readouterr()
    assert err + out == (EXPECTED / f"{platform}.txt").read_text("utf-8")


def test_every_node_is_removable_or_has_expected_reasons(
    platform: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "-o", "json", "--from-file", path, *EIGHTY]) == 0
    plan = orjson.loads(capsys.readouterr().out)
    goes = [removal["node"] for removal in plan["removals"]]
    stays = {
        kept["node"]: tuple(sorted({reason["code"] for reason in kept["reasons"]}))
        for kept in plan["unremovable"]
    }
    names = {node.name for node in cluster_from_dumps([(platform, dump(platform))]).nodes}
    assert sorted([*goes, *stays]) == sorted(names)
    assert stays == STAYS[platform]


def test_no_node_is_removed_that_no_autoscaler_removes(
    platform: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "-o", "json", "--from-file", path, *EIGHTY]) == 0
    goes = {one["node"] for one in orjson.loads(capsys.readouterr().out)["removals"]}
    assert goes.isdisjoint(NEVER.get(platform, ()))
    for members, least in MINIMUMS.get(platform, ()):
        assert len(members - goes) >= least


def test_totals_of_reaches_match_expected_values(
    platform: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "-o", "json", "--from-file", path, *EIGHTY]) == 0
    sums = {one["name"]: one["before"] for one in orjson.loads(capsys.readouterr().out)["reaches"]}
    found = {
        name: (sums[name]["requests"]["cpu"], sums[name]["capacity"]["cpu"])
        for name in CPU[platform]
    }
    assert found == CPU[platform]


def test_plan_matches_reference_plan(platform: str) -> None:
    cluster = cluster_from_dumps([(platform, dump(platform))])
    config = Config(thresholds=EIGHTY_PERCENT)
    plan, plain = reconcile.plan(cluster, config), Reference(cluster, config).run()
    assert [one.node for one in plan.removals] == [node for node, _ in plain.removals]
    assert sorted(plan.pending) == sorted(plain.pending)
    sums = [(one.before.requests, one.after.requests, one.after.usable) for one in plan.reaches]
    other = [(one.before.requests, one.after.requests, one.after.usable) for one in plain.reaches]
    assert sorted(map(repr, map(_flat, sums))) == sorted(map(repr, map(_flat, other)))


def _flat(sums: tuple[tuple[int, int], ...]) -> list[int]:
    return [amount for pair in sums for amount in pair]


def test_reaches_page_and_picture_are_up_to_date() -> None:
    (command,) = commands(PLAN)
    shell = ["bash", "-c", command.text]
    done = subprocess.run(shell, capture_output=True, text=True, env=programs(), check=True)
    assert PLAN.commands == f"$ {command.text}\n{done.stderr}{done.stdout}"
    drawn = (DOCS / "reaches.svg").read_text("utf-8")
    assert drawn == picture(), "python -m tests.platforms.picture > docs/reaches.svg"


def test_dump_is_reproducible(platform: str) -> None:
    assert dump(platform) == dump(platform)


@pytest.mark.parametrize("arguments", [[], ["openshift"]])
def test_unknown_platform_is_rejected_with_known_platforms(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "tests.platforms", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "kubeadm" in done.stderr
    assert "Traceback" not in done.stderr
