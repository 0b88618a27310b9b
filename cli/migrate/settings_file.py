"""Read a file with another tool's settings: objects as JSON or YAML, or a command line."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final

from core.model.errors import InvalidInputError
from runtime.yaml_text import parse_yaml

_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_CONTINUED: Final = re.compile(r"\\\r?\n")
_FLAG: Final = re.compile(r"--?[A-Za-z]")
COMMAND_LINE_MAX: Final = 128 * 1024
"""Limit of a command line, as in Linux; shlex takes quadratic time in the length of a word."""
SHELL: Final = "-c"
"""Option of a shell after which the next word is a command line."""


def objects(raw: bytes, source: str) -> list[object]:
    """Return the objects in a file with settings, items of Kubernetes Lists one by one.

    A file with a command line has one object: the list of its words. *source*: name of the file,
    for errors. Raises: ConfigError, InvalidInputError.
    """
    plain = _COMMENT.sub("", _CONTINUED.sub(" ", raw.decode("utf-8", "replace"))).strip()
    first = plain.split(None, 1)[0] if plain else ""
    if _FLAG.match(first) or is_autoscaler(first):
        return [words(plain, source)]
    if first.startswith(("{", "[")):
        try:
            return list(_flat(parse_json(raw.decode("utf-8"), source)))
        except (InvalidInputError, UnicodeDecodeError):
            pass  # YAML may start with these characters too, and its error names the position
    return [item for document in parse_yaml(raw, source) for item in _flat(document)]


def parse_json(text: str, where: str) -> Any:  # noqa: ANN401 JSON holds anything
    """Parse JSON; numbers become text. Raises: InvalidInputError.

    *where*: name of the text, for errors.
    """
    try:
        return json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError) as fault:
        raise InvalidInputError(where, f"not JSON: {fault}") from fault


def words(text: str, where: str) -> list[str]:
    """Split a command line as a shell does. Raises: InvalidInputError.

    *where*: name of the text, for errors.
    """
    if len(text) > COMMAND_LINE_MAX:
        raise InvalidInputError(where, f"a command line longer than {COMMAND_LINE_MAX} characters")
    try:
        return shlex.split(text)
    except ValueError as fault:
        raise InvalidInputError(where, f"not a command line: {fault}") from fault


def field(value: object, *path: str) -> object:
    """Return the value at a path of keys in nested mappings; None if it does not exist."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def is_autoscaler(word: str) -> bool:
    """Return whether a word of a command line names Cluster Autoscaler's program."""
    return PurePath(word).name == "cluster-autoscaler"


def containers(workload: object) -> Iterator[object]:
    """Yield the containers in the pod template or spec of a workload.

    An object with `args` or `command` is a container itself, and is yielded.
    """
    if field(workload, "args") is not None or field(workload, "command") is not None:
        yield workload
    for spec in (field(workload, "spec", "template", "spec"), field(workload, "spec")):
        listed = field(spec, "containers")
        yield from listed if isinstance(listed, list) else ()


def _flat(document: object) -> Iterator[object]:
    items = field(document, "items")
    yield from items if isinstance(items, list) else [document]
