"""Find the programs of a control plane and an autoscaler, or build them once per machine.

`python -m tests.e2e.tools` builds them if necessary and prints their folder. A folder in
KUBEBUILDER_ASSETS (the convention of envtest) takes precedence. Otherwise the Go module
controlplane/ builds them into a cache folder named by the hash of its sources. The Go module helm/
builds Helm, whose dependencies have other versions.

With `--oldest`, the control plane is of the oldest supported minor version of Kubernetes: its file
oldest.mod replaces go.mod. kwok and Karpenter stay the same.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
MODULE: Final = HERE / "controlplane"
HELM_MODULE: Final = HERE / "helm"
HELM: Final = "helm"
HELM_PACKAGE: Final = "helm.sh/helm/v4/cmd/helm"
HELM_SOURCES: Final = ("go.mod", "go.sum")
SOURCES: Final = ("go.mod", "go.sum", "main.go")
OLDEST_SOURCES: Final = (*SOURCES, "oldest.mod", "oldest.sum")
PROGRAM: Final = "controlplane"
LINKS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
OTHERS: Final = {"kwok": "sigs.k8s.io/kwok/cmd/kwok", "karpenter": "sigs.k8s.io/karpenter/kwok"}
"""Main packages of programs from other modules."""
NAMES: Final = (*LINKS, *OTHERS)
CRDS: Final = "karpenter-crds"
"""Folder beside the programs with Karpenter's CRDs."""
CRD_FOLDERS: Final = ("pkg/apis/crds", "kwok/apis/crds")
STEPS: Final = ("Helm", "Kubernetes", *OTHERS)
"""What is built, in this order."""
ESTIMATE: Final = "ten to twenty minutes in all"
STRIPPED: Final = "-s -w"
GO_MINOR_MIN: Final = 21
"""The first Go that downloads a newer one if go.mod requires it."""
GO_SETTINGS: Final = {"GOTOOLCHAIN": "auto"}
"""Allows that download where the default of the machine forbids it."""
ASSETS: Final = "KUBEBUILDER_ASSETS"


class MissingError(Exception):
    """The programs are missing and cannot be built; the message says why and what to do."""


def find() -> Path:
    """Return the folder of the programs, without building. Raises: MissingError."""
    given = os.environ.get(ASSETS)
    folder = Path(given) if given else cached()
    if not (lacking := missing(folder)):
        return folder
    if given:
        raise MissingError(f"{ASSETS}={given} lacks {', '.join(lacking)}; unset it to build all")
    raise MissingError("the control plane's programs are not built; run: make e2e-tools")


def find_helm() -> Path:
    """Return the program Helm, without building. Raises: MissingError."""
    found = cached(HELM_SOURCES, HELM_MODULE) / HELM
    if not os.access(found, os.X_OK):
        raise MissingError("Helm is not built; run: make e2e-tools")
    return found


def missing(folder: Path) -> list[str]:
    """Return the names that the folder lacks."""
    return [name for name in (*NAMES, CRDS) if not os.access(folder / name, os.X_OK)]


