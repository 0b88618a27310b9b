import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

from tests.release.__main__ import ROOT
from tests.release.archives import Entry, write_chart, write_image_recipe, write_tar_gz

EPOCH_SECONDS = 1_700_000_000


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as archive:
        return {member.name: member for member in archive.getmembers()}


def test_archive_depends_only_on_its_files(tmp_path: Path) -> None:
    entries = [Entry("b", b"2"), Entry("a", b"1", executable=True)]
    write_tar_gz(tmp_path / "one.tar.gz", entries, EPOCH_SECONDS)
    write_tar_gz(tmp_path / "two.tar.gz", reversed(entries), EPOCH_SECONDS)
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    found = members(tmp_path / "one.tar.gz")
    assert {name: member.mode for name, member in found.items()} == {"a": 0o755, "b": 0o644}
    assert {member.mtime for member in found.values()} == {EPOCH_SECONDS}


def test_chart_has_layout_of_helm(tmp_path: Path) -> None:
    chart = tmp_path / "ebb"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: ebb\nversion: 0.1.0\n")
    (chart / "values.yaml").write_text("{}\n")
    (chart / "templates" / "deployment.yaml").write_text("kind: Deployment\n")
    path = write_chart(tmp_path, chart, "0.1.0", EPOCH_SECONDS)
    assert path == tmp_path / "ebb-0.1.0.tgz"
    assert list(members(path)) == [
        "ebb/Chart.yaml",
        "ebb/templates/deployment.yaml",
        "ebb/values.yaml",
    ]


def test_image_recipe_contains_files_that_the_dockerfile_copies(tmp_path: Path) -> None:
    path = tmp_path / "image.tar.gz"
    write_image_recipe(path, ROOT)
    first = hashlib.sha256(path.read_bytes()).digest()
    names = set(members(path))
    assert {"Dockerfile", "requirements-runtime.lock", "cli/__main__.py", "LICENSE"} <= names
    assert {name.partition("/")[0] for name in names}.isdisjoint({"docs", "manifests", "tests"})
    with tarfile.open(path) as archive:
        dockerfile = archive.extractfile("Dockerfile") or io.BytesIO()
        committed = subprocess.run(
            ["git", "show", "HEAD:Dockerfile"], cwd=ROOT, capture_output=True, check=True
        )
        assert dockerfile.read() == committed.stdout
    write_image_recipe(path, ROOT)
    assert hashlib.sha256(path.read_bytes()).digest() == first
