"""Read the version of the installed Ebb package."""

from importlib.metadata import PackageNotFoundError, version

NAME = "kube-ebb"
NOT_INSTALLED = "unknown"
"""Version of a source tree that is not installed."""


def ebb_version() -> str:
    """Return the version of the installed Ebb package; NOT_INSTALLED if there is none."""
    try:
        return version(NAME)
    except PackageNotFoundError:
        return NOT_INSTALLED
