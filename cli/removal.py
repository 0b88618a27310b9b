"""What `ebb unmark` and `ebb cleanup` share: options, the question, and the printed lines."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cli.input import source
from cli.terminal import printable
from core.model.errors import InvalidInputError
from core.model.humanize import plural
from kube.target import Overrides
from runtime import files

if TYPE_CHECKING:  # the packages of the client are slow to import
    from cli.cleanup import Request
    from kube.target import Target


class Options(NamedTuple):
    """The options of both commands, and the environment."""

    environment: Mapping[str, str]
    dry_run: bool
    yes: bool
    kubeconfig: str | None
    context: str | None
    config: str | None
    ebb_namespace: str
    overrides: Overrides


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of both commands; the command receives them as one Options."""

    @click.option("--dry-run", is_flag=True, help="only print what would be removed")
    @click.option("--yes", is_flag=True, help="do not ask; for scripts")
    @source.live_options
    @source.installed
    @click.pass_obj
    @wraps(command)
    def wrapped(environment: source.Environment, /, **given: Any) -> None:  # noqa: ANN401 by option
        names = set(Options._fields) - {"environment"}
        shared = {name: given.pop(name) for name in names}
        command(Options(environment=environment, **shared), **given)

    return wrapped


def remove(options: Options, command: str, request: "Request") -> None:
    """Remove what Ebb has written, as the command of this name requests.

    Raises: InvalidInputError if the user cannot be asked or does not agree, and what
    `cli.cleanup.cleanup` raises.
    """
    configuration = files.read_config(options.config)
    path = source.kubeconfig_of(options.kubeconfig, options.environment)
    can_ask = sys.stdin is not None and sys.stdin.isatty()
    if not (options.dry_run or options.yes or can_ask):
        raise InvalidInputError(
            command, "standard input is no terminal, so the command cannot ask; use --yes"
        )
    # The client's packages are slow to import.
    import asyncio  # noqa: PLC0415

    from cli.cleanup import Actions, cleanup  # noqa: PLC0415
    from kube.client import Client  # noqa: PLC0415
    from runtime.clock import SystemClock  # noqa: PLC0415

    progress = _Progress(command, dry_run=options.dry_run, yes=options.yes)
    actions = Actions(progress.connected, progress.passes, progress.report)
    connecting = Client.connect(path, options.context, overrides=options.overrides)
    asyncio.run(
        cleanup(connecting, configuration, actions, options.ebb_namespace, request, SystemClock())
    )
    print(progress.summary())


class _Progress:
    """Ask for confirmation, then print each removal."""

    def __init__(self, command: str, *, dry_run: bool, yes: bool) -> None:
        self._command, self._dry_run, self._yes = command, dry_run, yes
        self._cluster = ""
        self._removed = ""
        self._counts: Counter[str] = Counter()

    def connected(self, target: "Target") -> None:
        self._cluster = str(target)
        print(f"cluster {printable(self._cluster)}, {printable(target.server)}", flush=True)

    def passes(self) -> Iterator[bool]:
        """Yield True for a pass that only reports, and False for the pass that removes.

        Raises: InvalidInputError if the user does not agree.
        """
        if self._dry_run or not self._yes:
            yield self._begun(dry_run=True)
            if self._dry_run or not self._counts:
                return
            question = f"Clean up these objects in {printable(self._cluster)}?"
            if not click.confirm(question, err=True):
                raise InvalidInputError(self._command, "not confirmed; nothing was removed")
        yield self._begun(dry_run=False)

    def _begun(self, *, dry_run: bool) -> bool:
        self._counts.clear()
        self._removed = "would be cleaned up" if dry_run else "cleaned up"
        return dry_run

    def report(self, kind: str, name: str, what: str) -> None:
        print(f"{kind} {name}  {self._removed}: {what}", flush=True)
        self._counts[kind] += 1

    def summary(self) -> str:
        """Return how many objects were, or would be, cleaned up."""
        nodes, pods = plural(self._counts["node"], "node"), plural(self._counts["pod"], "pod")
        return f"{nodes} and {pods} {self._removed}"
