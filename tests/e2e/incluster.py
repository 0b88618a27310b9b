"""Start a program as in a pod: `python -m tests.e2e.incluster FOLDER MODULE ARGUMENTS`.

FOLDER has the files of the pod.
"""

import runpy
import sys
from typing import Any

from kubernetes.aio.config import incluster_config


def main() -> None:
    _, folder, module, *arguments = sys.argv
    package: Any = incluster_config
    package.SERVICE_TOKEN_FILENAME = f"{folder}/token"
    package.SERVICE_CERT_FILENAME = f"{folder}/ca.crt"
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
