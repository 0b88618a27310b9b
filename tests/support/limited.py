"""Run a command with its child processes for a limited time."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final

GRACE_SECONDS: Final = 30
"""Time in which an interrupted command may print what it has done."""


def run_within(
    seconds: float | None,
    command: Sequence[str],
    *,
    output: IO[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Run a command; after the time interrupt it like Ctrl-C, and return None.

    Otherwise return its exit code. *output* is its standard output and error; None: those of this
    process. *environment*: None: that of this process.
    """
    with subprocess.Popen(
        command,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and those that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
