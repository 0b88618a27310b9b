"""Write the table and the example of docs/doctor.md: `python -m tests.support.doctor_page`."""

import io
from pathlib import Path
from typing import Final

from rich.console import Console

from cli.doctor.checks import CHECKS, diagnose
from cli.formats.text import doctor
from tests.support.pages import with_part
from tests.support.setup_cluster import SetupCluster

PAGE: Final = Path(__file__).parents[2] / "docs" / "doctor.md"
HEAD: Final = "| check | question | otherwise |\n|---|---|---|\n"
END: Final = "\n\n"
EXAMPLE: Final = "without `--scheduler-config`:\n\n```console\n"
EXAMPLE_END: Final = "```\n"
COLUMNS: Final = 110


def table() -> str:
    """Return one row for each check."""
    return "\n".join(f"| `{one.code}` | {one.question} | {one.effect} |" for one in CHECKS)


def example() -> str:
    """Return the output for a cluster with one problem and one unknown state."""
    cluster = SetupCluster(scheduler=None, where="live cluster, ~/.kube/config")
    cluster.flags("--scale-down-unneeded-time=2m", "--scale-down-delay-after-add=2m")
    out = io.StringIO()
    doctor.write(diagnose(cluster.facts()), Console(file=out, width=COLUMNS, highlight=False))
    lines = (line.rstrip() for line in out.getvalue().splitlines())
    return "".join(f"{line}\n" for line in ("$ ebb doctor", *lines))


def written(page: str) -> str:
    """Return the page with the current table and the current example."""
    with_table = with_part(page, HEAD, table(), END)
    return with_part(with_table, EXAMPLE, example(), EXAMPLE_END)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
