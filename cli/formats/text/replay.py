"""The answer of `ebb replay` as tables."""

from collections.abc import Iterator, Sequence

from rich.console import Console

from cli.answers import Replayed, VariantResult
from cli.terminal import Table, say


def write(answer: Replayed, out: Console) -> None:
    """Write the results of modes and policies, those of the sweep, and the recommendation."""
    say(out, f"{answer.source}: {answer.summary}", *answer.notes)
    if answer.recorded:
        figures = ", ".join(f"{figure.label} {figure.mean_text}" for figure in answer.recorded)
        say(out, f"nodes as recorded: {figures}")
    say(out, "", "mean over the seeds", *tables(answer.modes, out.width, spread=False))
    if len(answer.seeds) > 1:
        title = "minimum to maximum over the seeds"
        say(out, "", title, *tables(answer.modes, out.width, spread=True))
    if answer.points:
        say(
            out,
            "",
            "sweep (* every variant that is better in cost or Pending time is worse in the other)",
            _sweep(answer.points),
        )
    say(out, "")
    chosen = answer.recommended
    if chosen is None:
        say(
            out,
            "recommended: none; in each variant of Ebb pods were evicted, or Pending because of a "
            "mark",
        )
        return
    say(out, f"recommended: {chosen.name}", f"because: {chosen.why}")


def tables(
    variants: Sequence[VariantResult], width: int, *, spread: bool
) -> Iterator[Table | str]:
    """Yield tables of the variants, each with as many columns as fit, separated by empty lines.

    *width*: of the terminal in characters. *spread*: show the range over the seeds, not the mean.
    """
    rest = variants
    while rest:
        count = len(rest)
        while count > 1 and _table(rest[:count], spread=spread).width > width:
            count -= 1
        yield from ("",) if rest is not variants else ()
        yield _table(rest[:count], spread=spread)
        rest = rest[count:]


def _table(variants: Sequence[VariantResult], *, spread: bool) -> Table:
    labels = [figure.label for figure in variants[0].figures]
    columns = [
        [figure.range_text if spread else figure.mean_text for figure in variant.figures]
        for variant in variants
    ]
    rows = ([label, *cells] for label, *cells in zip(labels, *columns, strict=True))
    return Table("", *(variant.name for variant in variants), rows=rows)


def _sweep(points: Sequence[VariantResult]) -> Table:
    paths = [path for path, _ in points[0].settings]
    labels = [figure.label for figure in points[0].figures]
    return Table("", *paths, *labels, rows=_points(points))


def _points(points: Sequence[VariantResult]) -> Iterator[list[str]]:
    for variant in points:
        values = [value for _, value in variant.settings]
        yield [
            "*" if variant.best else "",
            *values,
            *(figure.mean_text for figure in variant.figures),
        ]
