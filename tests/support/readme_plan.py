"""Write the plan of an example cluster into README.md: `python -m tests.support.readme_plan`."""

import io
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

import orjson

from cli.__main__ import main
from tests.platforms.objects import App, Json, Machine, node, replicas
from tests.support.pages import with_part

PAGE: Final = Path(__file__).parents[2] / "README.md"
NODES: Final = tuple(f"node-{number:02}" for number in range(1, 21))
FOUR_CORES: Final = Machine(cpu="4", memory="16Gi", capacity_cpu="4", capacity_memory="16Gi")
APPS: Final = ("api", "cart", "mail", "report", "search", "web")
HEADLINE_LINES: Final = 6
START: Final = "each at 60%, the output is:\n\n```text\n"
END: Final = "```"


def items() -> Iterator[Json]:
    """Yield twenty nodes of four cores, with twelve pods of 200m, so 60%, on each of them."""
    yield from (node(name, FOUR_CORES) for name in NODES)
    for name in APPS:
        yield from replicas(
            App(name=name, namespace="shop", asks=[("200m", "819Mi")]), *NODES, *NODES
        )


def plan(*options: str) -> str:
    """Return what `ebb plan` prints for the example cluster."""
    with tempfile.NamedTemporaryFile(suffix=".json") as dump:
        dump.write(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": list(items())}))
        dump.flush()
        output = io.StringIO()
        with redirect_stdout(output), redirect_stderr(io.StringIO()):
            main(["plan", "--from-file", dump.name, *options])
    return output.getvalue()


def shown() -> str:
    """Return the first lines of the plan, and the table of removable nodes."""
    printed = plan()
    headline = "\n".join(printed.splitlines()[:HEADLINE_LINES])
    table = printed[printed.index("\norder") :].lstrip().partition("\n\n")[0]
    return f"{headline}\n...\n{table}\n"


def written(page: str) -> str:
    """Return the page with the current plan."""
    return with_part(page, START, shown(), END)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
