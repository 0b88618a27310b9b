"""The pictures of the documentation are current, as far as that does not depend on the machine."""

import struct
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import (
    dashboard_picture,
    explanation_pictures,
    page_picture,
    terminal_pictures,
)
from tests.support.browser import needs_chromium

PNG_BYTES_MIN = 20_000
"""An empty page would have fewer bytes."""
DASHBOARD_LINES_MIN = 30


DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("source", [terminal_pictures, explanation_pictures])
def test_svg_pictures_are_up_to_date(source: ModuleType) -> None:
    for name, drawn in source.pictures().items():
        assert (DOCS / name).read_text("utf-8") == drawn, "make fix writes it anew"
        assert drawn.count("://") == 1, "only the namespace of SVG: the picture loads nothing"


# The pixels of fonts depend on the machine, so PNGs are not compared with those in docs/.
@needs_chromium
def test_picture_of_page_shows_state(tmp_path: Path) -> None:
    drawn = tmp_path / "page.png"
    page_picture.write(drawn)
    width, height = size_of(drawn)
    assert width == page_picture.SIZE[0]
    assert height > page_picture.SIZE[1], "the whole page"


@pytest.mark.nightly  # it simulates a day, and Prometheus reads it
@pytest.mark.skipif(
    dashboard_picture.PROMETHEUS is None, reason="prometheus is missing; `make promtool`"
)
def test_picture_of_dashboard_has_lines(tmp_path: Path) -> None:
    drawn = tmp_path / "dashboard.png"
    assert dashboard_picture.write(drawn) >= DASHBOARD_LINES_MIN
    assert size_of(drawn)[0] == dashboard_picture.INCHES * dashboard_picture.DPI


def size_of(picture: Path) -> tuple[int, int]:
    """Return width and height of a PNG that is not empty."""
    content = picture.read_bytes()
    assert len(content) > PNG_BYTES_MIN
    width, height = struct.unpack(">II", content[16:24])
    return width, height
