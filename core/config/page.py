"""The page about the settings: docs/configuration.md."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from core.config.schema import Setting, allowed, settings
from core.policies.all import POLICIES

HEAD: Final = """# Configuration

Written by `make fix` from the settings themselves. `ebb config schema` prints them as JSON
Schema, for editors; `ebb config validate FILE...` names every fault of a file at once. What is
missing, or null, has its default; the schema refuses null, so that an editor shows a value
that was forgotten.

One file serves all programs; each ignores the sections of the others. `ebb-controller` reads a
changed file again, all of it or nothing. A program named under *restart* reads the setting only
when it starts. `ebb-controller` refuses a changed file in which such a setting of its own differs;
restart it to use that file.

| setting | default | allowed | meaning | restart |
|---|---|---|---|---|
"""


POLICY_HEAD: Final = """
## Under another policy

`thresholds`, `leaveThresholds`, those of `pools`, `usability` and `prices` are ClusterThreshold's
alone: under another policy they decide nothing. What a file does not say has these defaults then;
what it says wins. docs/policies.md has the rules.

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
    """Return the page as Markdown."""
    return HEAD + "".join(_row(one) for one in settings()) + POLICY_HEAD + "".join(_policies())


def _row(one: Setting) -> str:
    default = one.schema.get("default")
    plain = str(default).lower() if isinstance(default, bool) else default
    plain = f"[{', '.join(default)}]" if isinstance(default, list) else plain
    cells = (
        f"`{one.path}`",
        "" if plain is None else f"`{plain}`",
        allowed(one.schema).replace("|", "\\|"),
        one.schema.get("description", "").replace("\n", " "),
        ", ".join(one.restart),
    )
    return f"| {' | '.join(cells)} |\n"
