"""Write archives that depend only on the content of their files."""

import gzip
import io
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.release.errors import ReleaseError


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in an archive."""

    name: str
    data: bytes
    executable: bool = False


def write_tar_gz(path: Path, entries: Iterable[Entry], epoch_seconds: int) -> None:
    """Write the entries, sorted by name, with the same time and owner for all of them."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for entry in sorted(entries, key=lambda entry: entry.name):
            header = tarfile.TarInfo(entry.name)
            header.size = len(entry.data)
            header.mode = 0o755 if entry.executable else 0o644
            header.mtime = epoch_seconds
            archive.addfile(header, io.BytesIO(entry.data))
    write_gz(path, content.getvalue())


def write_gz(path: Path, content: bytes) -> None:
    """Compress the content; the file contains neither a name nor the current time."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        packed.write(content)


def write_chart(folder: Path, chart: Path, version: str, epoch_seconds: int) -> Path:
    """Package a Helm chart as `helm package` does: all files below a folder with its name."""
    path = folder / f"{chart.name}-{version}.tgz"
    entries = [
        Entry(f"{chart.name}/{file.relative_to(chart).as_posix()}", file.read_bytes())
        for file in chart.rglob("*")
        if file.is_file()
    ]
    write_tar_gz(path, entries, epoch_seconds)
    return path


def write_image_recipe(path: Path, root: Path) -> None:
    """Write the build context of the image at the current commit: what .dockerignore admits."""
    lines = (root / ".dockerignore").read_text("utf-8").splitlines()
    admitted = [line.removeprefix("!") for line in lines if line.startswith("!")]
    command = ["git", "archive", "--format=tar", "HEAD", "Dockerfile", ".dockerignore", *admitted]
    done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise ReleaseError(f"git archive: {done.stderr.decode(errors='replace').strip()}")
    write_gz(path, done.stdout)
