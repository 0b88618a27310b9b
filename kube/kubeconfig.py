"""Read a kubeconfig by kubectl's rules: merge files, choose a context, run an exec plugin.

Errors name the field, its value and the allowed values. The kubernetes package and the plugins
check the fields that are not checked here.

The rules: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/

The fields: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1

The package merges differently: it takes the current context of the last file.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlsplit

import yaml

from core.model.errors import InvalidInputError
from kube import plugin
from kube.target import Overrides, Target

BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a file, as in client-go."""

KIND: Final = "Config"
LISTS: Final = ("clusters", "contexts", "users")
WHOLE: Final = f"a kubeconfig, a mapping of {', '.join(LISTS)} and more"
FILES: Final = (
    "certificate-authority", "client-certificate", "client-key", "tokenFile",
)  # fmt: skip
"""Fields of clusters and users with file names, relative to the folder of their kubeconfig."""
CONNECTIONS: Final = ("proxy-url", "tls-server-name")
"""Fields of clusters that say how to connect to the server."""
SHOWN_CHARS_MAX: Final = 80
"""Maximum length of a value in a message; the value may be a whole file."""
HIDDEN: Final = "a URL with @"
"""Shown instead of a URL that may contain them."""
NAMES_SHOWN_MAX: Final = 20

Fault = tuple[str, object, str]
"""Field, value, and allowed values."""

IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")
"""Fields of a user that select whom to impersonate."""
NO_OVERRIDES: Final = Overrides()
HEADER_SIGNS: Final = "!#$&'*+^`|"
"""Characters in header names that are not escaped; "%" is escaped, as in client-go."""


@dataclass(frozen=True, slots=True)
class Access:
    """The content of a kubeconfig that a client needs: the API server, and the credentials."""

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
    """Read a kubeconfig, run the exec plugin of its user, and return the access that they give.

    *kubeconfig*: one file or several, separated as in $KUBECONFIG. *context*: name of the context;
    None: the current context. *overrides*: options of the command line.

    Raises: InvalidInputError if a file, context, server or the plugin's credentials are missing,
    or a file is not a kubeconfig; AttributeError, KeyError, TypeError, ValueError for an invalid
    plugin.
    """
    existing = _existing(kubeconfig)
    if not existing:
        raise InvalidInputError(kubeconfig, "no such file")
    whole = _merged(existing)
    if context is not None:
        names = [entry["name"] for entry in whole["contexts"]]
        if context not in names:
            known = ", ".join(names) or "none"
            raise InvalidInputError(kubeconfig, f"no context {context!r}; there are: {known}")
        whole["current-context"] = context
    _replace_entries(whole, overrides, kubeconfig)
    _check_chosen(whole, kubeconfig)
    chosen = _named(whole, "context", whole["current-context"])
    cluster = _named(whole, "cluster", chosen["cluster"])
    user = _named(whole, "user", chosen.get("user"))
    if overrides.user is not None:
        # As kubectl does, the impersonation of the command line replaces that of the file.
        user = {name: value for name, value in user.items() if name not in IMPERSONATION}
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


def entry_names(kubeconfig: str, section: str) -> list[str]:
    """Return the names of the entries of a section of a kubeconfig, such as contexts.

    *kubeconfig*: as for `load`. Raises: InvalidInputError if a file is not a kubeconfig.
    """
    return [entry["name"] for entry in _merged(_existing(kubeconfig))[section]]


def _existing(kubeconfig: str) -> list[Path]:
    return [Path(path) for path in kubeconfig.split(os.pathsep) if path and Path(path).exists()]


def _replace_entries(whole: dict[str, Any], overrides: Overrides, source: str) -> None:
    """Replace cluster and user of the current context by those of the command line, as kubectl.

    *whole*: merged files, from *source*. Raises: InvalidInputError if there is no such entry.
    """
    for section, name in (("cluster", overrides.cluster_entry), ("user", overrides.user_entry)):
        if name is None:
            continue
        known = {entry["name"]: None for entry in whole[f"{section}s"]}
        if name not in known:
            raise _invalid(source, f"--{section}", name, _one_of(known, f"{section}s"))
        for entry in whole["contexts"]:
            if entry["name"] == whole.get("current-context"):
                entry["context"][section] = name


def _certificate_files(user: Mapping[str, Any]) -> tuple[Path, Path] | None:
    """Return the files of a user's client certificate and its key.

    None if the user has no such files, or if the kubeconfig contains the certificate or the key.
    """
    names = "client-certificate", "client-key"
    certificate, key = (user.get(name) for name in names)
    inline = any(user.get(f"{name}-data") for name in names)
    return (Path(certificate), Path(key)) if certificate and key and not inline else None


