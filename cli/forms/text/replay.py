"""A replay as tables."""

from collections.abc import Iterator, Sequence

from rich.console import Console

from cli.answers import Replayed, VariantResult
from cli.terminal import Table, say


def write(answer: Replayed, out: Console) -> None:
    """Write it: the modes and rules, their range over the seeds, the sweep, what to choose."""
    say(out, f"{answer.source}: {answer.told}", *answer.notes)
    if answer.really:
        told = ", ".join(f"{one.label} {one.middle}" for one in answer.really)
        say(out, f"the nodes as they stood: {told}")
    say(out, "", "mean over the seeds", *tables(answer.modes, out.width, spread=False))
    if len(answer.seeds) > 1:
        title = "least and most over the seeds"
        say(out, "", title, *tables(answer.modes, out.width, spread=True))
    if answer.points:
        say(out, "", "the sweep; * nothing is better in cost and waits", _sweep(answer.points))
    say(out, "")
    chosen = answer.recommended
    if chosen is None:
        say(out, "recommended: none; under each pods were evicted, or waited for a mark")
        return
    say(out, f"recommended: {chosen.name}", f"because: {chosen.why}")


def tables(ways: Sequence[VariantResult], width: int, *, spread: bool) -> Iterator[Table | str]:
    """Yield all ways in blocks, each of as many as fit side by side, empty lines between them."""
    rest = ways
    while rest:
        count = len(rest)
        while count > 1 and _table(rest[:count], spread=spread).width > width:
            count -= 1
        yield from ("",) if rest is not ways else ()
        yield _table(rest[:count], spread=spread)
        rest = rest[count:]


def _table(ways: Sequence[VariantResult], *, spread: bool) -> Table:
    labels = [one.label for one in ways[0].figures]
    columns = [[one.range if spread else one.middle for one in way.figures] for way in ways]
    rows = ([label, *cells] for label, *cells in zip(labels, *columns, strict=True))
    return Table("", *(way.name for way in ways), rows=rows)


def _sweep(points: Sequence[VariantResult]) -> Table:
    paths = [path for path, _ in points[0].settings]
    labels = [one.label for one in points[0].figures]
    return Table("", *paths, *labels, rows=_points(points))


def _points(points: Sequence[VariantResult]) -> Iterator[list[str]]:
    for way in points:
        values = [value for _, value in way.settings]
        yield ["*" if way.best else "", *values, *(one.middle for one in way.figures)]
