"""Watch files that change while a program runs: certificates and the configuration.

Kubernetes updates the files of a mounted volume by switching a symbolic link, so links are
resolved before files are compared.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

FILES_SECONDS: Final = 10.0
"""Interval between checks of the files; the kubelet takes up to a minute to update them."""

Act = Callable[[], Awaitable[bool]]
"""Handles a change and returns whether it has succeeded; if not, it is called again."""


class FileChanges:
    """Detect changes of files since this object was created.

    Create the object before the files are first read. Otherwise it misses a change between that
    read and the call of `run`, while the program connects to the cluster.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = [Path(path) for path in paths]
        self._last = _fingerprint(self._paths)

    async def run(self, act: Act, every_seconds: float = FILES_SECONDS) -> None:
        """Call *act* after a file has changed, and again until *act* returns True.

        Checks the files every *every_seconds*, until cancelled.
        """
        done = True
        while True:
            await asyncio.sleep(every_seconds)
            current = _fingerprint(self._paths)
            if current != self._last or not done:
                self._last, done = current, await act()


def _fingerprint(paths: Iterable[Path]) -> list[tuple[str, int, int, int]]:
    """Return path, modification time, inode and size of each file; zeros if it is missing."""
    current = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            current.append(("", 0, 0, 0))
        else:
            where = str(path.resolve())
            current.append((where, status.st_mtime_ns, status.st_ino, status.st_size))
    return current
