"""Run Helm, with a chart of one Deployment that belongs to a user."""

import subprocess
from pathlib import Path

import yaml

from tests.e2e import tools
from tests.e2e.moves import App
from tests.e2e.plane import ROOT, Plane

HELM_MAJOR = "v4."
PLACE = "PLACE-OF-REPLICAS"


def helm_command(plane: Plane, namespace: str, *arguments: str) -> list[str]:
    """Return the command that runs Helm as administrator in a namespace."""
    config = str(plane.kubeconfig("helm"))
    return [str(tools.find_helm()), "--kubeconfig", config, "-n", namespace, *arguments]


def helm(plane: Plane, namespace: str, *arguments: str, check: bool = True) -> str:
    """Run Helm; return its output. Raises: AssertionError if it fails and *check* is true."""
    command = helm_command(plane, namespace, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if check and done.returncode:
        raise AssertionError(f"helm {' '.join(arguments)}: {done.stderr}")
    return done.stdout + done.stderr


class Release:
    """A release of a chart whose value `replicaCount` is `spec.replicas` of its Deployment."""

    def __init__(self, plane: Plane, folder: Path, app: App) -> None:
        self._plane, self._app, self._chart = plane, app, folder / app.name
        (self._chart / "templates").mkdir(parents=True)
        head = {"apiVersion": "v2", "name": app.name, "version": "0.1.0"}
        (self._chart / "Chart.yaml").write_text(yaml.safe_dump(head))
        manifest = app.manifest()
        manifest["spec"]["replicas"] = PLACE
        text = yaml.safe_dump(manifest).replace(PLACE, "{{ .Values.replicaCount }}")
        (self._chart / "templates" / "deployment.yaml").write_text(text)

    def __call__(self, replicas: int) -> None:
        """Install or upgrade the release with this number of replicas."""
        values = ("--set", f"replicaCount={replicas}")
        arguments = ("upgrade", "--install", self._app.name, str(self._chart), *values)
        helm(self._plane, "default", *arguments)

    def uninstall(self) -> None:
        """Uninstall the release."""
        helm(self._plane, "default", "uninstall", self._app.name, "--ignore-not-found")


def helm_version(plane: Plane) -> str:
    """Return the version of Helm."""
    return helm(plane, "default", "version", "--template", "{{.Version}}")
