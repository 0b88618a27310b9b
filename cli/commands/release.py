"""`ebb release`: remove everything that Ebb has written; the only command that writes."""

from collections import Counter
from collections.abc import Sequence

import click

from cli.input import source
from core.edge import files
from core.model.errors import InvalidInputError
from core.model.humanize import plural


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
@click.option("--dry-run", is_flag=True, help="only print what would be removed")
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
    dry_run: bool,
    kubeconfig: str | None,
    context: str | None,
    config: str | None,
    ebb_namespace: str,
) -> None:
    """Remove what Ebb has written on nodes and pods, and nothing else.

    A running controller in mode enforce marks nodes again: set mode: observe first, or uninstall.
    """
    if bool(nodes) == everything:
        raise InvalidInputError("release", "name the nodes, or use --all")
    if taint_key is not None and not everything:
        raise InvalidInputError(
            "release", "--taint-key needs --all, because no taint with this key may remain"
        )
    configuration = files.read_config(config)
    path = source.kubeconfig_of(kubeconfig, environment)
    # The client's packages are slow to import.
    import asyncio  # noqa: PLC0415

    from cli import release  # noqa: PLC0415
    from core.edge.kube.client import Client  # noqa: PLC0415

    would = "would be released" if dry_run else "released"

    told: Counter[str] = Counter()

    def tell(kind: str, name: str, what: str) -> None:
        print(f"{kind} {name}  {would}: {what}", flush=True)
        told[kind] += 1

    names = None if everything else frozenset(nodes)
    connecting = Client.connect(path, context)
    request = release.Request(names, taint_key, dry_run=dry_run)
    sweeping = release.release(connecting, configuration, tell, ebb_namespace, request)
    asyncio.run(sweeping)
    print(f"{plural(told['node'], 'node')} and {plural(told['pod'], 'pod')} {would}")
