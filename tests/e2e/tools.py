"""The programs of a control plane: found, or built once for each machine.

`python -m tests.e2e.tools` builds them if need be and prints their folder. A folder of them in
KUBEBUILDER_ASSETS (envtest's convention) comes first; else a Go module of ours, controlplane/,
makes them into a cache folder that is named after what it was made of.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
MODULE: Final = HERE / "controlplane"
SOURCES: Final = ("go.mod", "go.sum", "main.go")
PROGRAM: Final = "controlplane"
LINKS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
KWOK: Final = "kwok"
KWOK_VERSION: Final = "v0.8.0"
NAMES: Final = (*LINKS, KWOK)
GO_MINOR_MIN: Final = 26
ASSETS: Final = "KUBEBUILDER_ASSETS"


class MissingError(Exception):
    """The programs are not there and cannot be made; one line says why and what to do."""


def find() -> Path:
    """Return the folder of the programs, without building. Raises: MissingError."""
    given = os.environ.get(ASSETS)
    folder = Path(given) if given else cached()
    missing = [name for name in NAMES if not os.access(folder / name, os.X_OK)]
    if not missing:
        return folder
    if given:
        raise MissingError(f"{ASSETS}={given} lacks {', '.join(missing)}; unset it to build all")
    raise MissingError("the control plane's programs are not built; run: make e2e-tools")


def cached() -> Path:
    """Return the folder that this version of the module is built into."""
    made_of = hashlib.sha256(KWOK_VERSION.encode())
    for name in SOURCES:
        made_of.update((MODULE / name).read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "kube-ebb" / "e2e" / made_of.hexdigest()[:16]


def build() -> Path:
    """Build what is missing. Raises: MissingError without a Go that can."""
    try:
        return find()
    except MissingError:
        if os.environ.get(ASSETS):
            raise
    _check_go()
    folder = cached()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        version = _kubernetes_version()
        _step(
            f"building Kubernetes {version}, about ten minutes the first time",
            ["go", "build", "-trimpath", "-ldflags", _flags(version), "-o", str(made / PROGRAM)],
            cwd=MODULE,
        )
        for name in LINKS:
            (made / name).symlink_to(PROGRAM)
        _step(
            f"building kwok {KWOK_VERSION}",
            [
                "go",
                "install",
                "-trimpath",
                "-ldflags=-s -w",
                f"sigs.k8s.io/kwok/cmd/kwok@{KWOK_VERSION}",
            ],
            env={"GOBIN": str(made)},
        )
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return find()


def _check_go() -> None:
    go = shutil.which("go")
    how = f"install Go 1.{GO_MINOR_MIN} or newer, or set {ASSETS} to a folder of {' '.join(NAMES)}"
    if go is None:
        raise MissingError(f"no Go here to build the control plane with; {how}")
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go1\.(\d+)", said)
    if found is None or int(found[1]) < GO_MINOR_MIN:
        raise MissingError(f"{said.strip()} is too old to build the control plane; {how}")


def _kubernetes_version() -> str:
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text())
    assert found is not None
    return found[1]


def _flags(version: str) -> str:
    """Return linker flags: without them the programs call themselves v0.0.0."""
    major, minor, _ = version.removeprefix("v").split(".")
    values = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in values.items())])


def _step(
    what: str, command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None
) -> None:
    print(f"e2e-tools: {what}", file=sys.stderr, flush=True)
    start = time.monotonic()
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MissingError(f"{' '.join(command[:2])} failed:\n{done.stderr[-4000:]}")
    print(f"e2e-tools: done in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def main() -> int:
    """Build if need be, and print the folder."""
    try:
        print(build())
    except MissingError as fault:
        print(f"e2e-tools: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
