"""Read the cluster that the command line selects: a live one, or dumps (files with objects)."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from cli.input.cluster_input import ClusterInput, Installation, report_unreadable
from core.config.document import built_in
from core.edge import files
from core.edge.decode.dump import COMMAND, from_dumps
from core.edge.decode.dump_time import DumpTime
from core.edge.kube.names import NAMESPACE
from core.model.errors import InvalidInputError
from core.surge.facts import with_moves
from core.surge.records import MoveRecords

IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
"""Environment variable that every container in a cluster has."""
FILE: Final = click.Path(allow_dash=True)
"""Path that shells complete; whether the file exists is checked when it is read."""
OR_A_DUMP: Final = f"; or read a dump with --from-file, as `{COMMAND}` writes it"
WHERE: Final = ("from_file", "kubeconfig", "context")
"""Options that become arguments of `read`."""
Environment = Mapping[str, str]
Command = Callable[..., Any]


def options(command: Command) -> Command:
    """Add the options that select the cluster and the configuration.

    The command receives a ClusterInput. The value of --policy, if the command has this option and
    it is given, replaces the configured policy.
    """

    @click.pass_obj
    @wraps(command)
    def wrapped(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 by option
        where = {name: given.pop(name) for name in WHERE}
        namespace, path = given.pop("ebb_namespace"), given.pop("config")
        policy = given.pop("policy", None)
        # Read only once: the file may be a pipe.
        config = files.read_config(path, policy) if path else None
        installation = Installation(namespace, config, policy)
        cluster_input = read(environment, **where, installation=installation)
        if path:
            cluster_input = replace(cluster_input, config_from=path)
        command(cluster_input, **given)

    help_text = f"a dump written by `{COMMAND}`, plain or gzipped; - is standard input; repeatable"
    from_file = click.option(
        "--from-file", multiple=True, type=FILE, metavar="FILE", help=help_text
    )
    return from_file(live_options(installed(wrapped)))


def live_options(command: Command) -> Command:
    """Add the options of a command that needs a live cluster."""
    for name, metavar, help_text in (
        (
            "--config",
            "FILE",
            "an EbbConfiguration in YAML; default: the one that runs in the cluster, or built-in",
        ),
        ("--context", "NAME", "context of the kubeconfig; default: its current context"),
        (
            "--kubeconfig",
            "FILE",
            "read a live cluster (default: $KUBECONFIG, ~/.kube/config, or in-cluster access)",
        ),
    ):
        kind = FILE if metavar == "FILE" else None
        command = click.option(name, type=kind, metavar=metavar, help=help_text)(command)
    return command


def installed(command: Command) -> Command:
    """Add the option that names the namespace of Ebb."""
    help_text = f"namespace of Ebb; default {NAMESPACE}"
    return click.option("--ebb-namespace", default=NAMESPACE, metavar="NAME", help=help_text)(
        command
    )


def read(
    environment: Environment,
    *,
    from_file: Sequence[str],
    kubeconfig: str | None,
    context: str | None,
    installation: Installation,
) -> ClusterInput:
    """Read the cluster that the command line selects.

    Raises: EbbError (any subclass); UsageError for options that contradict each other.
    """
    live_only = [f"--{name}" for name, given in
                 (("kubeconfig", kubeconfig), ("context", context)) if given]  # fmt: skip
    if from_file and live_only:
        raise click.UsageError(f"{live_only[0]}: not allowed with --from-file")
    if from_file:
        return _read_dumps(from_file, installation)
    path = kubeconfig_of(kubeconfig, environment, OR_A_DUMP)
    # Importing the client takes longer than making a plan.
    import asyncio  # noqa: PLC0415

    from cli.input import live  # noqa: PLC0415

    return asyncio.run(live.read(path, context, installation, sys.stderr))


def _read_dumps(named: Sequence[str], installation: Installation) -> ClusterInput:
    config = installation.config or built_in(installation.policy)
    named_dumps = [(files.named(path), files.read_dump(path)) for path in named]
    unreadable: list[str] = []
    time = DumpTime()
    cluster, kinds, surge = from_dumps(named_dumps, config.read_options, unreadable, time)
    if not config.surges:
        surge = None
    if surge is not None:
        none = MoveRecords()
        cluster = with_moves(cluster, surge, none, none, installation.namespace)
    report_unreadable(unreadable, sys.stderr)
    where = ", ".join(name for name, _ in named_dumps)
    return ClusterInput(
        cluster=cluster,
        config=config,
        where=where,
        kinds=kinds,
        dump_time=time,
        namespace=installation.namespace,
        surge_objects=surge,
    )


def kubeconfig_of(
    given: str | None, environment: Environment, alternatives: str = ""
) -> str | None:
    """Return the kubeconfig path, or several paths as in $KUBECONFIG; None for in-cluster access.

    *alternatives* is text about alternatives for the error message.
    Raises: InvalidInputError if there is no kubeconfig and no in-cluster access.
    """
    if named := given or environment.get("KUBECONFIG", ""):
        return named
    default_path = Path(environment.get("HOME", "/nowhere"), ".kube", "config")
    if default_path.is_file():
        return str(default_path)
    if environment.get(IN_CLUSTER):
        return None
    raise InvalidInputError(
        "no cluster",
        f"there is no --kubeconfig, no $KUBECONFIG, no {default_path} and no in-cluster access"
        f"{alternatives}",
    )
