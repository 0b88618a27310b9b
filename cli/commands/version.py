"""`ebb version`: show the versions of `ebb` and of the controller."""

from collections.abc import Mapping

import click

from cli.input import source
from cli.input.cluster_options import kubeconfig_of
from cli.usage import examples
from core.model.errors import EbbError
from kube.target import Overrides
from runtime.messages import printable
from runtime.version import NOT_INSTALLED, ebb_version

UNKNOWN = "(version unknown: run from source code that is not installed)"


def own_version() -> str:
    """Return the version of `ebb` as a line for people."""
    version = ebb_version()
    return f"ebb {UNKNOWN if version == NOT_INSTALLED else version}"


@click.command("version", epilog=examples("version", "version --context eu"))
@source.connection_options
@source.installed
@click.pass_obj
def command(
    environment: Mapping[str, str],
    /,
    *,
    kubeconfig: str | None,
    context: str | None,
    overrides: Overrides,
    ebb_namespace: str,
) -> None:
    """Show the versions of ebb and of the controller that leads in the cluster.

    `ebb --version` needs no cluster.
    """
    click.echo(own_version())
    try:
        path = kubeconfig_of(kubeconfig, environment)
        controller = _controller(path, context, overrides, ebb_namespace)
    except EbbError as fault:
        controller = f"unknown: {fault}"
    click.echo(f"controller {printable(controller)}")


def _controller(
    kubeconfig: str | None, context: str | None, overrides: Overrides, namespace: str
) -> str:
    """Return the version of the controller that leads, or why it is unknown. Raises: EbbError."""
    import asyncio  # noqa: PLC0415 help must be fast

    from cli.input.cluster_input import Installation, Running  # noqa: PLC0415
    from cli.input.live import Connecting  # noqa: PLC0415
    from cli.input.running import read_running  # noqa: PLC0415

    async def read() -> Running:
        async with await Connecting(kubeconfig, context, overrides).client() as client:
            running, _, _ = await read_running(client, Installation(namespace))
            return running

    running = asyncio.run(read())
    if running.report is not None:
        return f"{running.report.version} ({running.report.identity})"
    leader = running.leader
    no_lease = f"Lease {leader.lease}: {leader.problem}" if leader.problem else ""
    return f"unknown: {no_lease or '; '.join(running.problems) or 'no replica leads'}"
