"""The settings for people."""

from rich.console import Console

from cli.terminal import Table, say
from core.config.schema import allowed, settings


def write(out: Console) -> None:
    """Write every setting with its default, what is allowed, and who reads it only once."""
    rows = (
        (one.path, str(one.schema.get("default", "")), allowed(one.schema), ", ".join(one.restart))
        for one in settings()
    )
    say(out, Table("setting", "default", "allowed", "restart", rows=rows, left=(0, 1, 2, 3)))
