"""Nodes and pods that a command line names, as `TYPE NAME` or `TYPE/NAME`."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

NODE: Final = "node"
POD: Final = "pod"
TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys((NODE, "nodes", "no"), NODE),
    **dict.fromkeys((POD, "pods", "po"), POD),
}
"""Type of the objects, by the names that kubectl has for it."""
ALLOWED: Final = "node NAME..., pod [NAMESPACE/]NAME..., node/NAME... or pod/[NAMESPACE/]NAME..."


class Subjects(NamedTuple):
    """Objects of one type."""

    type: str
    names: Sequence[str]


def subjects(ctx: click.Context, _: click.Parameter, words: Sequence[str]) -> object:
    """Parse words such as `node a b` or `node/a node/b`. Raises: UsageError."""
    if ctx.resilient_parsing:  # a shell completes the words
        return words
    if words[0] in TYPES:
        if len(words) == 1:
            raise click.UsageError(f"Missing argument 'NAME'; allowed: {ALLOWED}")
        return Subjects(TYPES[words[0]], words[1:])
    split = [word.partition("/") for word in words]
    for word, (given, _slash, name) in zip(words, split, strict=True):
        if given not in TYPES or not name:
            raise click.UsageError(f"{word!r:.80}; allowed: {ALLOWED}")
    types = {TYPES[given] for given, _, _ in split}
    if len(types) > 1:
        raise click.UsageError("name either nodes or pods, not both")
    return Subjects(types.pop(), [name for _, _, name in split])


def node_names(_: click.Context, __: click.Parameter, words: Sequence[str]) -> Sequence[str]:
    """Return the names of nodes that may be given as node/NAME."""
    split = (word.partition("/") for word in words)
    return [
        name if name and TYPES.get(given) == NODE else given + slash + name
        for given, slash, name in split
    ]


def complete_subjects(
    ctx: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Complete types, and the names of nodes and pods."""
    before = ctx.params.get(parameter.name or "") or ()
    given, slash, name = begun.partition("/")
    if before and before[0] in TYPES:
        return _completed(ctx, TYPES[before[0]], "", begun)
    if slash and given in TYPES:
        return _completed(ctx, TYPES[given], f"{given}/", name)
    return [CompletionItem(one) for one in (NODE, POD) if one.startswith(begun) and not before]


def complete_nodes(ctx: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the names of nodes."""
    return _completed(ctx, NODE, "", begun)


def _completed(ctx: click.Context, of_type: str, prefix: str, begun: str) -> list[CompletionItem]:
    from cli.input import completion  # noqa: PLC0415 rarely needed

    names = completion.names(ctx, of_type, begun)
    return [CompletionItem(f"{prefix}{name}") for name in names]