async def _run_plugin(user: dict[str, Any], cluster: Mapping[str, Any]) -> plugin.PluginRun | None:
    """Run the exec plugin of a user; return its result, or None if the user has no plugin.

    The credentials are set in *user*, where they take precedence over a token file. *cluster*: the
    entry of the cluster, which the plugin may ask for.
    """
    if "exec" not in user or "auth-provider" in user:
        return None
    given = user.pop("exec")
    run = await plugin.run(given, plugin.spec_for(given, cluster))
    if "token" in run.fields:
        user.pop("tokenFile", None)
    user |= run.fields
    return run


def impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the HTTP headers for the impersonation that a kubeconfig's user asks for.

    Each header is a name and a value; a name may occur several times. Empty if the user
    impersonates nobody. Source: client-go/transport/round_trippers.go; the kubernetes package does
    not support impersonation.
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
    """Merge kubeconfig files: the first entry of a name and the first current context win.

    Returns: a document like one kubeconfig, with absolute paths of files.
    """
    whole: dict[str, Any] = {field: [] for field in LISTS}
    for path in paths:
        document = _document(path)
        for field in LISTS:
            known = {entry["name"] for entry in whole[field]}
            for entry in document.get(field) or ():
                if entry["name"] not in known:
                    whole[field].append(_absolute(entry, field.removesuffix("s"), path.parent))
        if not whole.get("current-context") and document.get("current-context"):
            whole["current-context"] = document["current-context"]
    return whole


def _document(path: Path) -> Mapping[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            document = yaml.safe_load(file.read(BYTES_MAX))
    except OSError as fault:
        raise InvalidInputError(str(path), fault.strerror or str(fault)) from fault
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        raise InvalidInputError(str(path), f"not YAML: {' '.join(str(fault).split())}") from fault
    if document is None:
        raise InvalidInputError(str(path), f"the file is empty; allowed: {WHOLE}")
    for field, value, allowed in _faults(document):
        raise _invalid(str(path), field, value, allowed)
    return document  # type: ignore[no-any-return]  # a document without a fault is a mapping


def _absolute(entry: Mapping[str, Any], section: str, folder: Path) -> dict[str, Any]:
    fields = dict(entry.get(section) or {})
    for field in FILES:
        if fields.get(field):
            fields[field] = str(folder / fields[field])
    plugin_ = fields.get("exec")
    if plugin_ and os.sep in plugin_["command"]:
        fields["exec"] = {**plugin_, "command": str(folder / plugin_["command"])}
    return {**entry, section: fields}


def _named(whole: Mapping[str, Any], section: str, name: object) -> dict[str, Any]:
    matching = (entry[section] for entry in whole[f"{section}s"] if entry["name"] == name)
    return next(matching, {})


def _check_chosen(whole: Mapping[str, Any], source: str) -> None:
    """Check that the current context of merged files has a server, and a valid user if any.

    Raises: InvalidInputError.
    """
    contexts, clusters = (
        {entry["name"]: entry[section] for entry in whole[f"{section}s"]}
        for section in ("context", "cluster")
    )
    current = whole.get("current-context")
    if current not in contexts:
        raise _invalid(source, "current-context", current, _one_of(contexts, "contexts"))
    name = contexts[current].get("cluster")
    if name not in clusters:
        field = f"contexts[{current}].context.cluster"
        raise _invalid(source, field, name, _one_of(clusters, "clusters"))
    for field, value, allowed in _faults_of_server(clusters[name]):
        raise _invalid(source, f"clusters[{name}].cluster.{field}", value, allowed)
    users: dict[object, Any] = {entry["name"]: entry["user"] for entry in whole["users"]}
    name = contexts[current].get("user")
    for field, value, allowed in _faults_of_user(users.get(name, {})):
        raise _invalid(source, f"users[{name}].user.{field}", value, allowed)


def _faults_of_server(cluster: Mapping[str, Any]) -> Iterator[Fault]:
    server = cluster.get("server")
    text = server if isinstance(server, str) else ""
    parts = _url(text)
    https = text.startswith(("https://", "http://"))
    if "@" in text:  # aiohttp rejects such a URL with a token
        yield (
            "server",
            HIDDEN,
            "https://host:port, with username and password in the fields of the user",
        )
    elif parts is None or not https or not _is_host(parts.hostname):
        yield "server", server, "https://host:port"
    proxy, name = (cluster.get(field) or "" for field in CONNECTIONS)
    parts = _url(proxy)
    if proxy and (parts is None or not _is_host(parts.hostname)):
        yield "proxy-url", HIDDEN if "@" in proxy else proxy, "http://host:port"
    if name and not _is_host(name):
        yield "tls-server-name", name, "the name of a host"


def _url(text: str) -> SplitResult | None:
    """Return the parts of a URL; None if it is not valid."""
    if not text.isprintable():  # urlsplit removes some of these characters
        return None
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _is_host(name: str | None) -> bool:
    """Return whether a TLS connection can be made to a host of this name."""
    if not name or name.startswith(".") or not name.isprintable() or " " in name:
        return False
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def _faults_of_user(user: Mapping[str, Any]) -> Iterator[Fault]:
    plugin = user.get("exec")
    if plugin and not isinstance(version := plugin.get("apiVersion"), str):
        yield "exec.apiVersion", version, "a version, such as client.authentication.k8s.io/v1"
    for field in ("as", "as-uid"):
        if not (user.get(field) is None or _is_line(user[field])):
            yield field, user[field], "a text of one line"
    groups, extra = user.get("as-groups"), user.get("as-user-extra")
    if not (groups is None or _are_lines(groups)):
        yield "as-groups", groups, "a list of texts of one line"
    if extra is not None and not (
        isinstance(extra, dict)
        and all(_is_line(key) and _are_lines(values) for key, values in extra.items())
    ):
        yield "as-user-extra", extra, "a mapping of texts to lists of texts of one line"
    if (user.get("as-uid") or groups or extra) and not user.get("as"):
        yield "as", None, "a user name, because as-uid, as-groups or as-user-extra is set"


def _are_lines(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_line, value))


