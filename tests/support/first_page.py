"""Write docs/configuration.md: `python -m tests.support.first_page`."""

from pathlib import Path
from typing import Final

from core.config.page import first_page

PAGE: Final = Path(__file__).parents[2] / "docs" / "configuration.md"

if __name__ == "__main__":
    PAGE.write_text(first_page(), "utf-8")
