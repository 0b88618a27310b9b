"""Where commands print: colour and width of a terminal if there is one, else plain and wide."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, zip_longest
from textwrap import wrap
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

PIPE_WIDTH: Final = 10_000
"""A pipe has no width: rows stay whole, so that grep and awk find what they look for."""
GAP: Final = "  "
"""Between two columns."""
TEXT_CHARS_MIN: Final = 24
"""A table's last column is no narrower, be the others as wide as they are."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave a reader's going to whoever started the command; rich would exit with 1."""
        raise BrokenPipeError


def console() -> Console:
    """Return a console on standard output."""
    plain = not sys.stdout.isatty()
    return _Console(
        force_terminal=False if plain else None,
        width=PIPE_WIDTH if plain else None,
        no_color=plain or None,
        soft_wrap=plain,
        highlight=False,
        emoji=False,
        markup=False,
    )


def written(write: Callable[[Console], None]) -> str:
    """Return what *write* says: with colour for a terminal, without for a pipe."""
    out = console()
    with out.capture() as captured:
        write(out)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


class Table:
    """Rows without lines; no word of any cell is ever broken, so names can be copied.

    Columns of text give way where a terminal is too narrow; where that is not enough the table
    becomes wider than the terminal.
    """

    def __init__(
        self,
        *headings: str,
        rows: Iterable[Sequence[str]],
        left: Sequence[int] = (0,),
        names_above: bool = False,
    ) -> None:
        """Make it: the columns *left* are texts, the others numbers.

        With *names_above* the first cell stands above its row in a terminal that is too narrow.
        """
        self._headings, self._left, self._names_above = headings, left, names_above
        self._rows = [tuple(map(printable, row)) for row in rows]

    @property
    def width(self) -> int:
        """Return how wide it is where it has all the room."""
        return _width(self._sizes())

    def lines(self, width: int) -> Iterator[str]:
        """Write it for a terminal of that width, the headings first if there are any."""
        above = self._names_above and self.width > width
        sizes = self._sizes()
        if above:
            sizes[0] = cell_len(self._headings[0])
        sizes = self._fitted(sizes, width)
        if any(self._headings):
            yield from self._row(self._headings, sizes)
        for cells in self._rows:
            if above:
                yield cells[0]
            yield from self._row(("", *cells[1:]) if above else cells, sizes)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for number, line in enumerate(self.lines(options.max_width)):
            bold = not number and any(self._headings)
            yield Text(line, style="bold" if bold else "", no_wrap=True)

    def _sizes(self) -> list[int]:
        rows = (self._headings, *self._rows)
        return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]

    def _fitted(self, sizes: list[int], width: int) -> list[int]:
        """Make the widest columns of text narrower, one step at a time, to their longest words."""
        floors = [self._floor(number, size) for number, size in enumerate(sizes)]
        while _width(sizes) > width and sizes != floors:
            able = (number for number, size in enumerate(sizes) if size > floors[number])
            sizes[max(able, key=sizes.__getitem__)] -= 1
        return sizes

    def _floor(self, number: int, size: int) -> int:
        if number not in self._left:
            return size
        if number == len(self._headings) - 1:
            return min(size, TEXT_CHARS_MIN)
        cells = (row[number] for row in (self._headings, *self._rows))
        longest = max(cell_len(word) for cell in cells for word in [*cell.split(), ""])
        return min(size, longest)  # names that stand above their rows need no room beside them

    def _row(self, cells: Sequence[str], sizes: Sequence[int]) -> Iterator[str]:
        for line in zip_longest(*map(_wrapped, cells, sizes), fillvalue=""):
            yield GAP.join(map(self._padded, count(), line, sizes)).rstrip()

    def _padded(self, number: int, cell: str, size: int) -> str:
        room = " " * (size - cell_len(cell))
        return cell + room if number in self._left else room + cell


def say(out: Console, *all_of: str | Table) -> None:
    """Print texts, wrapped between words alone, and tables; an empty text is an empty line."""
    for one in all_of:
        what = printable(one) if isinstance(one, str) else one
        if isinstance(what, str) and out.is_terminal:
            what = "\n".join(_wrapped(what, out.width))
        out.print(what, crop=False, overflow="ignore")


def _width(sizes: Sequence[int]) -> int:
    return sum(sizes) + len(GAP) * (len(sizes) - 1)


def _wrapped(text: str, size: int) -> list[str]:
    fits = cell_len(text) <= size
    return [text] if fits else wrap(text, size, break_long_words=False, break_on_hyphens=False)


def printable(text: str) -> str:
    """Escape what would steer the terminal: names come from files that anybody may have made."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
