"""Every command on the pages runs in a test, is accepted by its program, or says what it needs."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import orjson
import pytest

from cli.__main__ import main
from controller.names import HISTORY, TODAY
from core.history.packing import pack_history, pack_today
from extender.metrics import Metrics
from kube.target import NAMESPACE
from tests.cli.test_history import PAST, STORED
from tests.cli.test_history import World as Past
from tests.manifests.kustomize import containers, find, render
from tests.platforms import dump
from tests.platforms.objects import autoscaler_status
from tests.support import readme_plan
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import node_object, pod_object
from tests.support.page_commands import (
    accepted,
    all_pages,
    page_commands,
    programs,
    run_by_tests,
)
from tests.support.pages import ROOT, blocks, commands, console, spans

LACKED = {
    "AKS",
    "Docker",
    "GKE",
    "OpenShift",
    "a published version",
    "kOps",
    "kind",
    "kubeadm",
    "the right to push",
}
"""What the tests lack to run some commands."""
WHAT_TO_DO = """
Let a test run the block, and give the module of the test a constant with the value
`console("docs/page.md", "part of the block")`. Or put `<!-- test: run -->` above the block. If
the tests lack what the command needs, write `# not tested: needs ...` after it, or above it in the
block."""
LIVE = {"doctor", "explain", "history", "plan", "status"}
"""Commands that read a cluster once."""
READING = {"config", "prices", "reasons", *LIVE}
"""Commands that neither write, nor simulate, nor follow a cluster."""
VALUES = {"NAME": "n", "NODE": "n", "NAMESPACE/NAME": "default/p"}
"""What stands for words in capitals on the pages."""
MODULE = re.compile(r"(?:\.venv/bin/)?python -m (\S+)")
OWN_CLUSTER = console("README.md", "ebb plan --from-file -")
EXPLANATION = console("docs/commands.md", "ebb explain node gpu-a1")
FORWARD = console("docs/troubleshooting.md", "port-forward")


def written(folder: Path) -> Iterator[Path]:
    """Write the files that commands on pages read; yield their paths."""
    scheduler = ROOT / "manifests" / "scheduler" / "kube-scheduler-config.yaml"
    for name, content in {
        "cluster.json": dump("kubeadm"),
        "setup.json": orjson.dumps({"kind": "List", "items": []}),
        "status.json": orjson.dumps(autoscaler_status({})),
        "FILE": b"node.kubernetes.io/instance-type,price\nm5,1\n",
        scheduler.name: scheduler.read_bytes(),
    }.items():
        path = folder / name
        path.write_bytes(content)
        yield path


def run(commands: str, folder: Path, **variables: str) -> str:
    """Run commands of a page in a folder, with the programs of this checkout."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=programs(**variables),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture(scope="module")
def ran() -> set[str]:
    return run_by_tests()


def test_every_command_on_pages_runs_in_a_test_or_is_accepted_or_marked(ran: set[str]) -> None:
    faults = []
    for command in page_commands():
        try:
            if command.text in ran or command.needs or accepted(command.text):
                continue
            fault = "no test runs it"
        except click.UsageError as refused:
            fault = refused.format_message()
        except subprocess.CalledProcessError as failed:
            fault = failed.stderr.decode().strip()
        faults.append(f"{command}\n    {fault}")
    assert not faults, "\n".join([*faults, WHAT_TO_DO])


def test_commands_in_sentences_name_existing_options_targets_and_modules() -> None:
    # Records of decisions may name what existed once.
    faults = []
    for page in (one for one in all_pages() if one.parent.name != "decisions"):
        for span in sorted(set(spans(page))):
            if module := MODULE.match(span):
                assert find_spec(module[1]), f"{page}: {span}"
            elif span.startswith(("ebb ", "make ")):
                try:
                    accepted(span)
                except click.UsageError as fault:
                    if fault.message.startswith("No such"):  # a sentence may leave out arguments
                        faults.append(f"{page}: {span}: {fault.message}")
    assert not faults


async def test_commands_that_read_a_cluster_run(
    ran: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = VALUES | {path.name: str(path) for path in written(tmp_path)}
    async with FakeApi() as api:
        api.put("nodes", node_object("n"))
        api.put("pods", pod_object("p", node="n"))
        past = Past(api, tmp_path, capsys, NAMESPACE)  # it writes the kubeconfig too
        past.store(TODAY, pack_today(STORED))
        past.store(HISTORY, pack_history(PAST))
        for command in page_commands():
            name, *words = command.text.split()
            if name == "ebb" and words[0] in READING and command.text not in ran:
                words = [values.get(word, word) for word in words]
                if words[0] in LIVE and "--from-file" not in words:
                    words += ["--kubeconfig", str(tmp_path / "kubeconfig")]
                status = await asyncio.to_thread(main, words)
                assert status == 0, f"{command}\n{capsys.readouterr().err}"


def test_every_block_with_a_mark_for_tests_is_run(ran: set[str]) -> None:
    for command in page_commands():
        assert not command.how or command.text in ran, f"{command}: no test reads this page"


def test_commands_are_marked_only_for_what_tests_lack(ran: set[str]) -> None:
    for command in page_commands():
        assert not command.needs or command.needs in LACKED, f"{command}: {command.needs}"
        assert not command.needs or command.text not in ran, f"{command}: a test runs it"
    assert {command.needs for command in page_commands()} == {"", *LACKED}


def test_commands_on_pages_are_valid_for_a_shell() -> None:
    for page in all_pages():
        for block in blocks(page):
            if not block.commands.startswith("$ "):
                done = subprocess.run(
                    ["bash", "-n", "-c", block.commands], capture_output=True, check=False
                )
                assert not done.stderr, f"{page}:{block.line}: {done.stderr.decode()}"


def test_folders_in_commands_on_pages_exist() -> None:
    for command in page_commands():
        for path in re.findall(r"(?<!\S)(?:docs|tests|manifests)/[\w./-]+", command.text):
            assert (ROOT / path).exists(), command


STAND_INS = """
git() { ln -s "$CHECKOUT" ebb; }
make() { command make --dry-run "$@"; }
kubectl() { cat "$DUMP"; }
"""


def test_commands_of_readme_print_its_plan(tmp_path: Path) -> None:
    cluster = tmp_path / "dump.json"
    cluster.write_bytes(orjson.dumps({"kind": "List", "items": list(readme_plan.items())}))
    told = run(STAND_INS + OWN_CLUSTER.commands, tmp_path, CHECKOUT=str(ROOT), DUMP=str(cluster))
    assert readme_plan.plan() in told


def test_commands_page_shows_explanation_of_node(tmp_path: Path) -> None:
    (command,) = commands(EXPLANATION)
    told = run(f"python -m tests.platforms kubeadm > cluster.json; {command.text}", tmp_path)
    assert EXPLANATION.commands == f"$ {command.text}\n{told}"


def test_page_forwards_port_with_metrics_of_extender(tmp_path: Path) -> None:
    (extender,) = containers([find(render("extender"), "Deployment", "ebb-extender", NAMESPACE)])
    metrics = tmp_path / "metrics"
    metrics.write_bytes(Metrics().text())
    called = 'kubectl() { echo kubectl "$@"; }\nebb() { :; }\ncurl() { cat metrics; }\n'
    told = run(called + FORWARD.commands, tmp_path)
    (port,) = re.findall(r"deployment/ebb-extender (\d+)", told)
    assert int(port) in {one["containerPort"] for one in extender["ports"]}
    assert f"localhost:{port}/metrics" in FORWARD.commands
    assert "ebb_extender_prioritize_requests_total" in told
