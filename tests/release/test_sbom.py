import json
from importlib.metadata import version

from tests.release.__main__ import LOCK, ROOT
from tests.release.sbom import sbom
from tests.test_house_rules import LOCKED

EPOCH_SECONDS = 1_700_000_000
SAMPLE = f"""\
click=={version("click")} \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
    # via kube-ebb (pyproject.toml)
cffi==0.0.1 ; platform_python_implementation != "PyPy" \\
    --hash=sha256:{"c" * 64}
    # via cryptography
"""


def test_sbom_lists_packages_with_hashes_and_licenses() -> None:
    document = json.loads(sbom("kube-ebb", "0.1.0", SAMPLE, EPOCH_SECONDS))
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert document["metadata"]["component"]["purl"] == "pkg:pypi/kube-ebb@0.1.0"
    click, cffi = document["components"]
    assert click["name"] == "click"
    assert click["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert [one["content"] for one in click["externalReferences"][0]["hashes"]] == [
        "a" * 64,
        "b" * 64,
    ]
    assert (cffi["version"], cffi["purl"]) == ("0.0.1", "pkg:pypi/cffi@0.0.1")
    assert "licenses" not in cffi, "another version is installed"


def test_sbom_has_all_locked_packages() -> None:
    lock = (ROOT / LOCK).read_text("utf-8")
    document = json.loads(sbom("kube-ebb", "0.1.0", lock, EPOCH_SECONDS))
    pinned = [line for line in lock.splitlines() if LOCKED.fullmatch(line) and "==" in line]
    assert len(document["components"]) == len(pinned)
    hashes = [
        digest
        for component in document["components"]
        for reference in component["externalReferences"]
        for digest in reference["hashes"]
    ]
    assert len(hashes) == lock.count("--hash=sha256:")


def test_sbom_is_same_for_same_lock() -> None:
    first = sbom("kube-ebb", "0.1.0", SAMPLE, EPOCH_SECONDS)
    assert first == sbom("kube-ebb", "0.1.0", SAMPLE, EPOCH_SECONDS)
