"""The workflows of GitHub: their rights, the actions that they trust, and what they publish.

actionlint checks the rest:
`go run github.com/rhysd/actionlint/cmd/actionlint@latest .github/workflows/*.yaml`.
"""

import re
from typing import Any

import pytest
import yaml

from tests.release.__main__ import ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(path.name for path in FOLDER.iterdir())
PINNED = re.compile(r"uses: (?:\./\S+|[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)")


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_commit(name: str) -> None:
    """Whoever controls an action could move its tag, and publish in our name."""
    lines = (FOLDER / name).read_text("utf-8").splitlines()
    used = [line.strip(" -") for line in lines if "uses:" in line]
    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []


def test_only_approved_job_may_write() -> None:
    for name in WORKFLOWS:
        found = workflow(name)
        assert found["permissions"] == {"contents": "read"}
        rights = {job: one.get("permissions") for job, one in found["jobs"].items()}
        assert [job for job, given in rights.items() if given] == (
            ["publish"] if name == "release.yaml" else []
        )
    assert workflow("release.yaml")["jobs"]["publish"]["environment"] == "release"


def test_release_waits_for_tests() -> None:
    jobs = workflow("release.yaml")["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yaml"
    assert (jobs["build"]["needs"], jobs["publish"]["needs"]) == ("test", "build")


def test_ci_runs_the_targets_of_ci_run() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    targets = re.findall(r"^make ([\w-]+)$", script, re.MULTILINE)
    assert targets
    steps = [step for job in workflow("ci.yaml")["jobs"].values() for step in job["steps"]]
    run = " ".join(step.get("run", "") for step in steps).split()
    assert set(targets) <= set(run)
