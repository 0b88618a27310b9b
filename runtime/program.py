"""Start a program: command line, configuration, logs, and errors in one line each."""

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.config.settings import Config
from core.model.errors import EbbError
from runtime import files, logs
from runtime.file_changes import FileChanges
from runtime.messages import tell

FAULT = 2


@dataclass(frozen=True, slots=True)
class Start:
    """The configuration and the options with which a program starts."""

    config: Config
    config_path: str | None
    """Path of the configuration file; None if the defaults are used."""
    changes: FileChanges
    """Changes of the configuration file."""
    kubeconfig: str | None
    """Path of a kubeconfig; None inside a cluster."""

    @classmethod
    def read(cls, config_path: str | None, kubeconfig: str | None) -> "Start":
        """Read the configuration file, and begin to detect its changes. Raises: ConfigError.

        *config_path*: None for the default configuration. *kubeconfig*: path that is kept for the
        program.
        """
        changes = FileChanges([config_path] if config_path else ())
        return cls(files.read_config(config_path), config_path, changes, kubeconfig)


Serve = Callable[[Start], Coroutine[Any, Any, None]]
"""Runs the program until SIGTERM."""


def run(name: str, description: str, serve: Serve, argv: Sequence[str] | None) -> int:
    """Parse the command line, read the configuration, and run *serve* until SIGTERM.

    *argv*: arguments; None: the arguments of the process. Returns: the exit code, 0, or 2 after
    errors, which are written to standard error.
    """
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument(
        "--config", metavar="FILE", help="configuration file (kind: EbbConfiguration)"
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig for use outside a cluster"
    )
    arguments = parser.parse_args(argv)
    logs.start()
    try:
        asyncio.run(serve(Start.read(arguments.config, arguments.kubeconfig)))
    except (EbbError, OSError) as fault:
        return _report(name, [fault])
    except ExceptionGroup as several:
        if several.split(EbbError)[1] is not None:
            raise  # a bug: show the traceback
        return _report(name, _leaves(several))
    return 0


def _report(name: str, faults: Iterable[Exception]) -> int:
    lines = [line for fault in faults for line in str(fault).splitlines()]
    for line in dict.fromkeys(lines):  # several tasks may report the same fault
        tell(f"{name}: {line}")
    return FAULT


def _leaves(several: ExceptionGroup[Exception]) -> Iterator[Exception]:
    for fault in several.exceptions:
        if isinstance(fault, ExceptionGroup):
            yield from _leaves(fault)
        else:
            yield fault
