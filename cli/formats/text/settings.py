"""All settings as text for people."""

from rich.console import Console

from cli.terminal import Table, say
from core.config.schema import allowed, settings


def write(out: Console) -> None:
    """Write every setting with its default, allowed values and programs that need a restart."""
    rows = (
        (
            setting.path,
            str(setting.schema.get("default", "")),
            allowed(setting.schema),
            ", ".join(setting.restart),
        )
        for setting in settings()
    )
    say(out, Table("setting", "default", "allowed", "restart", rows=rows, left=(0, 1, 2, 3)))
