"""Write the table of flags in docs/install-reference.md: `python -m tests.support.flags_page`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import controller.__main__
import extender.__main__
import webhook.__main__
from core.setting_types.structure import CONTROLLER, EXTENDER, WEBHOOK
from runtime.program import LOG_LEVEL, Flag
from tests.support.pages import with_part

PAGE: Final = Path(__file__).parents[2] / "docs" / "install-reference.md"
PROGRAMS: Final[Mapping[str, tuple[Flag, ...]]] = {
    CONTROLLER: controller.__main__.FLAGS,
    WEBHOOK: webhook.__main__.FLAGS,
    EXTENDER: extender.__main__.FLAGS,
}
"""Flags of each program beside `--config` and `--kubeconfig`."""
HEAD: Final = "| program | flag | default | meaning |\n|---|---|---|---|\n"
END: Final = "\n\n"


def table() -> str:
    """Return one row for each flag."""
    return "\n".join(_rows())


def _rows() -> Iterator[str]:
    every = {f"`{name}`": flags for name, flags in PROGRAMS.items()}
    for name, flags in {**every, "each": (LOG_LEVEL,)}.items():
        for flag in flags:
            default = flag.format.write(flag.default)
            cells = (name, f"`{flag.name}`", f"`{default}`", flag.meaning)
            yield f"| {' | '.join(cells)} |"


def written(page: str) -> str:
    """Return the page with the current table."""
    return with_part(page, HEAD, table(), END)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
