"""The marked blocks of commands on the pages, run on a real control plane."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.api import Api
from tests.e2e.install import installed
from tests.e2e.objects import PODS, add_nodes, pod
from tests.e2e.plane import LOOPBACK, ROOT, Plane, free_port, until
from tests.support.pages import NOT_TESTED, Block, console, marked

TUTORIAL = ROOT / "docs" / "tutorial.md"
STEPS = marked(TUTORIAL)
TROUBLESHOOTING = marked(ROOT / "docs" / "troubleshooting.md")
INSTALLATION = [
    block
    for name in ("install.md", "install-reference.md", "surge.md", "page.md")
    for block in marked(ROOT / "docs" / name)
]
"""Blocks for a new cluster, in the order in which a person reads them."""
STOP = console("docs/troubleshooting.md", "--stop-controller")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Start the cluster as `make cluster` does; yield its folder."""
    made = tmp_path / "cluster"
    command = [sys.executable, "-m", "tests.e2e.cluster", "--folder", str(made)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as cluster:
        try:
            assert cluster.stdout is not None
            assert "ready" in cluster.stdout.readline()
            yield made
        finally:
            cluster.send_signal(signal.SIGINT)
    assert not made.exists(), "the cluster deletes its data"


ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
"""The commands run this checkout, wherever the packages are installed."""


START = "ebb-controller --config"
ASKING = re.compile(r"^ebb (?:cleanup|unmark) .*$", re.MULTILINE)
"""Commands that ask a person before they write."""
BUILT = "### A control plane without Docker"
"""Heading of the first part that the tests run."""
FREE_PORTS = f"--metrics-listen={LOOPBACK}:{free_port()} --report-port={free_port()}"
"""Several runs of the tests on one machine cannot share the default ports."""


def shell(block: Block, folder: Path) -> list[str]:
    """Return the command line of a block, in a shell that has read the cluster's file."""
    commands = ". .cluster/env\n" + ASKING.sub(r"\g<0> --yes", block.commands)
    own = commands.replace(".cluster/", f"{folder}/").replace(
        START, f"ebb-controller {FREE_PORTS} --config"
    )
    return ["bash", "-c", own]


def output(block: Block, folder: Path, checkout: Path = ROOT) -> str:
    """Run a block in a checkout; return its output, with single spaces between words."""
    done = subprocess.run(
        shell(block, folder),
        env=ENV,
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    return " ".join(done.stdout.split())


def prints(block: Block, folder: Path) -> bool:
    """Return whether a block prints the expected text now."""
    return block.expected in output(block, folder)


def test_every_block_after_the_start_is_marked() -> None:
    page = TUTORIAL.read_text("utf-8")
    own_cluster, built = page.split(BUILT)
    assert own_cluster.count("```console") == 1
    assert NOT_TESTED in own_cluster
    assert built.count("```console") == len(STEPS) + 1
    assert "make e2e-tools\nmake cluster\n" in page
    assert page.count(START) == 1


def test_commands_of_tutorial_remove_a_node(folder: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []
    try:
        for block in STEPS:
            if block.how == "background":
                # With exec the program gets the signal that ends it, and not its shell.
                replaced = block.commands.replace("\nebb-controller", "\nexec ebb-controller")
                with (folder.parent / "ebb-controller.log").open("wb") as log:
                    command = shell(block._replace(commands=replaced), folder)
                    started.append(
                        subprocess.Popen(command, env=ENV, cwd=ROOT, stdout=log, stderr=log)
                    )
            elif block.how == "run":
                output(block, folder)
            else:
                until(partial(prints, block, folder), block.expected)
        left = Block("run", "", "kubectl get nodes -o name")
        assert len(output(left, folder).split()) == 3
    finally:
        for program in started:
            program.terminate()
            program.wait()


def test_commands_of_installation_and_of_later_pages_run(folder: Path, tmp_path: Path) -> None:
    # Some commands write files, which the real checkout must not get.
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "manifests").symlink_to(ROOT / "manifests")
    for block in (*INSTALLATION, STOP):
        commands = block.commands.replace("GROUP", "viewers")
        output(block._replace(commands=f"set -eo pipefail\n{commands}"), folder, checkout)
    assert "<!doctype html>" in (checkout / "plan.html").read_text("utf-8").lower()


def test_commands_of_troubleshooting_run(plane: Plane, api: Api, tmp_path: Path) -> None:
    programs = os.pathsep.join([str(Path(sys.executable).parent), str(plane.bin)])
    env = f"export KUBECONFIG='{plane.kubeconfig('person')}' PATH='{programs}':\"$PATH\"\n"
    env += "export KUBE_EDITOR=true\n"  # it changes nothing
    (tmp_path / "env").write_text(env)
    values = {"NODE": "n", "NAMESPACE": "default", "NAME": "p"}
    with installed(plane) as (controller, _):
        until(lambda: controller.metric("ebb_leader") == 1, "the controller leads")
        add_nodes(api, "n")
        api.create(PODS, pod("p", node_name="n"))
        for block in TROUBLESHOOTING:
            commands = re.sub(r"\b[A-Z]{4,}\b", lambda word: values[word[0]], block.commands)
            output(block._replace(commands=f"set -e\n{commands}"), tmp_path)
