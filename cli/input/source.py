"""Click options that select a cluster; `cli.input.reader` reads the cluster."""

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import click

from cli.input.cluster_options import ClusterOptions, Environment
from kube.target import NAMESPACE, Overrides

# Help must be fast, so this module imports neither settings nor decoders.

_DURATION: Final = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8}(?:\.\d{1,3})?)s?)?")
FILE: Final = click.Path(allow_dash=True)
"""Path that shells complete; whether the file exists is checked when it is read."""
WHERE: Final = (
    "from_file", "kubeconfig", "ebb_namespace", "config", "overrides",
)  # fmt: skip
"""Options that become fields of ClusterOptions with the same name."""
CONTEXT: Final = "context of the kubeconfig; default: the current context"
SEVERAL_CONTEXTS: Final = f"{CONTEXT}; repeatable, for several clusters"
SECTIONS: Final = {"--context": "contexts", "--cluster": "clusters", "--user": "users"}
"""Sections of the kubeconfig that have the names for an option."""
Command = Callable[..., Any]


def options(command: Command, *, setup: bool = False) -> Command:
    """Add the options that select one cluster and the configuration, such as --from-file.

    The command is called with a ClusterInput, for which the cluster is read. *setup*: also read
    the objects around Ebb that only `ebb doctor` checks. If the command has an option --policy,
    its value replaces the configured policy.
    """

    @click.pass_obj
    @wraps(command)
    def wrapped(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 by option
        from cli.input import reader  # noqa: PLC0415 settings and decoders are slow to import

        command(reader.read(environment, where_of(given, setup=setup)), **given)

    return _dump_option(live_options(installed(wrapped)))


def unread_options(command: Command, *, several: bool = False) -> Command:
    """Add the options that select a cluster and the configuration; the command reads the cluster.

    The command is called with the environment variables and a ClusterOptions. *several*: --context
    may be given several times.
    """

    @click.pass_obj
    @wraps(command)
    def wrapped(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 by option
        command(environment, where_of(given), **given)

    return _dump_option(live_options(installed(wrapped), several=several))


def where_of(given: dict[str, Any], *, setup: bool = False) -> ClusterOptions:
    """Remove the options that select clusters from *given*, and return them as ClusterOptions.

    *setup*: also read the objects around Ebb that only `ebb doctor` checks.
    """
    where = {name: given.pop(name) for name in WHERE}
    context = given.pop("context")
    contexts = context if isinstance(context, tuple) else (context,) if context else ()
    policy = given.pop("policy", None)
    every = tuple(dict.fromkeys(contexts))
    return ClusterOptions(**where, contexts=every, policy=policy, setup=setup)


def _dump_option(command: Command) -> Command:
    help_text = (
        "a dump: objects from `kubectl get KINDS -A -o json`, plain or gzipped; - is standard "
        "input; repeatable"
    )
    return click.option("--from-file", multiple=True, type=FILE, metavar="FILE", help=help_text)(
        command
    )


def options_with_setup(command: Command) -> Command:
    """Add the options that select one cluster and the configuration, for `ebb doctor`.

    The command is called with a ClusterInput that contains the objects around Ebb too, such as
    RBAC objects and the webhook's registration.
    """
    return options(command, setup=True)


def selection_options(command: Command) -> Command:
    """Add the options -l, -n and -A, which select nodes by labels and their pods' namespace.

    The command receives them as one argument `selection`.
    """

    @wraps(command)
    def wrapped(*values: Any, **given: Any) -> None:  # noqa: ANN401 by option
        from cli.nodes import Selection, selector  # noqa: PLC0415 slow to import

        labels, namespace = given.pop("selector"), given.pop("namespace")
        if given.pop("all_namespaces"):
            namespace = None
        requirements = () if labels is None else selector(labels)
        command(*values, selection=Selection(requirements, namespace), **given)

    for names, options in (
        (("-A", "--all-namespaces"), {"is_flag": True, "help": "all namespaces; the default"}),
        (
            ("-n", "--namespace"),
            {"metavar": "NAME", "help": "show only nodes that run pods of this namespace"},
        ),
        (
            ("-l", "--selector"),
            {"metavar": "LABELS", "help": "show only nodes that have these labels"},
        ),
    ):
        wrapped = click.option(*names, **options)(wrapped)
    return wrapped


def live_options(command: Command, *, several: bool = False) -> Command:
    """Add the option --config, and those for a live cluster as `connection_options`."""
    help_text = (
        "an EbbConfiguration in YAML; default: the configuration in the cluster, else the "
        "built-in defaults"
    )
    with_config = click.option("--config", type=FILE, metavar="FILE", help=help_text)(command)
    return connection_options(with_config, several=several)


def connection_options(command: Command, *, several: bool = False) -> Command:
    """Add the options for a live cluster, such as --kubeconfig, --context and --as.

    *several*: --context may be given several times. The command receives the options that replace
    parts of the kubeconfig as one argument `overrides`.
    """

    @wraps(command)
    def wrapped(*values: Any, **given: Any) -> None:  # noqa: ANN401 by option
        command(*values, overrides=_overrides(given), **given)

    for names, metavar, kind, help_text in (
        (
            ("--request-timeout",),
            "30s",
            _seconds,
            "timeout of each call to the API server; default: 15 s for most calls",
        ),
        (("--as-group", "as_groups"), "GROUP", None, "group to impersonate; repeatable"),
        (("--as", "as_user"), "USER", None, "user to impersonate"),
        (
            ("--user", "user_entry"),
            "NAME",
            None,
            "user of the kubeconfig; default: the user of the context",
        ),
        (
            ("--cluster", "cluster_entry"),
            "NAME",
            None,
            "cluster of the kubeconfig; default: the cluster of the context",
        ),
        (("--context",), "NAME", None, SEVERAL_CONTEXTS if several else CONTEXT),
        (
            ("--kubeconfig",),
            "FILE",
            FILE,
            "read a live cluster (default: $KUBECONFIG, ~/.kube/config, or in-cluster access)",
        ),
    ):
        multiple = "as_groups" in names or (several and names == ("--context",))
        completed = SECTIONS.get(names[0])
        option = click.option(
            *names,
            type=kind,
            metavar=metavar,
            multiple=multiple,
            help=help_text,
            shell_complete=_completing(completed) if completed else None,
        )
        wrapped = option(wrapped)
    return wrapped


def _overrides(given: dict[str, Any]) -> Overrides:
    """Remove the options that replace parts of the kubeconfig from *given*, and return them."""
    overrides = Overrides(
        given.pop("as_user"),
        given.pop("as_groups"),
        given.pop("request_timeout"),
        given.pop("cluster_entry"),
        given.pop("user_entry"),
    )
    if overrides.groups and overrides.user is None:
        raise click.UsageError("--as-group: needs --as")
    return overrides


def where_from(given: Mapping[str, Any]) -> ClusterOptions:
    """Return the options of an incomplete command line that select a cluster."""
    known = {"from_file": (), **given}
    return where_of({**known, "overrides": _overrides(known)})


def _completing(section: str) -> Callable[..., list[str]]:
    """Return the completion of a name in a section of the kubeconfig."""

    def complete(ctx: click.Context, _: click.Parameter, begun: str) -> list[str]:
        from cli.input import completion  # noqa: PLC0415 rarely needed

        return completion.entries(ctx, section, begun)

    return complete


def _seconds(text: str) -> float:
    """Return the seconds of a duration such as 1m30s; a number without a unit is seconds.

    Raises: BadParameter.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise click.BadParameter(f"{text!r:.80}; allowed: a duration such as 30s or 1m30s")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def installed(command: Command) -> Command:
    """Add the option --ebb-namespace, the namespace in which Ebb is installed."""
    help_text = f"namespace of Ebb; default {NAMESPACE}"
    return click.option("--ebb-namespace", default=NAMESPACE, metavar="NAME", help=help_text)(
        command
    )
