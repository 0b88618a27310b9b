"""A program of Ebb as in a pod: with mounted files, and its own proxy to the API server."""

import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kube.target import NAMESPACE
from tests.e2e.api import Json, RefusedError
from tests.e2e.install import ACCOUNTS, plain_url
from tests.e2e.line import Line
from tests.e2e.objects import PODS
from tests.e2e.plane import Ebb, Plane, config_file, flags_of, until

SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


class Mounted:
    """Files like those of a mounted ConfigMap, behind a symbolic link that is swapped."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self._number = folder, 0

    def swap(self, files: Mapping[str, str]) -> None:
        """Replace the files atomically, as the kubelet does."""
        self._number += 1
        version = self.folder / f"..version_{self._number}"
        version.mkdir()
        for name, text in files.items():
            (version / name).write_text(text)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")


class Replica:
    """A program that can be killed, restarted, reconfigured, and given a new token."""

    def __init__(self, plane: Plane, module: str, settings: Json, name: str) -> None:
        self._plane, self.module, self.settings, self.name = plane, module, settings, name
        self.line = Line(plane, f"line-{name}")
        self.etc, self._pod = (Mounted(plane.folder / f"{part}-{name}") for part in ("etc", "pod"))
        self.configure()
        self._tokens = 0
        self._give_token()
        self.ebb = self.start()

    def configure(self, **changed: Any) -> None:
        """Replace the configuration."""
        self.etc.swap({"config.yaml": config_file({**self.settings, **changed})})

    def start(self) -> Ebb:
        """Start the program."""
        address = urlsplit(self.line.url)
        config = self.etc.folder / "config.yaml"
        flags = flags_of(self.settings, self.module)
        launcher = [sys.executable, "-m", "tests.e2e.incluster", str(self._pod.folder)]
        program = self._plane.run(
            self.name,
            [*launcher, self.module, "--config", str(config), *flags],
            POD_NAME=self.name,
            POD_NAMESPACE=NAMESPACE,
            KUBERNETES_SERVICE_HOST=str(address.hostname),
            KUBERNETES_SERVICE_PORT=str(address.port),
        )
        url = plain_url(self.module, self.settings)
        return Ebb(self._plane, program, url, self.settings, config)

    def kill(self) -> None:
        """Kill the program with SIGKILL."""
        self.ebb.stop(signal.SIGKILL)

    def restart(self) -> None:
        """Restart the program, as a kubelet does."""
        self.ebb = self.start()

    def rotate_token(self) -> Callable[[], None]:
        """Mount a new token; return a function that invalidates the old token and waits for it."""
        before, secret = self._token, self._bound
        self._give_token()

        def refused() -> bool:
            try:
                self._plane.api_as(None, before).get(PODS)
            except RefusedError as fault:
                return fault.status == 401
            return False

        def end() -> None:
            self._plane.api.delete(secret)
            until(refused, f"the old token of {self.name} is refused")

        return end

    def _give_token(self) -> None:
        """Mount a token that is bound to a Secret, so that it can be invalidated."""
        self._tokens += 1
        name = f"{self.name}-token-{self._tokens}"
        made = self._plane.api.create(SECRETS, {"metadata": {"name": name}})
        bound = {
            "apiVersion": "v1",
            "kind": "Secret",
            "name": name,
            "uid": made["metadata"]["uid"],
        }
        self._bound = f"{SECRETS}/{name}"
        self._token = self._plane.token(NAMESPACE, ACCOUNTS[self.module], boundObjectRef=bound)
        ca = self._plane.authority.certificate.read_text()
        self._pod.swap({"token": self._token, "ca.crt": ca})


def leads(one: Replica) -> bool:
    """Return whether a replica reports that it leads."""
    return one.ebb.metric("ebb_leader") == 1
