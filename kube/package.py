"""Import the asyncio client of the kubernetes package without the rest of the package."""

# `import kubernetes` runs the package's __init__.py, which imports a second client and several
# libraries that Ebb does not use. They take 9 MB of memory and a tenth of a second. Python runs
# no package that is already in `sys.modules`. So the loop puts empty modules there, and Python
# imports only the submodules that are named below.

import sys
from importlib.util import find_spec, module_from_spec

for _name in ("kubernetes", "kubernetes.aio"):
    if _name not in sys.modules and (_spec := find_spec(_name)) is not None:
        sys.modules[_name] = module_from_spec(_spec)

from kubernetes.aio import client, config  # noqa: E402
from kubernetes.aio.client.exceptions import ApiException  # noqa: E402
from kubernetes.aio.config import ConfigException, incluster_config  # noqa: E402

__all__ = ["ApiException", "ConfigException", "client", "config", "incluster_config"]
