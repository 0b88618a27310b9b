"""Build the files of a release: `make release`.

The folder dist/ then contains the wheel, executable files, archives and a manifest for krew, the
build context of the image, the Helm chart, an SBOM, checksums and the release notes. Nothing is
published, and no image is built. With --dry-run, changes that are not committed and an unreleased
version are reported instead of refused, and executables are omitted if no package index is
reachable. docs/releasing.md describes the other steps of a release.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.release import krew
from tests.release.archives import write_chart, write_image_recipe, write_tar_gz
from tests.release.errors import NoIndexError, ReleaseError
from tests.release.executables import TARGETS, Builder, Target
from tests.release.notes import is_dated, notes, section
from tests.release.sbom import sbom
from tests.release.versions import CHART, differences, project_version

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "kube-ebb"
LOCK: Final = "requirements-runtime.lock"
SUMS: Final = "SHA256SUMS"
NOTES: Final = "release-notes.md"
BASE: Final = re.compile(r"\S+@sha256:[0-9a-f]{64}")
FAULT: Final = 2
IMAGE_COMMAND: Final = """\
No image was built. To build it for two architectures and push it:
  docker buildx build --platform linux/amd64,linux/arm64 --build-arg RELEASE=yes \\
    --build-arg BASE={base} --tag ghcr.io/kube-ebb/ebb:{version} --push - < {recipe}"""


@dataclass(slots=True)
class Release:
    """The files of one version, in a folder."""

    root: Path
    output: Path
    version: str
    epoch_seconds: int
    missing: list[str] = field(default_factory=list)
    """Files that could not be built, with the reason."""

    def path(self, suffix: str) -> Path:
        """Return the path of a file whose name begins with name and version."""
        return self.output / f"{NAME}-{self.version}-{suffix}"

    def build_wheel(self) -> Path:
        """Build the wheel."""
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
        environment = {"SOURCE_DATE_EPOCH": str(self.epoch_seconds)}
        done = subprocess.run(
            [*command, "--directory", str(self.output.resolve())],
            cwd=self.root, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise ReleaseError(f"hatchling: {done.stderr.strip()}")
        (wheel,) = self.output.glob("*.whl")
        return wheel

    def build_executables(self, wheel: Path, targets: Sequence[Target]) -> None:
        """Build the executables of all targets, and the archives and the manifest for krew."""
        builder = Builder(wheel, self.root / LOCK, self.epoch_seconds)
        # pex is another process, so one thread for each processor keeps all of them busy.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            packages = pool.map(partial(self._build_executable, builder), targets)
            built = []
            for target, package in zip(targets, packages, strict=True):
                if package:
                    name = self._executable(target).name
                    self.missing.append(f"{name}: the package index has no wheel of {package}")
                else:
                    built.append(target)
            groups = [list(one) for _, one in groupby(built, key=lambda target: target.platform)]
            paths = list(pool.map(partial(self._build_archive, builder), groups))
        if paths:
            platforms = (group[0].platform for group in groups)
            manifest = krew.manifest(self.version, dict(zip(platforms, paths, strict=True)))
            (self.output / "ebb.yaml").write_text(manifest, "utf-8")

    def _build_archive(self, builder: Builder, targets: Sequence[Target]) -> Path:
        """Write the archive for krew with an executable for the targets of one platform."""
        archive = self.path(f"krew-{targets[0].platform}.tar.gz")
        with TemporaryDirectory() as folder:
            # Wheels for all minor versions in one file: half of the size of a file for each.
            executable = self._executable(targets[0])
            if len(targets) > 1:
                executable = Path(folder) / krew.PLUGIN
                if package := builder.build(executable, targets):
                    raise ReleaseError(f"{archive.name}: no wheel of {package} any more")
            entries = krew.entries(executable, self.root / "LICENSE", targets)
            write_tar_gz(archive, entries, self.epoch_seconds)
        print(f"{archive.name}: built", flush=True)
        return archive

    def _executable(self, target: Target) -> Path:
        return self.path(f"{target.name}.pex")

    def _build_executable(self, builder: Builder, target: Target) -> str | None:
        """Write the executable for a target; return the package without a wheel for it."""
        path = self._executable(target)
        package = builder.build(path, [target])
        print(f"{path.name}: {f'no wheel of {package}' if package else 'built'}", flush=True)
        return package

    def write_others(self) -> None:
        """Write the build context of the image, the chart and the SBOM."""
        write_image_recipe(self.path("image.tar.gz"), self.root)
        chart = self.root / CHART
        if chart.exists():
            write_chart(self.output, chart.parent, self.version, self.epoch_seconds)
        else:
            self.missing.append(f"chart: {CHART} does not exist")
        text = sbom(NAME, self.version, (self.root / LOCK).read_text("utf-8"), self.epoch_seconds)
        self.path("sbom.cdx.json").write_text(text, "utf-8")

    def write_checksums(self, text: str, base: str | None) -> None:
        """Write the checksums of all files, and the release notes with them."""
        checksums = {
            path.name: sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.output.iterdir())
        }
        lines = [f"{digest}  {name}\n" for name, digest in checksums.items()]
        (self.output / SUMS).write_text("".join(lines), "utf-8")
        (self.output / NOTES).write_text(notes(text, checksums, base, self.missing), "utf-8")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def refusals(root: Path, date: str, version: str) -> Iterator[str]:
    """Yield the reasons why a release must not be built from this tree."""
    if changes := _git(root, "status", "--porcelain"):
        yield f"changes are not committed:\n{changes}"
    if not is_dated(date):
        yield f"CHANGELOG.md: the date of version {version} is {date!r}; expected YYYY-MM-DD"


def build(options: argparse.Namespace, root: Path) -> None:
    """Check the tree, and build all files. Raises: ReleaseError."""
    version = project_version(root)
    if different := list(differences(root)):
        raise ReleaseError("\n".join(different))
    date, text = section((root / "CHANGELOG.md").read_text("utf-8"), version)
    for refusal in refusals(root, date, version):
        if not options.dry_run:
            raise ReleaseError(refusal)
        print(f"Dry run, a release would be refused: {refusal}")
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()):
        raise ReleaseError(f"{output}: is not empty; remove it first")
    release = Release(root, output, version, int(_git(root, "log", "-1", "--format=%ct")))
    wheel = release.build_wheel()
    try:
        release.build_executables(wheel, _targets(options.target))
    except NoIndexError as fault:
        if not options.dry_run:
            raise
        release.missing.append(f"executables, krew: {fault}")
    release.write_others()
    release.write_checksums(text, options.base)
    _report(release, options.base)


def _targets(names: Sequence[str] | None) -> list[Target]:
    if not names:
        return list(TARGETS)
    return [target for target in TARGETS if target.name in names]


def _report(release: Release, base: str | None) -> None:
    for path in sorted(release.output.iterdir()):
        print(f"{path.stat().st_size:>12,} bytes  {path.name}")
    for line in release.missing:
        print(f"Not built: {line}")
    print(
        IMAGE_COMMAND.format(
            base=base or "python:3.12-slim@sha256:DIGEST",
            version=release.version,
            recipe=release.path("image.tar.gz"),
        )
    )


def _base(text: str) -> str:
    if not BASE.fullmatch(text):
        message = f"{text!r} has no digest; expected NAME@sha256: and 64 hexadecimal digits"
        raise argparse.ArgumentTypeError(message)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the files of a release; return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.release", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="build from any tree")
    parser.add_argument("--base", type=_base, metavar="IMAGE@DIGEST", help="base of the image")
    parser.add_argument("--output", default="dist", metavar="FOLDER", help="default: dist")
    parser.add_argument(
        "--target", action="append", choices=[target.name for target in TARGETS],
        help="build only this executable; repeatable",
    )  # fmt: skip
    try:
        build(parser.parse_args(arguments), ROOT)
    except ReleaseError as fault:
        print(f"make release: error: {fault}", file=sys.stderr)
        return FAULT
    return 0


if __name__ == "__main__":
    sys.exit(main())
