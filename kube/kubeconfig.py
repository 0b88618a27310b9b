"""Read a kubeconfig by kubectl's rules: merge files, choose a context, run an exec plugin.

The rules: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
The package merges differently: it takes the current context of the last file.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml

from core.model.errors import InvalidInputError
from kube import plugin
from kube.shape import FILES, LISTS, check_chosen, checked
from kube.target import Overrides, Target

BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a file, as in client-go."""

IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")
"""Fields of a user that select whom to impersonate."""
NO_OVERRIDES: Final = Overrides()
HEADER_SIGNS: Final = "!#$&'*+^`|"
"""Characters in header names that are not escaped; "%" is escaped, as in client-go."""


@dataclass(frozen=True, slots=True)
class Access:
    """The server and the user of a kubeconfig."""

    target: Target

    document: dict[str, Any]
    """The merged files, with the chosen context as current, and credentials instead of a
    plugin."""
    token_file: Path | None
    """File with the user's token, if there is one."""
    certificate_files: tuple[Path, Path] | None
    """Files with the user's client certificate and its key, if there are any."""
    plugin_run: plugin.PluginRun | None
    """The plugin and its answer, if the user has one."""
    impersonation: list[tuple[str, str]]
    """Headers of every call for impersonation; a name may occur several times."""


async def load(
    kubeconfig: str, context: str | None, overrides: Overrides = NO_OVERRIDES
) -> Access:
    """Read *kubeconfig*, one or several files as in $KUBECONFIG.

    Raises: InvalidInputError if a file, context, server or the plugin's credentials are missing,
    or a file is not a kubeconfig; AttributeError, KeyError, TypeError, ValueError for an invalid
    plugin.
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
    if overrides.user is not None:
        # As kubectl does, the impersonation of the command line replaces that of the file.
        user = {name: one for name, one in user.items() if name not in IMPERSONATION}
        user |= overrides.as_user()
    run = await _run_plugin(user, cluster)
    file = None if "auth-provider" in user else user.get("tokenFile")
    target = Target(cluster["server"], whole["current-context"], chosen["cluster"])
    return Access(
        target=target,
        document=whole,
        token_file=Path(file) if file else None,
        certificate_files=_certificate_files(user),
        plugin_run=run,
        impersonation=impersonation(user),
    )


def _certificate_files(user: Mapping[str, Any]) -> tuple[Path, Path] | None:
    """Return the files of the client certificate and its key; None if the file has the data."""
    names = "client-certificate", "client-key"
    certificate, key = (user.get(name) for name in names)
    inline = any(user.get(f"{name}-data") for name in names)
    return (Path(certificate), Path(key)) if certificate and key and not inline else None


async def _run_plugin(user: dict[str, Any], cluster: Mapping[str, Any]) -> plugin.PluginRun | None:
    """Run the plugin of a user, and set its credentials in *user*, where they take precedence."""
    if "exec" not in user or "auth-provider" in user:
        return None
    given = user.pop("exec")
    run = await plugin.ask(given, plugin.spec_for(given, cluster))
    if "token" in run.fields:
        user.pop("tokenFile", None)
    user |= run.fields
    return run


def impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers for impersonation.

    Source: client-go/transport/round_trippers.go; the package does not support them.
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
    """Merge files: the first entry of a name and the first current context win."""
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
