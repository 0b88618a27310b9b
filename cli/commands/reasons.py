"""`ebb reasons`: explain reason codes; docs/reasons.md is its output."""

import difflib
from collections.abc import Sequence

import click

from cli import output
from cli.answers import Reasons
from cli.explain.reasons import REASONS
from cli.usage import examples
from core.model.errors import InvalidInputError


@click.command("reasons", epilog=examples("reasons", "reasons no-room headroom"))
@click.argument("codes", metavar="[CODE]...", nargs=-1)
@output.option(output.REASONS)
def command(codes: Sequence[str], form: output.Format[Reasons]) -> None:
    """Explain reason codes with their meaning and the cheapest fix; without CODE, all of them."""
    for code in codes:
        if code not in REASONS:
            near = difflib.get_close_matches(code, REASONS, n=1)
            meant = f"; did you mean {near[0]}?" if near else ";"
            raise InvalidInputError(
                f"reason {code}", f"unknown{meant} `ebb reasons` lists all codes"
            )
    if codes and form.name == "markdown":
        raise click.UsageError("-o markdown: prints all codes, so it takes no CODE")
    output.print_answer(Reasons(tuple(codes) or tuple(REASONS)), form)
