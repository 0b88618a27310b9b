"""The page about the settings: docs/configuration.md."""

from typing import Final

from core.config.schema import Setting, allowed, settings

HEAD: Final = """# Configuration

Written by `make fix` from the settings themselves. `ebb config schema` prints them as JSON
Schema, for editors; `ebb config validate FILE...` names every fault of a file at once. What is
missing, or null, has its default.

`ebb-webhook` reads a changed file anew, whole or not at all. Where a program stands under
*restart*, it reads the setting once, when it starts; until then `ebb-webhook` refuses a file
in which such a setting of its own has changed.

| setting | default | allowed | meaning | restart |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the page as Markdown."""
    return HEAD + "".join(_row(one) for one in settings())


def _row(one: Setting) -> str:
    default = one.schema.get("default")
    plain = str(default).lower() if isinstance(default, bool) else default
    cells = (
        f"`{one.path}`",
        "" if plain is None else f"`{plain}`",
        allowed(one.schema).replace("|", "\\|"),
        one.schema.get("description", "").replace("\n", " "),
        ", ".join(one.restart),
    )
    return f"| {' | '.join(cells)} |\n"
