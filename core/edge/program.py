"""How every program begins: the command line, the configuration, logs, faults in one line each."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.config.settings import Config
from core.edge import files, logs
from core.edge.changes import Changes
from core.model.errors import EbbError

FAULT = 2


@dataclass(frozen=True, slots=True)
class Start:
    """What a program is started with."""

    config: Config
    config_path: str | None
    """Where it was read; None: built in."""
    changes: Changes
    """Of that file."""
    kubeconfig: str | None
    """None: in a cluster."""

    @classmethod
    def read(cls, config_path: str | None, kubeconfig: str | None) -> "Start":
        """Read the configuration. Raises: ConfigError."""
        changes = Changes([config_path] if config_path else ())
        return cls(files.read_config(config_path), config_path, changes, kubeconfig)


Serve = Callable[[Start], Coroutine[Any, Any, None]]
"""Serves until SIGTERM."""


def run(name: str, description: str, serve: Serve, argv: Sequence[str] | None) -> int:
    """Run a program until SIGTERM. Returns: 0, or 2 with one line a fault on standard error."""
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument("--config", metavar="FILE", help="an EbbConfiguration")
    parser.add_argument("--kubeconfig", metavar="FILE", help="outside a cluster: how to reach it")
    arguments = parser.parse_args(argv)
    logs.start()
    try:
        asyncio.run(serve(Start.read(arguments.config, arguments.kubeconfig)))
    except (EbbError, OSError) as fault:
        return _told(name, [fault])
    except ExceptionGroup as several:
        if several.split(EbbError)[1] is not None:
            raise  # of which a traceback is wanted
        return _told(name, _single(several))
    return 0


def _told(name: str, faults: Iterable[Exception]) -> int:
    lines = [line for fault in faults for line in str(fault).splitlines()]
    for line in dict.fromkeys(lines):  # several tasks may have met the same fault
        print(f"{name}: {line}", file=sys.stderr)
    return FAULT


def _single(several: ExceptionGroup[Exception]) -> Iterator[Exception]:
    """Yield the faults of what ran side by side, and of what ran beside that in it."""
    for one in several.exceptions:
        if isinstance(one, ExceptionGroup):
            yield from _single(one)
        else:
            yield one
