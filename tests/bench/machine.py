"""Helpers of all benchmarks: the factor of the machine, and a table."""

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

LOOP_SECONDS = 0.009
"""Duration of a million empty loops on the machine that the budgets refer to."""


def factor() -> float:
    """Return K, how much slower this machine is, as the best of five runs."""

    def loop() -> float:
        start = time.perf_counter()
        for _ in range(10**6):
            pass
        return time.perf_counter() - start

    return min(loop() for _ in range(5)) / LOOP_SECONDS


def resident_mib() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; the first two columns are left-aligned."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200).print(table)
