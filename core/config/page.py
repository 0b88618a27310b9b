"""Write the page about the settings: docs/configuration.md."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from core.config.schema import Setting, allowed, settings
from core.policies.all import POLICIES

HEAD: Final = """# Configuration

`make fix` generates this page from the settings in `core/config`. `ebb config schema` prints the
settings as JSON Schema for editors. `ebb config validate FILE...` reports all errors of a file at
once. A setting that is missing or null has its default. The schema rejects null, so that an
editor shows a forgotten value.

One file serves all programs; each program ignores the sections of the others. `ebb-controller`
reloads a changed file completely or, if it has an error, not at all. A program in the column
*restart* reads the setting only when it starts. `ebb-controller` rejects a changed file that
changes such a setting of its own; restart `ebb-controller` to use the file.

| setting | default | allowed | meaning | restart |
|---|---|---|---|---|
"""


POLICY_HEAD: Final = """
## Defaults of other policies

Only ClusterThreshold uses `thresholds`, `releaseThresholds` (also those of `pools`), `usability`
and the order of `prices`. Other policies ignore these settings and have the following defaults. A
value in the file takes precedence. docs/policies.md describes the rules.

| policy | setting | default |
|---|---|---|
"""


def _policies() -> Iterator[str]:
    for name, policy in POLICIES.items():
        for path, default in _paths(policy.defaults):
            yield f"| {name} | `{path}` | `{default}` |\n"


def _paths(given: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, object]]:
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _paths(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def page() -> str:
    """Return docs/configuration.md, as Markdown."""
    return (
        HEAD
        + "".join(_row(setting) for setting in settings())
        + POLICY_HEAD
        + "".join(_policies())
    )


def _row(setting: Setting) -> str:
    default = setting.schema.get("default")
    plain = str(default).lower() if isinstance(default, bool) else default
    plain = f"[{', '.join(default)}]" if isinstance(default, list) else plain
    cells = (
        f"`{setting.path}`",
        "" if plain is None else f"`{plain}`",
        allowed(setting.schema).replace("|", "\\|"),
        setting.schema.get("description", "").replace("\n", " "),
        ", ".join(setting.restart),
    )
    return f"| {' | '.join(cells)} |\n"
