"""Check that a kubeconfig can be used; each fault names field, value and allowed values.

The package and the plugins check the rest. Source:
kubernetes.io/docs/reference/config-api/kubeconfig.v1.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from core.model.errors import InvalidInputError

KIND: Final = "Config"
LISTS: Final = ("clusters", "contexts", "users")
WHOLE: Final = f"a kubeconfig, a mapping of {', '.join(LISTS)} and more"
FILES: Final = (
    "certificate-authority", "client-certificate", "client-key", "tokenFile",
)  # fmt: skip
"""Fields of clusters and users with file names, relative to the folder of their kubeconfig."""
SHOWN_CHARS_MAX: Final = 80
"""Maximum length of a value in a message; the value may be a whole file."""
NAMES_SHOWN_MAX: Final = 20

Fault = tuple[str, object, str]
"""Field, value, and allowed values."""


def checked(document: object, source: str) -> Mapping[str, Any]:
    """Return the document of a file. Raises: InvalidInputError for its first fault."""
    if document is None:
        raise InvalidInputError(source, f"the file is empty; allowed: {WHOLE}")
    for field, value, allowed in _faults(document):
        raise refused(source, field, value, allowed)
    return document  # type: ignore[return-value]  # a document without a fault is a mapping


def check_chosen(whole: Mapping[str, Any], source: str) -> None:
    """Check that the current context of merged files has a server. Raises: InvalidInputError."""
    contexts, clusters = (
        {one["name"]: one[what] for one in whole[f"{what}s"]} for what in ("context", "cluster")
    )
    current = whole.get("current-context")
    if current not in contexts:
        raise refused(source, "current-context", current, _one_of(contexts, "contexts"))
    name = contexts[current].get("cluster")
    if name not in clusters:
        field = f"contexts[{current}].context.cluster"
        raise refused(source, field, name, _one_of(clusters, "clusters"))
    server = clusters[name].get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        field = f"clusters[{name}].cluster.server"
        raise refused(source, field, server, "https://host:port")
    users: dict[object, Any] = {one["name"]: one["user"] for one in whole["users"]}
    name = contexts[current].get("user")
    for field, value, allowed in _faults_of_user(users.get(name, {})):
        raise refused(source, f"users[{name}].user.{field}", value, allowed)


def _faults_of_user(user: Mapping[str, Any]) -> Iterator[Fault]:
    plugin = user.get("exec")
    if plugin and not isinstance(version := plugin.get("apiVersion"), str):
        yield "exec.apiVersion", version, "a version, as client.authentication.k8s.io/v1"
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
        yield "as", None, "a user name, as as-uid, as-groups or as-user-extra is set"


def _are_lines(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_line, value))


def _is_line(value: object) -> bool:
    """Return whether the text can be a header; client-go rejects other texts."""
    return isinstance(value, str) and value.isprintable()


def refused(source: str, field: str, value: object, allowed: str) -> InvalidInputError:
    """Return the error for a field."""
    shown = "missing" if value is None else f"{value!r:.{SHOWN_CHARS_MAX}}"
    return InvalidInputError(source, f"{field}: {shown}; allowed: {allowed}")


def _one_of(names: Mapping[str, object], what: str) -> str:
    told = ", ".join(list(names)[:NAMES_SHOWN_MAX]) or "there are none"
    more = len(names) - NAMES_SHOWN_MAX
    return f"one of the {what}: {told}" + (f" and {more} more" if more > 0 else "")


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
            yield from _of_entry(entry, field.removesuffix("s"), f"{field}[{number}]")
            if entry["name"] in names:  # client-go rejects it too
                yield f"{field}[{number}].name", entry["name"], "a unique name"
            names.add(entry["name"])


def _of_entry(entry: object, what: str, path: str) -> Iterator[Fault]:
    if not isinstance(entry, dict):
        yield path, entry, f"a mapping of name and {what}"
        return
    if not isinstance(entry.get("name"), str):
        yield f"{path}.name", entry.get("name"), "a name"
    about = entry.get(what)
    if about is not None and not isinstance(about, dict):
        yield f"{path}.{what}", about, "a mapping"
        return
    for field in (*FILES, "cluster", "user"):
        value = (about or {}).get(field)
        if value is not None and not isinstance(value, str):
            yield f"{path}.{what}.{field}", value, "a text"
    yield from _of_plugin((about or {}).get("exec"), f"{path}.{what}.exec")


def _of_plugin(plugin: object, path: str) -> Iterator[Fault]:
    if plugin is None:
        return
    if not isinstance(plugin, dict):
        yield path, plugin, "a mapping of command, apiVersion and more"
    elif not isinstance(plugin.get("command"), str):
        yield f"{path}.command", plugin.get("command"), "the command of the plugin"
