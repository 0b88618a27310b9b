"""Find Cluster Autoscaler and kube-scheduler among the workloads, and read their flags."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Final, TypeVar

from cli.doctor.finding import Evidence, Facts, values, where
from cli.input import go_values
from cli.input.setup import DEPLOYMENTS, SYSTEM_PODS
from cli.input.setup_objects import Container

Value_ = TypeVar("Value_")
AUTOSCALER: Final = "cluster-autoscaler"
SCHEDULER: Final = "kube-scheduler"
COMMAND_LINE_MAX: Final = 128 * 1024
"""Limit of a command line, as in Linux; shlex takes quadratic time in the length of a word."""
SHELL: Final = "-c"
"""Option of a shell after which the next word is a command line."""


class UnreadableFlagError(Exception):
    """The value of a program's flag cannot be read; the message names the flag and its value."""


@dataclass(frozen=True, slots=True)
class Program:
    """A workload that runs Cluster Autoscaler or kube-scheduler, with its command line."""

    object: str
    namespace: str
    words: tuple[str, ...]
    """Command line of the container."""
    replicas: int | None = None
    """Replicas of a Deployment; None for a Pod, and if the Deployment names none."""

    def text(self, name: str) -> str | None:
        """Return the last value of the flag *name* (without dashes); None if it is not set."""
        given = self.texts(name)
        return given[-1] if given else None

    def texts(self, name: str) -> Sequence[str]:
        """Return all values of the flag *name* (without dashes), in order; empty if it is not set.

        A flag without a value has the value "true".
        """
        given: list[str] = []
        for number, word in enumerate(self.words):
            flag, equals, value = word.partition("=")
            if not word.startswith("-") or flag.lstrip("-").replace("_", "-") != name:
                continue
            following = self.words[number + 1 : number + 2]
            apart = following and not following[0].startswith("-")
            given.append(value if equals else following[0] if apart else "true")
        return given

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return the value of a boolean flag, or *default* if it is not set.

        Raises: UnreadableFlagError.
        """
        return self._read(name, str(default).lower(), go_values.boolean)

    def seconds(self, name: str, default: str) -> Fraction:
        """Return the seconds of a duration flag; *default*: its text if the flag is not set.

        Raises: UnreadableFlagError.
        """
        return self._read(name, default, go_values.seconds)

    def number(self, name: str, default: str) -> Fraction:
        """Return the value of a decimal flag; *default*: its text if the flag is not set.

        Raises: UnreadableFlagError.
        """
        return self._read(name, default, go_values.decimal)

    def _read(self, name: str, default: str, read: Callable[[str], Value_]) -> Value_:
        given = self.text(name)
        try:
            return read(default if given is None else given)
        except ValueError as fault:
            raise UnreadableFlagError(f"{self.object}: --{name}={given:.80}") from fault

    def evidence(self, name: str, default: str) -> Evidence:
        """Return the value of a flag as evidence; if it is not set, *default* with a remark."""
        given = self.text(name)
        return Evidence(
            self.object, f"--{name}", f"{default} (default)" if given is None else given
        )


def autoscalers(facts: Facts) -> tuple[Program, ...]:
    """Return the workloads that run Cluster Autoscaler."""
    return tuple(_programs(facts, AUTOSCALER))


def schedulers(facts: Facts) -> tuple[Program, ...]:
    """Return the workloads that run kube-scheduler, most often static pods."""
    return tuple(_programs(facts, SCHEDULER))


def _programs(facts: Facts, name: str) -> Iterator[Program]:
    """Yield the Deployments that run the program *name*, and pods of other workloads that do.

    In a live cluster, only pods in kube-system are read.
    """
    owners: list[str] = []
    for workload in values(facts.setup.of(DEPLOYMENTS)):
        template = workload.spec.template if workload.spec else None
        program = _program("Deployment", workload.metadata, template and template.spec, name)
        if program is not None:
            owners.append(f"{program.namespace}/{workload.metadata.name}-")
            yield replace(program, replicas=workload.spec.replicas)
    for workload in values(facts.setup.of(SYSTEM_PODS)):
        program = _program("Pod", workload.metadata, workload.spec, name)
        if program is None:
            continue
        if not f"{program.namespace}/{workload.metadata.name}".startswith(tuple(owners)):
            yield program


def _program(kind: str, metadata: Any, spec: Any, name: str) -> Program | None:  # noqa: ANN401
    """Return a workload as a Program, from its first container that runs the program *name*.

    Returns None if no container does. *kind*: Deployment or Pod. *metadata*, *spec*: parts of the
    workload; *spec* is that of its pods.
    """
    containers = (spec.containers if spec else None) or ()
    # Helm prefixes the name of a Deployment, and its image may have any name.
    named = kind == "Deployment" and f"-{metadata.name}".endswith(f"-{name}")
    for container in containers:
        words = _command(container)
        image = PurePath(container.image.partition("@")[0]).name
        if named or name in image or (words and PurePath(words[0]).name == name):
            return Program(where(kind, metadata), metadata.namespace or "default", words)
    return None


def _command(container: Container) -> tuple[str, ...]:
    """Return the command line of a container; for `sh -c` the words that the shell runs."""
    command_line = (*(container.command or ()), *(container.args or ()))
    if (
        len(command_line) > 2
        and command_line[1] == SHELL
        and len(command_line[2]) <= COMMAND_LINE_MAX
    ):
        try:
            return tuple(shlex.split(command_line[2]))
        except ValueError:
            return command_line
    return command_line
