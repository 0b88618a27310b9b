"""`ebb explain`: why nodes are removable or not, where pods can run."""

from typing import TYPE_CHECKING

import click

from cli import output
from cli.input import source
from cli.input.subjects import NODE, Subjects, complete_subjects, subjects
from cli.usage import examples, program_name

if TYPE_CHECKING:  # help must be fast
    from cli.answers import Explained
    from cli.input.cluster_input import ClusterInput


@click.command(
    "explain",
    epilog=examples(
        "explain node worker-1",
        "explain node/worker-1 node/worker-2 -o json",
        "explain pod web-0 -n shop",
        f"plan -o name | xargs {program_name()} explain",
    ),
)
@click.argument(
    "named",
    metavar="TYPE NAME...",
    nargs=-1,
    required=True,
    callback=subjects,
    shell_complete=complete_subjects,
)
@source.options
@click.option("-n", "--namespace", metavar="NAME", help="namespace of the pods")
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="find pods by their names in all namespaces"
)
@output.option(output.EXPLAINED)
def command(
    cluster_input: "ClusterInput",
    /,
    *,
    named: Subjects,
    namespace: str | None,
    all_namespaces: bool,
    form: "output.Format[Explained]",
) -> None:
    """Explain why nodes are removable or not, or where pods can run; read-only.

    TYPE is node or pod; TYPE/NAME works too. A pod is [NAMESPACE/]NAME.
    """
    from cli import explanations  # noqa: PLC0415 the engine is slow to import

    if named.type == NODE:
        answer = explanations.nodes(cluster_input, named.names)
    else:
        answer = explanations.pods(
            cluster_input, named.names, namespace, all_namespaces=all_namespaces
        )
    output.print_answer(answer, form)
