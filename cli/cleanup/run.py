"""Run `ebb unmark` or `ebb cleanup`: list the removals, ask, and make them."""

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cli.input import source
from cli.input.cluster_options import Environment, kubeconfig_of
from core.config.settings import Config
from core.model.errors import InvalidInputError
from kube.target import Overrides
from runtime import files
from runtime.messages import printable

if TYPE_CHECKING:  # the packages of the client are slow to import
    from cli.cleanup.cluster import Request


class Options(NamedTuple):
    """The options that `ebb unmark` and `ebb cleanup` share, and the environment."""

    environment: Mapping[str, str]
    dry_run: bool
    yes: bool
    kubeconfig: str | None
    context: str | None
    config: str | None
    ebb_namespace: str
    overrides: Overrides


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that `ebb unmark` and `ebb cleanup` share to a command.

    The command receives them as one argument of type Options.
    """

    @click.option("--dry-run", is_flag=True, help="only print what would be removed")
    @click.option("--yes", is_flag=True, help="do not ask; for scripts")
    @source.live_options
    @source.installed
    @click.pass_obj
    @wraps(command)
    def wrapped(environment: Environment, /, **values: Any) -> None:  # noqa: ANN401 by option
        names = set(Options._fields) - {"environment"}
        shared = {name: values.pop(name) for name in names}
        command(Options(environment=environment, **shared), **values)

    return wrapped


def clean_up(options: Options, command: str, request: "Request") -> None:
    """Name the cluster, list the removals of *request*, ask the user, and make the removals.

    With --dry-run, the removals are only listed. With --yes, they are made without a question.
    *command*: name of the command, for error messages.

    Raises: InvalidInputError if the user cannot be asked or does not agree. ConfigError and
    InvalidInputError for files of the options. UnavailableError if the API server rejects a write
    or cannot be reached.
    """
    config = files.read_config(options.config)
    kubeconfig = kubeconfig_of(options.kubeconfig, options.environment)
    can_ask = sys.stdin is not None and sys.stdin.isatty()
    if not (options.dry_run or options.yes or can_ask):
        raise InvalidInputError(
            command, "standard input is no terminal, so the command cannot ask; use --yes"
        )
    import asyncio  # noqa: PLC0415 slow to import

    print(asyncio.run(_clean_up(options, command, request, config, kubeconfig)))


async def _clean_up(
    options: Options, command: str, request: "Request", config: Config, kubeconfig: str | None
) -> str:
    """Clean up as `clean_up` does; return a sentence with the number of objects."""
    # The client's packages are slow to import.
    from cli.cleanup.cluster import Cleanup  # noqa: PLC0415
    from cli.cleanup.removals import Removals  # noqa: PLC0415
    from kube.client import Client  # noqa: PLC0415
    from runtime.clock import SystemClock  # noqa: PLC0415

    async with await Client.connect(
        kubeconfig, options.context, overrides=options.overrides
    ) as client:
        cluster, server = printable(str(client.target)), printable(client.target.server)
        print(f"cluster {cluster}, {server}", flush=True)
        cleanup = Cleanup.of(client, options.ebb_namespace, config, request, SystemClock())
        if options.dry_run or not options.yes:
            preview = Removals(dry_run=True)
            await cleanup.run(preview)
            if options.dry_run or not preview.counts:
                return preview.summary()
            if not click.confirm(f"Clean up these objects in {cluster}?", err=True):
                raise InvalidInputError(command, "not confirmed; nothing was removed")
        removals = Removals(dry_run=False)
        await cleanup.run(removals)
        return removals.summary()
