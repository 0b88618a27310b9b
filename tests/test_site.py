"""The documentation builds as a site without a warning."""

from pathlib import Path

import pytest

site = pytest.importorskip("tests.support.site", reason="mkdocs is not installed: make setup")


def test_site_builds_without_warning(tmp_path: Path) -> None:
    found = site.build_site(tmp_path)
    assert "Tutorial: remove a node" in (found / "docs/tutorial/index.html").read_text("utf-8")
