"""Build the documentation as a site with mkdocs: `python -m tests.support.site`.

The pages keep their folders, so that links between README.md and docs/ work as in the repository.
The landing page is the start of README.md and some of its sections.
"""

import logging
import re
import shutil
from pathlib import Path
from typing import Final

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT: Final = Path(__file__).parents[2]
SETTINGS: Final = ROOT / "mkdocs.yml"
FOLDER: Final = ROOT / "build"
LANDING: Final = ("Look at your own cluster", "Documentation")
"""Sections of README.md on the landing page; pages of the site say more than the others."""


def build_site(folder: Path = FOLDER) -> Path:
    """Build all pages, and return the folder of the site. Raises: mkdocs' Abort at a warning."""
    pages, site = folder / "pages", folder / "site"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages / "docs")
    for page in ROOT.glob("*.md"):
        shutil.copy(page, pages)
    readme = pages / "README.md"
    readme.write_text(landing_page(readme.read_text("utf-8")), "utf-8")
    build(load_config(str(SETTINGS), docs_dir=str(pages), site_dir=str(site)))
    return site


def landing_page(readme: str) -> str:
    """Return the start of README.md and the sections of the landing page."""
    start, *sections = re.split(r"^(?=## )", readme, flags=re.MULTILINE)
    by_title = {section.partition("\n")[0].removeprefix("## "): section for section in sections}
    return start + "".join(by_title[title] for title in LANDING)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    print(build_site())
