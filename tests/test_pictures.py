"""The pictures of the documentation are current, as far as that does not depend on the machine."""

import struct
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import explanation_pictures, page_picture, terminal_pictures
from tests.support.browser import needs_chromium

PNG_BYTES_MIN = 20_000
"""An empty page would have fewer bytes."""


DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("source", [terminal_pictures, explanation_pictures])
def test_svg_pictures_are_up_to_date(source: ModuleType) -> None:
    for name, drawn in source.pictures().items():
        assert (DOCS / name).read_text("utf-8") == drawn, "make fix writes it anew"
        assert drawn.count("://") == 1, "only the namespace of SVG: the picture loads nothing"


# The pixels of fonts depend on the machine, so docs/page.png is not compared.
@needs_chromium
def test_picture_of_page_shows_state(tmp_path: Path) -> None:
    drawn = tmp_path / "page.png"
    page_picture.write(drawn)
    content = drawn.read_bytes()
    assert struct.unpack(">II", content[16:24]) == page_picture.SIZE
    assert len(content) > PNG_BYTES_MIN
