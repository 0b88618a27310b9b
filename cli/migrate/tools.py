"""Convert a file with settings of any supported tool."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cli.migrate import cluster_autoscaler, node_compactor, node_refiner
from cli.migrate.settings_file import field, objects
from cli.migrate.tool import Migrated, SourceSetting, Tool
from cli.migrate.values import shown
from core.model.errors import InvalidInputError

TOOLS: Final[Sequence[Tool]] = (node_refiner.TOOL, node_compactor.TOOL, cluster_autoscaler.TOOL)
NAMES: Final = ", ".join(tool.name for tool in TOOLS)


def migrate(raw: bytes, source: str) -> tuple[Tool, Migrated]:
    """Convert the settings in a file; return the tool that they belong to, and the configuration.

    *source*: name of the file, for errors. Raises: ConfigError or InvalidInputError, with file,
    key and value; InvalidInputError also for settings of no tool, or of several.
    """
    documents = objects(raw, source)
    try:
        tool, of = _only(documents)
        made = tool.migrated(_merged(of.values()))
    except InvalidInputError as fault:
        where = f"{source}: {fault.where}" if fault.where else source
        raise InvalidInputError(where, fault.problem) from fault
    others = [_named(document) for number, document in enumerate(documents) if number not in of]
    made.notes.extend(f"{shown(other)}: holds no settings of {tool.name}" for other in others)
    return tool, made


def _only(documents: Sequence[object]) -> tuple[Tool, Mapping[int, Sequence[SourceSetting]]]:
    """Return the only tool with settings in these objects, and its settings by object number.

    Numbers are indexes of *documents*; objects without settings are left out. Raises:
    InvalidInputError if no tool or several tools have settings.
    """
    settings = {
        tool.name: {
            number: given
            for number, document in enumerate(documents)
            if (given := tool.settings_of(document))
        }
        for tool in TOOLS
    }
    ours = [tool for tool in TOOLS if settings[tool.name]]
    if len(ours) == 1:
        return ours[0], settings[ours[0].name]
    if not ours:
        raise InvalidInputError("", f"holds no settings of {NAMES}")
    raise InvalidInputError("", f"holds settings of {' and of '.join(tool.name for tool in ours)}")


def _merged(parts: Iterable[Sequence[SourceSetting]]) -> Sequence[SourceSetting]:
    """Return the settings of all objects together.

    Raises: InvalidInputError if two objects have the same setting.
    """
    merged: list[SourceSetting] = []
    seen: set[str] = set()
    for part in parts:
        keys = {setting.key for setting in part}
        if twice := seen & keys:
            raise InvalidInputError(shown(min(twice)), "set by several objects of the file")
        seen |= keys
        merged.extend(part)
    return merged


def _named(document: object) -> str:
    kind, name = field(document, "kind"), field(document, "metadata", "name")
    named = isinstance(kind, str) and isinstance(name, str)
    return f"{kind} {name}" if named else shown(document)
