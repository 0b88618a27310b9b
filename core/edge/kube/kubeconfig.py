"""A kubeconfig by kubectl's rules: several files merged, one context, a plugin that is asked.

The rules: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
The package merges otherwise: its last file says which context is the current one.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml

from core.edge.kube import plugin
from core.edge.kube.shape import FILES, LISTS, check_chosen, checked
from core.model.errors import InvalidInputError

BYTES_MAX: Final = 1024 * 1024
"""Of one file: client-go's own bound."""

HEADER_SIGNS: Final = "!#$&'*+^`|"
"""What a header's name may have beside what is never escaped; "%" itself is, as in client-go."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a kubeconfig says of one server and of whoever calls it."""

    document: dict[str, Any]
    """The files as one, with the context as its current one and a plugin's answer in its place."""
    token_file: Path | None
    """Where that is what says who is calling."""
    asked: plugin.Asked | None
    """A plugin, if one says so."""
    impersonation: list[tuple[str, str]]
    """Headers of every call, in which a name may stand several times."""


async def load(kubeconfig: str, context: str | None) -> Access:
    """Read *kubeconfig*, one file or several as $KUBECONFIG names them.

    Raises: InvalidInputError for no such file, context, server or plugin's answer, and for what is
    no kubeconfig; AttributeError, KeyError, TypeError, ValueError for a plugin that is none.
    """
    paths = [Path(path) for path in kubeconfig.split(os.pathsep) if path]
    found = [path for path in paths if path.exists()]
    if not found:
        raise InvalidInputError(kubeconfig, "no such file")
    whole = _merged(found)
    if context is not None:
        if all(one["name"] != context for one in whole["contexts"]):
            known = ", ".join(one["name"] for one in whole["contexts"]) or "none"
            raise InvalidInputError(kubeconfig, f"no context {context!r}; there are: {known}")
        whole["current-context"] = context
    check_chosen(whole, kubeconfig)
    chosen = _named(whole, "context", whole["current-context"])
    cluster = _named(whole, "cluster", chosen["cluster"])
    user = _named(whole, "user", chosen.get("user"))
    asked = await _asked(user, cluster)
    file = None if "auth-provider" in user else user.get("tokenFile")
    return Access(whole, Path(file) if file else None, asked, _impersonation(user))


async def _asked(user: dict[str, Any], cluster: Mapping[str, Any]) -> plugin.Asked | None:
    """Ask the plugin that a user has, and put its answer into *user*, where its token counts."""
    if "exec" not in user or "auth-provider" in user:
        return None
    given = user.pop("exec")
    asked = await plugin.ask(given, plugin.told_of(given, cluster))
    if "token" in asked.fields:
        user.pop("tokenFile", None)
    user |= asked.fields
    return asked


def _impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers that ask the server to take the caller for somebody else.

    Source: client-go/transport/round_trippers.go; the package knows nothing of it.
    """
    headers = [
        (f"Impersonate-{name}", user[field])
        for name, field in (("User", "as"), ("Uid", "as-uid"))
        if user.get(field)
    ]
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        name = f"Impersonate-Extra-{quote(key, safe=HEADER_SIGNS)}"
        headers += [(name, value) for value in values]
    return headers


def _merged(paths: list[Path]) -> dict[str, Any]:
    """Merge files: of two entries of one name, and of two current contexts, the first counts."""
    whole: dict[str, Any] = {field: [] for field in LISTS}
    for path in paths:
        document = _document(path)
        for field in LISTS:
            known = {one["name"] for one in whole[field]}
            for one in document.get(field) or ():
                if one["name"] not in known:
                    whole[field].append(_absolute(one, field.removesuffix("s"), path.parent))
        if not whole.get("current-context") and document.get("current-context"):
            whole["current-context"] = document["current-context"]
    return whole


def _document(path: Path) -> Mapping[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            found = yaml.safe_load(file.read(BYTES_MAX))
    except OSError as fault:
        raise InvalidInputError(str(path), fault.strerror or str(fault)) from fault
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        raise InvalidInputError(str(path), f"not YAML: {' '.join(str(fault).split())}") from fault
    return checked(found, str(path))


def _absolute(entry: Mapping[str, Any], what: str, folder: Path) -> dict[str, Any]:
    about = dict(entry.get(what) or {})
    for field in FILES:
        if about.get(field):
            about[field] = str(folder / about[field])
    plugin_ = about.get("exec")
    if plugin_ and os.sep in plugin_["command"]:
        about["exec"] = {**plugin_, "command": str(folder / plugin_["command"])}
    return {**entry, what: about}


def _named(whole: Mapping[str, Any], what: str, name: object) -> dict[str, Any]:
    every = (one[what] for one in whole[f"{what}s"] if one["name"] == name)
    return next(every, {})
