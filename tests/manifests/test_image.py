import re
import subprocess
import tomllib

import pytest

from tests.manifests.kustomize import ROOT, render, templates
from tests.test_house_rules import LOCKED

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
LOCKS = ("requirements-build.lock", "requirements-runtime.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PINNED = re.compile(r"^([a-z0-9.-]+==\S+)", re.MULTILINE)


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line)]


def last_stage() -> dict[str, str]:
    found = instructions()
    start = max(place for place, (name, _) in enumerate(found) if name == "FROM")
    return dict(found[start:])


def test_both_stages_use_same_slim_python() -> None:
    bases = {rest.partition(" ")[0] for name, rest in instructions() if name == "FROM"}
    assert bases == {"${BASE}"}
    # Python 3.13 rejects CAs without key identifiers, which some managed clusters use.
    assert instructions()[0] == ("ARG", "BASE=python:3.12-slim")


@pytest.mark.parametrize(
    ("release", "base", "built"),
    [
        ("no", "python:3.12-slim", True),
        ("no", f"python:3.12-slim@sha256:{'a' * 64}", True),
        ("yes", f"python:3.12-slim@sha256:{'a' * 64}", True),
        ("yes", "python:3.12-slim", False),
        ("", "python:3.12-slim", False),
    ],
)
def test_release_rejects_base_image_without_digest(
    release: str, base: str, *, built: bool
) -> None:
    check = next(rest for name, rest in instructions() if name == "RUN")
    done = subprocess.run(
        ["/bin/sh", "-c", check],
        env={"RELEASE": release, "BASE": base},
        check=False,
        capture_output=True,
    )
    assert (done.returncode == 0) is built


def test_image_runs_as_numeric_user_of_pods() -> None:
    user = last_stage()["USER"]
    assert [rest for name, rest in instructions() if name == "USER"] == [user]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    for template in templates(render("extender")):
        context = template["spec"]["securityContext"]
        assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_image_writes_only_to_tmp() -> None:
    found = last_stage()["ENV"].split()
    assert {"HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"} <= set(found)


def test_downloaded_packages_are_pinned_by_hash() -> None:
    commands = " && ".join(rest for name, rest in instructions() if name == "RUN").split(" && ")
    fetching = []
    for command in (command for command in commands if re.match(r"pip\b", command)):
        assert "--no-deps" in command, "what is locked is all, and pip is to look for no more"
        if "-r " in command:
            assert "--require-hashes" in command
            assert "--only-binary :all:" in command
            fetching.append(command.rpartition("-r ")[2])
        else:
            assert "--no-index" in command or "--no-build-isolation" in command
    assert fetching == list(LOCKS)
    copied = [rest.split() for name, rest in instructions() if name == "COPY"]
    assert copied[0] == [*LOCKS, "./"]
    assert not re.search(r"\b(apt|curl|wget|sudo|ADD)\b", DOCKERFILE)


@pytest.mark.parametrize("name", LOCKS)
def test_lock_is_subset_of_tested_lock(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        assert LOCKED.fullmatch(line), f"{name}, line {number}: {line}"
        assert "://" not in line
    tested = (ROOT / "requirements.lock").read_text("utf-8")
    assert set(PINNED.findall(text)) <= set(PINNED.findall(tested))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("requirements-build.lock", PROJECT["build-system"]["requires"]),
        ("requirements-runtime.lock", PROJECT["project"]["dependencies"]),
    ],
)
def test_lock_contains_all_requirements(name: str, wanted: list[str]) -> None:
    pinned = {pin.partition("==")[0] for pin in PINNED.findall((ROOT / name).read_text("utf-8"))}
    assert {re.split(r"[^a-z0-9-]", one)[0] for one in wanted} <= pinned


def test_image_contains_only_programs() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in lines
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    rooms = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert let_in == {*rooms, *LOCKS, "LICENSE", "README.md", "pyproject.toml"}
