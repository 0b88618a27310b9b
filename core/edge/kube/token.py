"""A token that is kept in a file, which somebody else renews: read for every call.

The package reads the one of a kubeconfig once, and that of a pod by the wall clock, which may
jump. Both live for about an hour.
"""

from pathlib import Path
from typing import Any, Final

TOKEN_CHARACTERS_MAX: Final = 100_000


def follow(file: Path, name: str, settings: Any) -> None:  # noqa: ANN401 the package's own
    """Let the package give every call, as its key *name*, the token that stands in *file* then.

    As long as the file is missing, empty or not text, the token before goes on.
    """

    def refresh(settings: Any) -> None:  # noqa: ANN401 the package's own
        try:
            with file.open(encoding="utf-8") as opened:
                found = opened.read(TOKEN_CHARACTERS_MAX).strip()
        except (OSError, ValueError):
            return
        if found and found.isprintable():
            settings.api_key[name] = f"Bearer {found}"

    settings.refresh_api_key_hook = refresh
