"""A token that is kept in a file, which somebody else renews: read for every call.

The package reads the one of a kubeconfig once, and that of a pod by the wall clock, which may
jump. Both live for about an hour.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

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


def file_of(kubeconfig: str) -> Path | None:
    """Return the file of the token that the current user of a kubeconfig has.

    None when something else proves who is calling. Raises: AttributeError, TypeError, OSError,
    ValueError, YAMLError when it is not a kubeconfig.
    """
    document = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
    context = _named(document, "contexts", document.get("current-context")).get("context") or {}
    user = _named(document, "users", context.get("user")).get("user") or {}
    if "tokenFile" not in user or not _STRONGER.isdisjoint(user):
        return None
    return Path(kubeconfig).parent / str(user["tokenFile"])


_STRONGER: Final = frozenset({"auth-provider", "exec", "token"})
"""What the package takes before a token's file."""


def _named(document: Mapping[str, Any], field: str, name: str | None) -> Mapping[str, Any]:
    return next((entry for entry in document.get(field) or () if entry.get("name") == name), {})
