"""`ebb top` as a process: in a terminal until the user quits, and once into a pipe."""

import os
import pty
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests import platforms
from tests.support.plan_cli import COMMAND, ROOT

SECONDS_MAX = 60


@pytest.fixture
def dump(tmp_path: Path) -> str:
    path = tmp_path / "dump.json"
    path.write_bytes(platforms.dump("kubeadm"))
    return str(path)


def read_until(descriptor: int, text: str) -> str:
    """Read from a terminal until a text appears. Raises: AssertionError."""
    found = ""
    while text not in found:
        ready, _, _ = select.select([descriptor], [], [], SECONDS_MAX)
        assert ready, found
        found += os.read(descriptor, 65536).decode(errors="replace")
    return found


@pytest.mark.parametrize("how", ["q", signal.SIGINT])
def test_top_shows_nodes_until_user_quits(dump: str, how: str | int) -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "top", "--from-file", dump]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        os.close(theirs)
        assert "worker-a1" in read_until(ours, "q quit")
        if isinstance(how, str):
            os.write(ours, how.encode())
        else:
            process.send_signal(how)
        assert process.wait(SECONDS_MAX) == 0
    os.close(ours)


def test_top_prints_once_into_pipe(dump: str) -> None:
    done = subprocess.run(
        [*COMMAND, "top", "--from-file", dump],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    assert "worker-a1" in done.stdout
    assert "q quit" not in done.stdout
