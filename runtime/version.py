"""Read the version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

NAME = "kube-ebb"
NOT_INSTALLED = "unknown"
"""Version of a source tree that is not installed."""


def ebb_version() -> str:
    """Return the version of the installed package, or NOT_INSTALLED."""
    try:
        return version(NAME)
    except PackageNotFoundError:
        return NOT_INSTALLED
