"""The pictures of the documentation are current, as far as that does not depend on the machine."""

import struct
from pathlib import Path

import pytest

from tests.support import page_picture
from tests.support.browser import needs_chromium
from tests.support.terminal_pictures import DOCS, pictures

PNG_BYTES_MIN = 20_000
"""An empty page would have fewer bytes."""


@pytest.mark.parametrize("name", ["plan.svg", "top.svg"])
def test_picture_of_terminal_is_up_to_date(name: str) -> None:
    drawn = pictures()[name]
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
