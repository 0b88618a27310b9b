"""Starts a program of ours as in a pod, whose files stand in a folder: FOLDER MODULE ARGUMENTS.

The Kubernetes client reads a token file anew after a minute: too long for a test, so a second.
"""

import datetime as dt
import runpy
import sys
from typing import Any, Final

from kubernetes.aio.config import incluster_config

REFRESH: Final = dt.timedelta(seconds=1)


def main() -> None:
    _, folder, module, *arguments = sys.argv
    package: Any = incluster_config
    package.SERVICE_TOKEN_FILENAME = f"{folder}/token"
    package.SERVICE_CERT_FILENAME = f"{folder}/ca.crt"
    loader = package.InClusterConfigLoader

    def quick(**how: Any) -> Any:
        made = loader(**how)
        made._token_refresh_period = REFRESH
        return made

    package.InClusterConfigLoader = quick
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
