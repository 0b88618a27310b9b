"""Build executable files with pex: the runtime packages and `ebb`, in one file.

pex needs no Python of the target, because the wheel tags of a target are known here.
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from packaging import tags

from tests.release.errors import NoIndexError, ReleaseError

MACHINES: Final[Mapping[tuple[str, str], str]] = {
    ("linux", "amd64"): "x86_64",
    ("linux", "arm64"): "aarch64",
    ("darwin", "amd64"): "x86_64",
    ("darwin", "arm64"): "arm64",
}
"""Names of Python for the operating systems and architectures of Go, which krew uses."""
MINORS: Final = (11, 12, 13, 14)
GLIBC_MINOR_MAX: Final = 28
"""glibc 2.28 is that of RHEL 8 and Debian 10; executables run with it and newer ones."""
GLIBC_OLD: Final[Mapping[int, str]] = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
MACOS: Final = (12, 0)
PIP: Final = "25.3"
"""Version of pip that downloads the wheels, in little more than half of the time that the version
within pex takes."""
NO_WHEEL: Final = re.compile(r"Could not find a version that satisfies the requirement (\S+)")
NO_INDEX: Final = "after connection broken by"
"""Part of a warning of pip when it cannot connect."""


@dataclass(frozen=True, slots=True)
class Target:
    """An operating system, an architecture and a minor version of Python 3."""

    system: str
    architecture: str
    minor: int

    @property
    def platform(self) -> str:
        """Return operating system and architecture, such as linux-amd64."""
        return f"{self.system}-{self.architecture}"

    @property
    def name(self) -> str:
        """Return the name in file names, such as linux-amd64-py311."""
        return f"{self.platform}-py3{self.minor}"

    def complete_platform(self) -> str:
        """Return markers and compatible wheel tags, as pex reads them."""
        machine = MACHINES[self.system, self.architecture]
        interpreter = f"cp3{self.minor}"
        version = (3, self.minor)
        platforms = list(_platforms(self.system, machine))
        compatible = [
            *tags.cpython_tags(version, [interpreter], platforms),
            *tags.compatible_tags(version, interpreter, platforms),
        ]
        markers = {
            "implementation_name": "cpython",
            "implementation_version": f"3.{self.minor}.0",
            "os_name": "posix",
            "platform_machine": machine,
            "platform_python_implementation": "CPython",
            "platform_system": self.system.title(),
            "python_full_version": f"3.{self.minor}.0",
            "python_version": f"3.{self.minor}",
            "sys_platform": self.system,
        }
        return json.dumps(
            {"marker_environment": markers, "compatible_tags": [str(tag) for tag in compatible]}
        )


TARGETS: Final = tuple(
    Target(system, architecture, minor) for system, architecture in MACHINES for minor in MINORS
)


def current_target() -> Target:
    """Return the target that runs on this machine. Raises: ReleaseError."""
    here = sys.platform, platform.machine(), sys.version_info.minor
    for target in TARGETS:
        machine = MACHINES[target.system, target.architecture]
        if (target.system, machine, target.minor) == here:
            return target
    raise ReleaseError(f"no target for {here[0]}, {here[1]}, Python 3.{here[2]}")


def _platforms(system: str, machine: str) -> Iterator[str]:
    if system == "darwin":
        yield from tags.mac_platforms(MACOS, machine)
        return
    for minor in range(GLIBC_MINOR_MAX, 4, -1):
        yield f"manylinux_2_{minor}_{machine}"
        if minor in GLIBC_OLD:
            yield f"{GLIBC_OLD[minor]}_{machine}"
    yield f"linux_{machine}"


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds executables from the wheel of Ebb and the locked runtime packages."""

    wheel: Path
    lock: Path
    epoch_seconds: int

    def build(self, output: Path, targets: Sequence[Target]) -> str | None:
        """Write one executable for the targets; return the package without a wheel for them.

        Raises: NoIndexError; ReleaseError after any other error of pex.
        """
        with TemporaryDirectory() as folder:
            requirements = Path(folder) / "requirements.txt"
            requirements.write_text(self._requirements(), "utf-8")
            command = [
                *(sys.executable, "-m", "pex", "--use-pip-config", "--pip-version", PIP),
                *("--requirement", str(requirements), "--find-links", str(self.wheel.parent)),
                # The wheels stay as they are. They are unpacked into a venv on the first start,
                # which makes later starts four times as fast as without a venv.
                *("--no-build", "--no-pre-install-wheels", "--venv", "--script", "ebb"),
                *("--python-shebang", _shebang(targets), "--output-file", str(output)),
            ]
            for target in targets:
                command += ["--complete-platform", target.complete_platform()]
            environment = os.environ | {"SOURCE_DATE_EPOCH": str(self.epoch_seconds)}
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
        return missing_package(done.stderr) if done.returncode else None

    def _requirements(self) -> str:
        name, version = self.wheel.name.split("-")[:2]
        digest = sha256(self.wheel.read_bytes()).hexdigest()
        return f"{self.lock.read_text('utf-8')}{name}=={version} --hash=sha256:{digest}\n"


def _shebang(targets: Sequence[Target]) -> str:
    minors = {target.minor for target in targets}
    return f"/usr/bin/env python3{f'.{minors.pop()}' if len(minors) == 1 else ''}"


def missing_package(error: str) -> str:
    """Return the requirement without a wheel, from the output of pex. Raises: ReleaseError."""
    if NO_INDEX in error:
        raise NoIndexError("no package index is reachable")
    if missing := NO_WHEEL.search(error):
        return missing[1]
    raise ReleaseError(f"pex: {error.strip()}")
