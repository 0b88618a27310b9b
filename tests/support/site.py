"""Build the documentation as a site with mkdocs: `python -m tests.support.site`.

The pages keep their folders, so that links between README.md and docs/ work as in the repository.
"""

import logging
import shutil
from pathlib import Path
from typing import Final

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT: Final = Path(__file__).parents[2]
SETTINGS: Final = ROOT / "mkdocs.yml"
FOLDER: Final = ROOT / "build"


def build_site(folder: Path = FOLDER) -> Path:
    """Build all pages, and return the folder of the site. Raises: mkdocs' Abort at a warning."""
    pages, site = folder / "pages", folder / "site"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages / "docs")
    for page in ROOT.glob("*.md"):
        shutil.copy(page, pages)
    build(load_config(str(SETTINGS), docs_dir=str(pages), site_dir=str(site)))
    return site


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    print(build_site())
