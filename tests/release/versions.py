"""Compare the version in pyproject.toml with all other files that contain it."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROJECT: Final = "pyproject.toml"
CHART: Final = "manifests/charts/ebb/Chart.yaml"
IMAGE: Final = r"--tag \S+/ebb:(\S+)"
PLACES: Final = (
    ("manifests/components/release/kustomization.yaml", r"newTag: (\S+)"),
    ("manifests/components/release/kustomization.yaml", r"app\.kubernetes\.io/version: (\S+)"),
    ("Dockerfile", IMAGE),
    ("README.md", IMAGE),
    ("docs/install.md", IMAGE),
    (CHART, r"^version: \"?([^\s\"]+)"),
    (CHART, r"^appVersion: \"?([^\s\"]+)"),
)
"""Files with a pattern that finds the version in them; docs/releasing.md lists the same files."""


def project_version(root: Path) -> str:
    """Return the version in pyproject.toml."""
    return str(tomllib.loads((root / PROJECT).read_text("utf-8"))["project"]["version"])


def differences(root: Path) -> Iterator[str]:
    """Yield one line for each place with another version than pyproject.toml, or with none."""
    wanted = project_version(root)
    for name, pattern in PLACES:
        if name == CHART and not (root / name).exists():
            continue  # a tree without a chart
        found = re.findall(pattern, (root / name).read_text("utf-8"), re.MULTILINE)
        if not found:
            yield f"{name}: no match for {pattern}; expected version {wanted} there"
        for version in found:
            if version != wanted:
                yield f"{name}: version {version}; {PROJECT} has {wanted}"