def _is_line(value: object) -> bool:
    """Return whether *value* is a text that can be sent as a header; client-go rejects others."""
    return isinstance(value, str) and value.isprintable()


def _invalid(source: str, field: str, value: object, allowed: str) -> InvalidInputError:
    shown = "missing" if value is None else f"{value!r:.{SHOWN_CHARS_MAX}}"
    return InvalidInputError(source, f"{field}: {shown}; allowed: {allowed}")


def _one_of(names: Mapping[str, object], section: str) -> str:
    if not names:
        return f"one of the {section}, but the kubeconfig has none"
    shown = ", ".join(list(names)[:NAMES_SHOWN_MAX])
    more = len(names) - NAMES_SHOWN_MAX
    return f"one of the {section}: {shown}" + (f" and {more} more" if more > 0 else "")


def _faults(document: object) -> Iterator[Fault]:
    if not isinstance(document, dict):
        yield "document", document, WHOLE
        return
    if document.get("kind") not in (None, KIND):
        yield "kind", document["kind"], KIND
    current = document.get("current-context")
    if current is not None and not isinstance(current, str):
        yield "current-context", current, "the name of a context"
    for field in LISTS:
        entries = document.get(field)
        if entries is not None and not isinstance(entries, list):
            yield field, entries, "a list"
            continue
        names: set[str] = set()
        for number, entry in enumerate(entries or ()):
            yield from _faults_of_entry(entry, field.removesuffix("s"), f"{field}[{number}]")
            if entry["name"] in names:  # client-go rejects it too
                yield f"{field}[{number}].name", entry["name"], "a unique name"
            names.add(entry["name"])


def _faults_of_entry(entry: object, section: str, path: str) -> Iterator[Fault]:
    if not isinstance(entry, dict):
        yield path, entry, f"a mapping of name and {section}"
        return
    if not isinstance(entry.get("name"), str):
        yield f"{path}.name", entry.get("name"), "a name"
    fields = entry.get(section)
    if fields is not None and not isinstance(fields, dict):
        yield f"{path}.{section}", fields, "a mapping"
        return
    for field in (*FILES, *CONNECTIONS, "cluster", "user"):
        value = (fields or {}).get(field)
        if value is not None and not isinstance(value, str):
            yield f"{path}.{section}.{field}", value, "a text"
    yield from _faults_of_plugin((fields or {}).get("exec"), f"{path}.{section}.exec")


def _faults_of_plugin(plugin: object, path: str) -> Iterator[Fault]:
    if plugin is None:
        return
    if not isinstance(plugin, dict):
        yield path, plugin, "a mapping of command, apiVersion and more"
    elif not isinstance(plugin.get("command"), str):
        yield f"{path}.command", plugin.get("command"), "the command of the plugin"
