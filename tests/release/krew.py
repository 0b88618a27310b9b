"""Describe the kubectl plugin `ebb` for krew: the files of its archives, and its manifest.

krew selects an archive by operating system and architecture. It does not know versions of Python,
so an archive has one executable for all of them, and a launcher.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import yaml

from tests.release.archives import Entry
from tests.release.executables import Target

PLUGIN: Final = "kubectl-ebb"
LAUNCHER: Final = Path(__file__).with_name("launcher.sh")
MINORS: Final = "@MINORS@"
HOME: Final = "https://github.com/kube-ebb/ebb"
DESCRIPTION: Final = (
    "Shows which nodes a cluster does not need, where their pods would fit, and why the other "
    "nodes are not removable. Nothing needs to be installed in the cluster. Only "
    "`kubectl ebb cleanup` writes to it."
)
CAVEATS: Final = "Needs Python 3.11 or newer in PATH. Unpacks itself on the first start."


def entries(executable: Path, license_file: Path, targets: Sequence[Target]) -> tuple[Entry, ...]:
    """Return the files of an archive: the launcher, the executable of the targets, the license."""
    minors = " ".join(str(minor) for minor in sorted((one.minor for one in targets), reverse=True))
    launcher = LAUNCHER.read_text("utf-8").replace(MINORS, minors)
    return (
        Entry(PLUGIN, launcher.encode(), executable=True),
        # The plugin prints its usage as `kubectl ebb` because its file has this name.
        Entry(f"pex/{PLUGIN}", executable.read_bytes(), executable=True),
        Entry("LICENSE", license_file.read_bytes()),
    )


def manifest(version: str, archives: Mapping[str, Path]) -> str:
    """Return the manifest; the keys of *archives* are platforms such as linux-amd64."""
    platforms = []
    for platform, archive in sorted(archives.items()):
        system, architecture = platform.split("-")
        entry = {
            "selector": {"matchLabels": {"os": system, "arch": architecture}},
            "uri": f"{HOME}/releases/download/v{version}/{archive.name}",
            "sha256": sha256(archive.read_bytes()).hexdigest(),
            "bin": PLUGIN,
        }
        platforms.append(entry)
    document: dict[str, Any] = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "ebb"},
        "spec": {
            "version": f"v{version}",
            "homepage": HOME,
            "shortDescription": "Show which nodes are removable, and why not",
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(document, sort_keys=False)
