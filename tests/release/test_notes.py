import pytest

from tests.release.errors import ReleaseError
from tests.release.notes import is_dated, notes, section

CHANGELOG = """\
# Changelog

## 0.2.0 (unreleased)

- News.

## 0.1.0 (2026-12-01)

The first version.

### Requirements

- Kubernetes.
"""


@pytest.mark.parametrize(
    ("version", "date", "text"),
    [
        ("0.2.0", "unreleased", "- News."),
        ("0.1.0", "2026-12-01", "The first version.\n\n### Requirements\n\n- Kubernetes."),
    ],
)
def test_section_is_that_of_version(version: str, date: str, text: str) -> None:
    assert section(CHANGELOG, version) == (date, text)


def test_section_is_missing_when_changelog_lacks_version() -> None:
    with pytest.raises(ReleaseError, match=r"CHANGELOG\.md: no section `## 0\.3\.0 \(DATE\)`"):
        section(CHANGELOG, "0.3.0")


def test_date_is_not_the_word_unreleased() -> None:
    assert is_dated("2026-12-01")
    assert not is_dated("unreleased")


def test_notes_contain_checksums_base_image_and_missing_files() -> None:
    text = notes("Text.", {"a.whl": "0" * 64}, "python@sha256:1", ["b.pex: no wheel"])
    assert text.startswith("Text.\n\n### Files\n")
    assert f"| `a.whl` | `{'0' * 64}` |\n" in text
    assert "Base image: `python@sha256:1`" in text
    assert "- b.pex: no wheel\n" in text
