"""What every benchmark needs: the machine's factor, and a table."""

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

LOOP_SECONDS = 0.009
"""An empty loop of a million on the machine that the budgets were set on."""


def factor() -> float:
    """Return K: how much slower this machine is; the best of five."""

    def loop() -> float:
        start = time.perf_counter()
        for _ in range(10**6):
            pass
        return time.perf_counter() - start

    return min(loop() for _ in range(5)) / LOOP_SECONDS


def resident_mib() -> float:
    """Return this process's resident memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print an aligned table; the first two columns left."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200).print(table)