def cached(sources: Sequence[str] = SOURCES, module: Path = MODULE) -> Path:
    """Return the cache folder of this version of the module."""
    made_of = hashlib.sha256()
    for name in sources:
        made_of.update((module / name).read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "kube-ebb" / "e2e" / made_of.hexdigest()[:16]


def build() -> Path:
    """Build the programs if they are missing. Raises: MissingError without a suitable Go."""
    try:
        return find()
    except MissingError:
        if os.environ.get(ASSETS):
            raise
    with _making(cached()) as made:
        _build_control_plane(made, "go.mod")
        for name, package in OTHERS.items():
            _build(f"{name} {_version(_module(package))}", package, made / name, STRIPPED)
        _copy_crds(made / CRDS)
    return find()


def build_helm() -> Path:
    """Build Helm if it is missing. Raises: MissingError without a suitable Go."""
    try:
        return find_helm()
    except MissingError:
        with _making(cached(HELM_SOURCES, HELM_MODULE)) as made:
            _build("Helm", HELM_PACKAGE, made / HELM, STRIPPED, module=HELM_MODULE)
    return find_helm()


def build_oldest() -> Path:
    """Build the control plane of the oldest supported minor version. Raises: MissingError."""
    newest, folder = build(), cached(OLDEST_SOURCES)
    if not missing(folder):
        return folder
    with _making(folder) as made:
        _build_control_plane(made, "oldest.mod")
        # kwok and Karpenter only use the API, so they need not be of the same minor version.
        for name in OTHERS:
            (made / name).symlink_to(newest / name)
        shutil.copytree(newest / CRDS, made / CRDS)  # kubectl follows no link to a folder
    return folder


@contextmanager
def _making(folder: Path) -> Iterator[Path]:
    """Yield an empty folder, and rename it to *folder* if no exception occurs."""
    _check_go()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        yield made
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def _build_control_plane(made: Path, modfile: str) -> None:
    version = _version("k8s.io/kubernetes", modfile)
    _build(f"Kubernetes {version}", ".", made / PROGRAM, _flags(version), modfile)
    for name in LINKS:
        (made / name).symlink_to(PROGRAM)


def _check_go() -> None:
    go = shutil.which("go")
    how = f"install Go 1.{GO_MINOR_MIN} or newer, or set {ASSETS} to a folder of {' '.join(NAMES)}"
    if go is None:
        raise MissingError(f"Go is missing, which builds the control plane; {how}")
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go1\.(\d+)", said)
    if found is None or int(found[1]) < GO_MINOR_MIN:
        raise MissingError(f"{said.strip()} is too old to build the control plane; {how}")


def _module(package: str) -> str:
    return "/".join(package.split("/")[:2])


def _version(module: str, modfile: str = "go.mod") -> str:
    found = re.search(rf"\s{re.escape(module)} (v\S+)", (MODULE / modfile).read_text())
    assert found is not None
    return found[1]


def _copy_crds(to: Path) -> None:
    """Copy Karpenter's CRDs from its module."""
    module = _module(OTHERS["karpenter"])
    folder = Path(_step(["go", "list", "-m", "-f", "{{.Dir}}", module]).strip())
    to.mkdir()
    for crds in CRD_FOLDERS:
        for path in (folder / crds).glob("*.yaml"):
            shutil.copyfile(path, to / path.name)


def _flags(version: str) -> str:
    """Return linker flags that set the version, which would be v0.0.0."""
    major, minor, _ = version.removeprefix("v").split(".")
    values = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return " ".join([STRIPPED, *(f"-X {name}={value}" for name, value in values.items())])


def _build(
    what: str,
    package: str,
    to: Path,
    flags: str,
    modfile: str = "go.mod",
    module: Path = MODULE,
) -> None:
    step = f"step {1 + STEPS.index(what.partition(' ')[0])} of {len(STEPS)}, {ESTIMATE}"
    print(f"e2e-tools: building {what} ({step})", file=sys.stderr, flush=True)
    start = time.monotonic()
    options = ["-trimpath", f"-modfile={modfile}", "-ldflags", flags, "-o", str(to)]
    _step(["go", "build", *options, package], module)
    print(f"e2e-tools: done in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def _step(command: list[str], module: Path = MODULE) -> str:
    env = os.environ | GO_SETTINGS
    done = subprocess.run(
        command, cwd=module, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MissingError(f"{' '.join(command[:2])} failed:\n{done.stderr[-4000:]}")
    return done.stdout


def main() -> int:
    """Build the programs if necessary, and print their folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--oldest", action="store_true", help="of the oldest supported version")
    asked = parser.parse_args()
    try:
        build_helm()
        print(build_oldest() if asked.oldest else build())
    except MissingError as fault:
        print(f"e2e-tools: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
