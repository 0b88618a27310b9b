"""Errors of the release builder."""


class ReleaseError(Exception):
    """The release cannot be built; the message says why and what to do."""


class NoIndexError(ReleaseError):
    """Executables need packages, and no package index is reachable."""
