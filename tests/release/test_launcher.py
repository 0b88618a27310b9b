"""The launcher of the kubectl plugin, with scripts that take the place of Python."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.archives import write_tar_gz
from tests.release.executables import Target
from tests.release.krew import PLUGIN, entries

PYTHON = """\
#!/bin/sh
if [ "$1" = -c ]; then
  exec {python} -c "import sys; sys.version_info = (3, {minor}); exec(sys.argv[1])" "$2"
fi
echo "3.{minor} $*"
"""
BROKEN = "#!/bin/sh\nexit 127\n"
TARGETS = [Target("linux", "amd64", minor) for minor in (11, 12, 13)]
MISSING = "kubectl ebb: none of these minor versions of Python 3 is in PATH: 13 12 11\n"


def start(folder: Path, pythons: dict[str, int | None]) -> subprocess.CompletedProcess[str]:
    """Unpack the plugin as krew does, and start it through a link with these commands in PATH."""
    programs, store = folder / "bin", folder / "store"
    programs.mkdir()
    store.mkdir()
    for name, minor in pythons.items():
        text = BROKEN if minor is None else PYTHON.format(python=sys.executable, minor=minor)
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for tool in ("dirname", "readlink"):
        (programs / tool).symlink_to(shutil.which(tool) or tool)
    (folder / "LICENSE").write_text("license")
    (folder / "executable").write_bytes(b"")
    archive = folder / "plugin.tar.gz"
    write_tar_gz(archive, entries(folder / "executable", folder / "LICENSE", TARGETS), 0)
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(store)], check=True)
    (folder / PLUGIN).symlink_to(f"store/{PLUGIN}")
    return subprocess.run(
        [folder / PLUGIN, "plan", "a b"],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("pythons", "minor"),
    [
        ({"python3.11": 11, "python3.12": 12, "python3": 10}, 12),
        ({"python3.11": 11, "python3.12": None, "python3.13": None}, 11),
        ({"python3": 13, "python3.10": 10}, 13),
        ({"python3.14": 14, "python3": 12, "python3.11": 11}, 11),
    ],
)
def test_launcher_starts_newest_supported_python(
    tmp_path: Path, pythons: dict[str, int | None], minor: int
) -> None:
    done = start(tmp_path, pythons)
    assert done.stderr == ""
    assert done.stdout == f"3.{minor} {tmp_path}/store/pex/{PLUGIN} plan a b\n"


def test_launcher_names_supported_versions_when_there_is_no_python(tmp_path: Path) -> None:
    done = start(tmp_path, {})
    assert (done.returncode, done.stdout, done.stderr) == (2, "", MISSING)
