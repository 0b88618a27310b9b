"""All settings as JSON Schema."""

from typing import Any

from cli.answers import SettingsSchema
from core.config.schema import schema


def document(_: SettingsSchema) -> dict[str, Any]:
    """Return the JSON Schema of a configuration file."""
    return schema()
