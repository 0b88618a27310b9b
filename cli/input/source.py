"""Which cluster a command looks at: one that answers, or dumps of one."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from cli.input.cluster_input import ClusterInput, tell_refused
from controller.names import LEASE
from core.config.settings import Config
from core.edge import files
from core.edge.decode.dump import COMMAND, from_dumps
from core.edge.decode.dump_time import DumpTime
from core.edge.kube.names import NAMESPACE
from core.model.errors import InvalidInputError

IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
"""A variable that every container of a pod has."""
FILE: Final = click.Path(allow_dash=True)
"""Shells complete it; whether it is there is seen when it is read."""
OR_A_DUMP: Final = f"; or give --from-file a dump, as `{COMMAND}` writes it"
WHERE: Final = ("from_file", "kubeconfig", "context")
"""The options of `read`."""
Environment = Mapping[str, str]
Command = Callable[..., Any]


def options(command: Command, *, leader: bool = False) -> Command:
    """Add the options that say which cluster, and by which configuration it is judged.

    The command is given what is Found, judged by its own option --policy if it has one and that
    is given. *leader*: of a live cluster also who runs the engine.
    """

    @click.pass_obj
    @wraps(command)
    def looking(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 by option
        where = {name: given.pop(name) for name in WHERE}
        namespace = given.pop("namespace", NAMESPACE)
        config_from = given.pop("config")
        # Once: it may be a pipe.
        config = files.read_config(config_from, given.pop("policy", None))
        found = read(environment, **where, config=config, led_from=namespace if leader else None)
        command(replace(found, namespace=namespace, config_from=config_from), **given)

    told = f"a dump, as `{COMMAND}` writes it: plain, gzipped, or - ; repeat it for several"
    from_file = click.option("--from-file", multiple=True, type=FILE, metavar="FILE", help=told)
    return from_file(live_options(looking))


def live_options(command: Command) -> Command:
    """Add the options of a command that needs a cluster that answers."""
    for name, metavar, told in (
        ("--config", "FILE", "an EbbConfiguration, as YAML; default: built in"),
        ("--context", "NAME", "the kubeconfig's context; default: its current one"),
        (
            "--kubeconfig",
            "FILE",
            "ask a live cluster (default: $KUBECONFIG, ~/.kube/config, or the pod's own)",
        ),
    ):
        kind = FILE if metavar == "FILE" else None
        command = click.option(name, type=kind, metavar=metavar, help=told)(command)
    return command


def installed(command: Command) -> Command:
    """Add the option that says where Ebb is."""
    told = f"where Ebb is installed; default {NAMESPACE}"
    return click.option("--namespace", default=NAMESPACE, metavar="NAME", help=told)(command)


def read(
    environment: Environment,
    *,
    from_file: Sequence[str],
    kubeconfig: str | None,
    context: str | None,
    config: Config,
    led_from: str | None,
) -> ClusterInput:
    """Read the cluster that the command line names, and who runs the engine.

    *config*: what it is to be judged by. *led_from*: in which namespace a live one's Lease is;
    None: it is not asked for.

    Raises: EbbError in one of its forms, UsageError for options that contradict each other.
    """
    live_only = [f"--{name}" for name, given in
                 (("kubeconfig", kubeconfig), ("context", context)) if given]  # fmt: skip
    if from_file and live_only:
        raise click.UsageError(f"{live_only[0]}: not allowed with --from-file")
    if from_file:
        return _dumped(from_file, config)
    path = kubeconfig_of(kubeconfig, environment, OR_A_DUMP)
    # The client's packages take longer than a whole plan.
    import asyncio  # noqa: PLC0415

    from cli.input import live  # noqa: PLC0415

    lease = None if led_from is None else (led_from, LEASE)
    cluster, leader = asyncio.run(live.read(path, context, config, lease, sys.stderr))
    return ClusterInput(
        cluster=cluster,
        config=config,
        where=f"live, {path or 'as a pod of the cluster'}"
        + (f", context {context}" if context else ""),
        leader=leader,
    )


def _dumped(paths: Sequence[str], config: Config) -> ClusterInput:
    dumps = [(files.named(path), files.read_dump(path)) for path in paths]
    refused: list[str] = []
    time = DumpTime()
    cluster, kinds = from_dumps(dumps, config.schedulers, refused, time)
    tell_refused(refused, sys.stderr)
    where = ", ".join(name for name, _ in dumps)
    return ClusterInput(
        cluster=cluster,
        config=config,
        where=where,
        kinds=kinds,
        dump_time=time,
    )


def kubeconfig_of(given: str | None, environment: Environment, otherwise: str = "") -> str | None:
    """Return the kubeconfig to use, or several as $KUBECONFIG has them; None: that of the pod.

    *otherwise*: what else a person can do where there is none.
    Raises: InvalidInputError when there is nothing to go by.
    """
    if named := given or environment.get("KUBECONFIG", ""):
        return named
    usual = Path(environment.get("HOME", "/nowhere"), ".kube", "config")
    if usual.is_file():
        return str(usual)
    if environment.get(IN_CLUSTER):
        return None
    raise InvalidInputError(
        "no cluster to look at",
        f"there is no --kubeconfig, no $KUBECONFIG and no {usual}, and this is no pod{otherwise}",
    )
