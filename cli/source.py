"""Which cluster a command looks at: one that answers, or dumps of one."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cli.found import Found, tell_refused
from core.config.settings import Config
from core.edge import files
from core.edge.decode.dumps import HOW_TO, from_dumps
from core.errors import InvalidInputError

DUMP: Final = HOW_TO.removeprefix("make it with: ")
IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
"""A variable that every container of a pod has."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which cluster, and by which configuration it is judged."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--from-file",
        action="append",
        metavar="FILE",
        help=f"a dump, as `{DUMP}` writes it: plain, gzipped, or - ; repeat it for several",
    )
    where.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="ask a live cluster (default: $KUBECONFIG, ~/.kube/config, or the pod's own); "
        "nothing is written there",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="an EbbConfiguration, as YAML; default: built in"
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option that says for whom the answer is."""
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="table for people (the default), json for programs",
    )


def read(arguments: argparse.Namespace, *, lease: tuple[str, str] | None = None) -> Found:
    """Read the cluster that the command line names; of a live one *lease* too, if it is given.

    Raises: EbbError in one of its forms.
    """
    config = files.read_config(arguments.config) if arguments.config else Config()
    if arguments.from_file:
        dumps = [(_shown(path), files.read_dump(path)) for path in arguments.from_file]
        refused: list[str] = []
        cluster, kinds = from_dumps(dumps, refused)
        tell_refused(refused, sys.stderr)
        return Found(
            cluster=cluster,
            config=config,
            where=", ".join(name for name, _ in dumps),
            config_from=arguments.config,
            kinds=kinds,
        )
    kubeconfig = kubeconfig_of(arguments.kubeconfig, arguments.environment)
    from cli import live  # noqa: PLC0415 the client's packages take longer than a whole plan

    cluster, leader = live.read(kubeconfig, lease, sys.stderr)
    return Found(
        cluster=cluster,
        config=config,
        where=f"live, {kubeconfig or 'as a pod of the cluster'}",
        config_from=arguments.config,
        leader=leader,
    )


def kubeconfig_of(given: str | None, environment: Mapping[str, str]) -> str | None:
    """Return the kubeconfig to use, by kubectl's rules; None: that of the pod.

    Raises: InvalidInputError when there is nothing to go by.
    """
    named = given or environment.get("KUBECONFIG", "")
    if named:
        if given is None and ":" in named:
            raise InvalidInputError(
                "KUBECONFIG", "names several files; name the one to use with --kubeconfig"
            )
        return named
    usual = Path(environment.get("HOME", "/nowhere"), ".kube", "config")
    if usual.is_file():
        return str(usual)
    if environment.get(IN_CLUSTER):
        return None
    raise InvalidInputError(
        "no cluster to look at",
        f"there is no --kubeconfig, no $KUBECONFIG and no {usual}, and this is no pod; "
        f"or give --from-file a dump, as `{DUMP}` writes it",
    )


def _shown(path: str) -> str:
    return "standard input" if path == "-" else path
