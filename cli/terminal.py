"""Terminal output: color and width of a terminal, or plain unlimited lines for a pipe."""

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import count, zip_longest
from textwrap import wrap
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from runtime.messages import printable

PIPE_WIDTH: Final = 10_000
"""Width without a terminal: rows are never wrapped, so that grep and awk find whole rows."""
GAP: Final = "  "
"""Space between two columns."""
TEXT_CHARS_MIN: Final = 24
"""Minimum width of the last column of a table."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError for `main` to handle; rich would exit with 1."""
        raise BrokenPipeError


def console() -> Console:
    """Return a console on standard output: with color for a terminal, plain for a pipe.

    Lines for a pipe are not wrapped.
    """
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


def render(write: Callable[[Console], None]) -> str:
    """Return the text that *write* prints: with color for a terminal, without for a pipe."""
    out = console()
    with out.capture() as captured:
        write(out)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


class Table:
    """A text table without borders; words are never broken, so that names can be copied.

    Text columns shrink in a narrow terminal, at most to their longest word. If that is not enough,
    the last column moves below each row. Only a name that is wider than the terminal makes the
    table wider.
    """

    def __init__(
        self,
        *headings: str,
        rows: Iterable[Sequence[str]],
        left: Sequence[int] = (0,),
        names_above: bool = False,
    ) -> None:
        """Create a table; columns with an index in *left* hold text, the others hold numbers.

        *headings*: empty texts for a table without headings. *names_above*: the first cell moves
        above its row if the terminal is too narrow.
        """
        self._headings, self._left, self._names_above = headings, left, names_above
        self._rows = [tuple(map(printable, row)) for row in rows]

    def without_headings(self) -> "Table":
        """Return the table without its headings; columns keep their order."""
        none = [""] * len(self._headings)
        return Table(*none, rows=self._rows, left=self._left, names_above=self._names_above)

    @property
    def width(self) -> int:
        """Return the width of the table in characters, without any wrapping."""
        return _width(self._sizes())

    def lines(self, width: int) -> Iterator[str]:
        """Yield the lines for a terminal of *width* characters, first the headings (if any)."""
        above = self._names_above and self.width > width
        sizes = self._sizes()
        if above:
            sizes[0] = cell_len(self._headings[0])
        sizes = self._fitted(sizes, width)
        if not above and self._needs_last_below(sizes, width):
            yield from self._lines_with_last_below(sizes[:-1], width)
            return
        if any(self._headings):
            yield from self._row(self._headings, sizes)
        for cells in self._rows:
            if above:
                yield cells[0]
            yield from self._row(("", *cells[1:]) if above else cells, sizes)

    def _needs_last_below(self, sizes: Sequence[int], width: int) -> bool:
        """Return whether the rows fit the terminal only if the last column moves below them.

        *sizes*: width of each column. A name in the last column may not fit there, or the column
        may be too narrow for text.
        """
        last = len(sizes) - 1
        if last not in self._left or not last or not any(self._headings):
            return False
        words = (word for row in self._rows for word in row[last].split())
        longest = max(map(cell_len, words), default=0)
        over = _width(sizes) > width >= _width(sizes[:-1])
        return (over or sizes[last] < longest) and longest <= width - len(GAP)

    def _lines_with_last_below(self, sizes: Sequence[int], width: int) -> Iterator[str]:
        *headings, below = self._headings
        yield from self._row((*headings, ""), (*sizes, 0))
        yield f"{GAP}{below}"
        for *cells, last in self._rows:
            yield from self._row((*cells, ""), (*sizes, 0))
            yield from (f"{GAP}{line}" for line in _wrapped(last, width - len(GAP)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for number, line in enumerate(self.lines(options.max_width)):
            bold = not number and any(self._headings)
            yield Text(line, style="bold" if bold else "", no_wrap=True)

    def _sizes(self) -> list[int]:
        rows = (self._headings, *self._rows)
        return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]

    def _fitted(self, sizes: list[int], width: int) -> list[int]:
        """Shrink *sizes*, the widths of the columns, until the rows fit *width*, and return them.

        The widest text column shrinks first, and each at most to its longest word. So the result
        may still be wider.
        """
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
        return min(size, longest)  # names above their rows need no column width

    def _row(self, cells: Sequence[str], sizes: Sequence[int]) -> Iterator[str]:
        for line in zip_longest(*map(_wrapped, cells, sizes), fillvalue=""):
            yield GAP.join(map(self._padded, count(), line, sizes)).rstrip()

    def _padded(self, number: int, cell: str, size: int) -> str:
        room = " " * (size - cell_len(cell))
        return cell + room if number in self._left else room + cell


def fitting(
    headings: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    *,
    numbers: Container[str],
    dropped_first: Sequence[str],
    width: int,
) -> tuple[Table, list[str]]:
    """Return a table for a terminal of *width* characters, and the names of columns left out.

    *rows* have a cell for each heading. *numbers*: columns that hold numbers. *dropped_first*:
    columns that may be left out, in this order. Before a column is left out, the first one moves
    above its row.
    """
    columns, left_out = list(headings), list[str]()
    droppable = [name for name in dropped_first if name in columns]
    while True:
        left = [number for number, name in enumerate(columns) if name not in numbers]
        shown = [[cells[name] for name in columns] for cells in rows]
        table = Table(*columns, rows=shown, left=left, names_above=True)
        if not droppable or max(map(len, table.lines(width)), default=0) <= width:
            return table, left_out
        left_out.append(droppable.pop(0))
        columns.remove(left_out[-1])


def say(out: Console, *parts: str | Table) -> None:
    """Print texts and tables; texts wrap between words, an empty text is a blank line."""
    for part in parts:
        text = printable(part) if isinstance(part, str) else part
        if isinstance(text, str) and out.is_terminal:
            text = "\n".join(_wrapped(text, out.width))
        out.print(text, crop=False, overflow="ignore")


def _width(sizes: Sequence[int]) -> int:
    return sum(sizes) + len(GAP) * (len(sizes) - 1)


def _wrapped(text: str, size: int) -> list[str]:
    fits = cell_len(text) <= size
    return [text] if fits else wrap(text, size, break_long_words=False, break_on_hyphens=False)
