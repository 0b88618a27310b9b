"""All settings as text for people."""

from rich.console import Console

from cli.answers import SettingsSchema
from cli.terminal import Table, say
from core.config.schema import allowed, settings


def write(_: SettingsSchema, out: Console) -> None:
    """Write every setting with its default, allowed values and programs that need a restart."""
    rows = (
        (one.path, str(one.schema.get("default", "")), allowed(one.schema), ", ".join(one.restart))
        for one in settings()
    )
    say(out, Table("setting", "default", "allowed", "restart", rows=rows, left=(0, 1, 2, 3)))
