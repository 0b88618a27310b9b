"""Start a program: command line, configuration, logs, and errors in one line each."""

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from core.config.settings import Config
from core.model.errors import EbbError
from core.setting_types.value_types import ADDRESS, ValueFormat, text
from runtime import files, logs
from runtime.file_changes import FileChanges
from runtime.messages import tell

FAULT = 2
CONFIG: Final = "--config"
KUBECONFIG: Final = "--kubeconfig"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of a program beside `--config` and `--kubeconfig`."""

    name: str
    """Name, such as `--listen`."""
    format: ValueFormat
    default: Any
    """Value without the flag, as the format reads it."""
    meaning: str
    """Meaning for operators, as Markdown."""

    @property
    def allowed(self) -> str:
        """Return the allowed values, for people."""
        return str(self.format.schema["title"])

    def read(self, value: str) -> Any:  # noqa: ANN401 of whatever type the format reads
        """Read a value of the command line. Raises: argparse.ArgumentTypeError."""
        try:
            return self.format.read(value)
        except ValueError:
            problem = f"{value!r:.80}; allowed: {self.allowed}"
            raise argparse.ArgumentTypeError(problem) from None


def listen_flag(name: str, default: str, purpose: str) -> Flag:
    """Return a flag for an address; *purpose*: what the program serves there."""
    return Flag(name, ADDRESS, default, f"address for {purpose}")


LOG_LEVEL: Final = Flag(
    "--log-level",
    text("|".join(logs.LEVELS), f"one of {', '.join(logs.LEVELS)}"),
    logs.INFO,
    "lowest level of the messages that are logged",
)
"""Flag of every program."""


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
    flags: Mapping[str, Any]
    """Value of each flag of the program, by the name of the flag."""

    @classmethod
    def read(
        cls, config_path: str | None, kubeconfig: str | None, flags: Mapping[str, Any]
    ) -> "Start":
        """Read the configuration file, and begin to detect its changes. Raises: ConfigError.

        *config_path*: None for the default configuration. *kubeconfig* and *flags*: kept for the
        program.
        """
        changes = FileChanges([config_path] if config_path else ())
        return cls(files.read_config(config_path), config_path, changes, kubeconfig, flags)


Serve = Callable[[Start], Coroutine[Any, Any, None]]
"""Runs the program until SIGTERM."""


def run(
    name: str,
    description: str,
    serve: Serve,
    argv: Sequence[str] | None,
    flags: Iterable[Flag] = (),
) -> int:
    """Parse the command line, read the configuration, and run *serve* until SIGTERM.

    *argv*: arguments; None: the arguments of the process. *flags*: flags of this program. Returns:
    the exit code, 0, or 2 after errors, which are written to standard error.
    """
    arguments = parsed(name, description, argv, (*flags, LOG_LEVEL))
    logs.start(arguments[LOG_LEVEL.name])
    try:
        asyncio.run(serve(Start.read(arguments[CONFIG], arguments[KUBECONFIG], arguments)))
    except (EbbError, OSError) as fault:
        return _report(name, [fault])
    except ExceptionGroup as several:
        if several.split(EbbError)[1] is not None:
            raise  # a bug: show the traceback
        return _report(name, _leaves(several))
    return 0


def parsed(
    name: str, description: str, argv: Sequence[str] | None, flags: Iterable[Flag]
) -> Mapping[str, Any]:
    """Return the value of each flag by its name.

    *argv*: arguments; None: the arguments of the process. Raises: SystemExit with the code 2,
    after the error has been written to standard error.
    """
    parser = argparse.ArgumentParser(prog=name, description=description, allow_abbrev=False)
    parser.add_argument(
        CONFIG, dest=CONFIG, metavar="FILE", help="configuration file (kind: EbbConfiguration)"
    )
    parser.add_argument(
        KUBECONFIG, dest=KUBECONFIG, metavar="FILE", help="kubeconfig for use outside a cluster"
    )
    for flag in flags:
        parser.add_argument(
            flag.name,
            dest=flag.name,
            metavar="VALUE",
            type=flag.read,
            default=flag.default,
            help=f"{flag.meaning} (default: {flag.format.write(flag.default)})",
        )
    return vars(parser.parse_args(argv))


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
