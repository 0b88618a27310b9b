"""Shells complete contexts, nodes and pods, from a live cluster or a dump."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import click
import pytest

from cli.__main__ import COMPLETE, ebb
from cli.commands.completion import _Kubectl
from cli.input.subjects import node_names
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import KUBECONFIG, node_object, pod_object
from tests.support.plan_cli import ITEMS, A, B, C, D, dump
from tests.support.plan_cli import ebb as run


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[str]:
    async with FakeApi() as api:
        for name in ("n1", "n2", "m"):
            api.put("nodes", node_object(name))
        api.put("pods", pod_object("p", node="n1"))
        api.denied.add("configmaps")
        file = tmp_path / "kubeconfig"
        file.write_text(KUBECONFIG.format(url=api.url))
        yield str(file)


def completed(*words: str) -> list[str]:
    """Return what the last word is completed to."""
    *before, begun = words
    completion = _Kubectl(ebb, {"obj": {}}, "ebb", COMPLETE)
    return [item.value for item in completion.get_completions(before, begun)]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["explain", "node", "n"], ["n1", "n2"]),
        (["explain", "node/"], ["node/m", "node/n1", "node/n2"]),
        (["explain", "no/n1", "node/n2"], ["node/n2"]),
        (["explain", "pod", ""], ["default/p"]),
        (["explain", "-n", "default", "pod", ""], ["p"]),
        (["explain", "-n", "other", "pod/"], []),
        (["unmark", "n1", "n2"], ["n2"]),
        (["plan", "--context", ""], ["it"]),
        (["unmark", "--cluster", "i"], ["it"]),
        (["version", "--user", "x"], []),
    ],
)
async def test_names_of_live_cluster_are_completed(
    kubeconfig: str, words: list[str], offered: list[str]
) -> None:
    command, *others = words
    found = await asyncio.to_thread(completed, command, "--kubeconfig", kubeconfig, *others)
    assert found == offered


def test_names_in_dump_are_completed(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*ITEMS))
    given = "explain", "--from-file", str(file)
    assert completed(*given, "node", "ip-") == [A, B, C, D]
    assert completed(*given, "pod", "shop/a") == ["shop/a1"]


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "--kubeconfig", "/no/such", "node", ""],
        ["explain", "--from-file", "/no/such", "node", ""],
        ["plan", "--kubeconfig", "/dev/null", "--context", ""],
        ["explain", "--as-group", "g", "node", ""],
        ["explain", "job", ""],
    ],
)
def test_nothing_is_completed_when_cluster_cannot_be_read(words: list[str]) -> None:
    assert completed(*words) == []


def test_nodes_are_named_with_or_without_type() -> None:
    named = ["a", "node/b", "no/c", "no", "pod/d"]
    context, argument = click.Context(ebb), click.Argument(["nodes"])
    assert node_names(context, argument, named) == ["a", "b", "c", "no", "pod/d"]


def test_script_for_kubectl_prints_words_and_directive(tmp_path: Path) -> None:
    script = run("completion", "kubectl")
    assert (script.returncode, script.stdout[:10]) == (0, b"#!/bin/sh\n")
    (tmp_path / "kubectl_complete-ebb").write_bytes(script.stdout)
    plugin = tmp_path / "kubectl-ebb"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m cli "$@"\n')
    for file in tmp_path.iterdir():
        file.chmod(0o755)
    answers = {
        ("pla",): "plan\tshow which nodes are removable, and why the others are not\n:4\n",
        ("plan", "--policy", "Ex"): "ExcessNodes\n:4\n",
        ("config", "validate", ""): ":0\n",
    }
    for words, expected in answers.items():
        assert _script(tmp_path, words) == expected


def _script(folder: Path, words: tuple[str, ...]) -> str:
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    script = folder / "kubectl_complete-ebb"
    done = subprocess.run(
        [script, *words], capture_output=True, env=environment, check=True, text=True
    )
    return done.stdout
