"""`make release ARGS=--dry-run` for the current platform; the executables start.

Executables need a package index. Where none is reachable, the test checks the other files and is
then skipped, except in CI.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.platforms import dump
from tests.release.__main__ import LOCK, NOTES, ROOT, SUMS, main
from tests.release.errors import ReleaseError
from tests.release.executables import Target, current_target
from tests.release.krew import PLUGIN
from tests.release.versions import project_version

VERSION = project_version(ROOT)
NO_INDEX = "Not built: executables, krew: no package index is reachable"


@pytest.mark.nightly
def test_dry_run_builds_files_that_start(tmp_path: Path) -> None:
    """One test, because several processes of pytest would each build the files."""
    try:
        target = current_target()
    except ReleaseError as fault:
        pytest.skip(str(fault))
    dist = tmp_path / "dist"
    output = dry_run(dist, target)
    assert "No image was built." in output
    assert "--build-arg BASE=python:3.12-slim@sha256:DIGEST" in output
    check_checksums(dist)
    check_files(dist)
    if NO_INDEX in output and "CI" not in os.environ:
        pytest.skip("no package index is reachable: executables are neither built nor tested")
    executable = tmp_path / PLUGIN
    # Not a link: pex follows links, and its program then has the name of the file.
    shutil.copy(dist / f"kube-ebb-{VERSION}-{target.name}.pex", executable)
    check_executable(executable, tmp_path)
    executable.unlink()
    executable.symlink_to(installed_by_krew(dist, target, tmp_path / "store"))
    assert start(executable, "--version", cache=tmp_path / "cache") == f"ebb {VERSION}\n"


def dry_run(dist: Path, target: Target) -> str:
    """Build the files, with executables for one target; return the output."""
    command = [sys.executable, "-m", "tests.release", "--dry-run", "--target", target.name]
    done = subprocess.run(
        [*command, "--output", str(dist)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_checksums(dist: Path) -> None:
    lines = (dist / SUMS).read_text("utf-8").splitlines()
    sums = dict(line.split("  ")[::-1] for line in lines)
    assert set(sums) == {path.name for path in dist.iterdir()} - {SUMS, NOTES}
    for name, digest in sums.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
        assert f"| `{name}` | `{digest}` |" in (dist / NOTES).read_text("utf-8")


def check_files(dist: Path) -> None:
    assert (dist / f"kube_ebb-{VERSION}-py3-none-any.whl").is_file()
    assert (dist / f"kube-ebb-{VERSION}-image.tar.gz").is_file()
    document = json.loads((dist / f"kube-ebb-{VERSION}-sbom.cdx.json").read_text("utf-8"))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["version"] == VERSION
    assert f"{document['components'][0]['name']}==" in (ROOT / LOCK).read_text("utf-8")


def check_executable(executable: Path, folder: Path) -> None:
    cluster = folder / "cluster.json"
    cluster.write_bytes(dump("kind"))
    cache = folder / "cache"
    assert start(executable, "--version", cache=cache) == f"ebb {VERSION}\n"
    assert "Usage: kubectl ebb " in start(executable, "--help", cache=cache)
    plan = start(executable, "plan", "--from-file", str(cluster), "-o", "json", cache=cache)
    assert json.loads(plan)["kind"] == "Plan"


def installed_by_krew(dist: Path, target: Target, store: Path) -> Path:
    """Unpack the archive that the manifest names; return the path of the plugin."""
    manifest = yaml.safe_load((dist / "ebb.yaml").read_text("utf-8"))
    assert manifest["metadata"]["name"] == "ebb"
    assert manifest["spec"]["version"] == f"v{VERSION}"
    (platform,) = manifest["spec"]["platforms"]
    selected = {"os": target.system, "arch": target.architecture}
    assert platform["selector"]["matchLabels"] == selected
    assert f"/v{VERSION}/" in platform["uri"]
    archive = dist / platform["uri"].rpartition("/")[2]
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    store.mkdir()
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(store)], check=True)
    return store / str(platform["bin"])


def start(executable: Path, *arguments: str, cache: Path) -> str:
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PEX_ROOT": str(cache)}
    done = subprocess.run(
        [executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("base", ["python:3.12-slim", "python@sha256:12"])
def test_release_rejects_base_image_without_digest(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--dry-run", "--base", base, "--output", str(tmp_path)])
    assert f"{base!r} has no digest" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_release_rejects_folder_with_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").write_text("")
    assert main(["--dry-run", "--output", str(tmp_path)]) == 2
    assert f"{tmp_path}: is not empty; remove it first" in capsys.readouterr().err
