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


async def on_change(paths: Iterable[str], act: Act, every_seconds: float = FILES_SECONDS) -> None:
    """Act whenever one of the files has changed since the call, and until it is done with that.

    Runs until cancelled.
    """
    watched = [Path(path) for path in paths]
    seen, done = _state(watched), True
    while True:
        await asyncio.sleep(every_seconds)
        found = _state(watched)
        if found != seen or not done:
            seen, done = found, await act()


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
