"""Files that change under a running program: certificates, and the configuration.

Kubernetes swaps a mounted volume's files by a symbolic link: what it leads to is looked at.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

FILES_SECONDS: Final = 10.0
"""How often is looked; the kubelet itself takes up to a minute."""

Act = Callable[[], Awaitable[bool]]
"""Returns whether it is done with what stands in the files now, or wants to look once more."""


class Changes:
    """Those of some files since this was made, which is to be before they are first read.

    Between that and the time when they are followed lies a connection to the cluster, and for that
    maybe a plugin of a kubeconfig.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = [Path(path) for path in paths]
        self._seen = _state(self._paths)

    async def follow(self, act: Act, every_seconds: float = FILES_SECONDS) -> None:
        """Act whenever one of the files has changed, and until it is done with that.

        Runs until cancelled.
        """
        done = True
        while True:
            await asyncio.sleep(every_seconds)
            found = _state(self._paths)
            if found != self._seen or not done:
                self._seen, done = found, await act()


def _state(paths: Iterable[Path]) -> list[tuple[str, int, int, int]]:
    """Return what tells one version of the files from another; a missing file is one too."""
    found = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            found.append(("", 0, 0, 0))
        else:
            where = str(path.resolve())
            found.append((where, status.st_mtime_ns, status.st_ino, status.st_size))
    return found
