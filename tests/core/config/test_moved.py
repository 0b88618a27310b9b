"""Former settings are errors that name what to write today."""

import pytest

from core.config.document import parse
from core.config.moved import MOVED
from core.config.schema import settings
from core.config.settings import API_VERSION, KIND
from core.model.errors import ConfigError


def nested(path: str) -> dict[str, object]:
    """Return a document with the setting *path*; its value does not matter."""
    value: object = 1
    for part in reversed(path.split(".")):
        value = {part.removesuffix("[]"): [value] if part.endswith("[]") else value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("path", MOVED)
def test_a_former_setting_is_refused_with_what_replaces_it(path: str) -> None:
    document = {"apiVersion": API_VERSION, "kind": KIND, **nested(path)}
    with pytest.raises(ConfigError) as refused:
        parse(document, "ebb.yaml")
    shown = path.replace("[]", "[0]")
    assert f"{shown}: {MOVED[path]}" in refused.value.faults


def test_no_former_setting_exists() -> None:
    assert not MOVED.keys() & {setting.path for setting in settings()}
