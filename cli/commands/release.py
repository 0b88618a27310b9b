"""`ebb release`: remove everything that Ebb has written; the only command that writes."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from cli.input import source
from cli.terminal import printable
from core.model.errors import InvalidInputError
from core.model.humanize import plural
from kube.target import Overrides
from runtime import files

if TYPE_CHECKING:  # the packages of the client are slow to import
    from kube.target import Target


@click.command("release")
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="all nodes and pods, surge moves, and Ebb's own CapacityBuffers",
)
@click.option(
    "--taint-key",
    metavar="KEY",
    help="with --all: key of the taints to remove; also remove its record from the Lease",
)
@click.option(
    "--stop-controller",
    is_flag=True,
    help="with --all: first scale the controller to 0, and wait until nobody leads",
)
@click.option("--dry-run", is_flag=True, help="only print what would be removed")
@click.option("--yes", is_flag=True, help="do not ask; for scripts")
@source.live_options
@source.installed
@click.pass_obj
def command(  # noqa: PLR0913 one for each option
    environment: source.Environment,
    /,
    *,
    nodes: Sequence[str],
    everything: bool,
    taint_key: str | None,
    stop_controller: bool,
    dry_run: bool,
    yes: bool,
    kubeconfig: str | None,
    context: str | None,
    config: str | None,
    ebb_namespace: str,
    overrides: Overrides,
) -> None:
    """Remove what Ebb has written on nodes and pods, and nothing else.

    The command names the cluster, lists what it will remove, and asks.

    A running controller in mode enforce marks nodes again: set mode: observe first, uninstall, or
    use --stop-controller.
    """
    _check(nodes, everything=everything, taint_key=taint_key, stop_controller=stop_controller)
    configuration = files.read_config(config)
    path = source.kubeconfig_of(kubeconfig, environment)
    if not (dry_run or yes or (sys.stdin is not None and sys.stdin.isatty())):
        raise InvalidInputError(
            "release", "standard input is no terminal, so the command cannot ask; use --yes"
        )
    # The client's packages are slow to import.
    import asyncio  # noqa: PLC0415

    from cli import release  # noqa: PLC0415
    from kube.client import Client  # noqa: PLC0415
    from runtime.clock import SystemClock  # noqa: PLC0415

    progress = _Progress(dry_run=dry_run, yes=yes)
    names = None if everything else frozenset(nodes)
    actions = release.Actions(progress.connected, progress.passes, progress.tell)
    request = release.Request(names, taint_key, stop_controller)
    connecting = Client.connect(path, context, overrides=overrides)
    releasing = release.release(
        connecting, configuration, actions, ebb_namespace, request, SystemClock()
    )
    asyncio.run(releasing)
    print(progress.summary())


def _check(
    nodes: Sequence[str], *, everything: bool, taint_key: str | None, stop_controller: bool
) -> None:
    """Check options that depend on each other. Raises: InvalidInputError."""
    if bool(nodes) == everything:
        raise InvalidInputError("release", "name the nodes, or use --all")
    if taint_key is not None and not everything:
        raise InvalidInputError(
            "release", "--taint-key needs --all, because no taint with this key may remain"
        )
    if stop_controller and not everything:
        raise InvalidInputError(
            "release", "--stop-controller needs --all, because nothing maintains marks without it"
        )


class _Progress:
    """Ask for confirmation, then print each removal."""

    def __init__(self, *, dry_run: bool, yes: bool) -> None:
        self._dry_run, self._yes = dry_run, yes
        self._where = ""
        self._would = ""
        self._told: Counter[str] = Counter()

    def connected(self, target: "Target") -> None:
        """Name the cluster."""
        self._where = str(target)
        print(f"cluster {printable(self._where)}, {printable(target.server)}", flush=True)

    def passes(self) -> Iterator[bool]:
        """Yield True for a pass that only reports, and False for the pass that removes.

        Raises: InvalidInputError if the user does not agree.
        """
        if self._dry_run or not self._yes:
            yield self._begun(dry_run=True)
            if self._dry_run or not self._told:
                return
            if not click.confirm(f"Release these objects in {printable(self._where)}?", err=True):
                raise InvalidInputError("release", "not confirmed; nothing was removed")
        yield self._begun(dry_run=False)

    def _begun(self, *, dry_run: bool) -> bool:
        self._told.clear()
        self._would = "would be released" if dry_run else "released"
        return dry_run

    def tell(self, kind: str, name: str, what: str) -> None:
        """Print one removal."""
        print(f"{kind} {name}  {self._would}: {what}", flush=True)
        self._told[kind] += 1

    def summary(self) -> str:
        """Return how many objects were, or would be, released."""
        nodes, pods = plural(self._told["node"], "node"), plural(self._told["pod"], "pod")
        return f"{nodes} and {pods} {self._would}"
