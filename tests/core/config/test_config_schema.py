"""The settings as data: the schema and the reader say the same, and texts say what they say."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from core.config import schema as config_schema
from core.config.document import parse
from core.config.page import page
from core.config.schema import Schema, restart_needed, schema, written
from core.config.settings import Config
from core.fields.structure import CONTROLLER, EXTENDER, WEBHOOK
from core.model.errors import ConfigError
from tests.manifests.kustomize import COMPONENTS, EXAMPLES, of_kind, render
from tests.support.configurations import BEYOND, FAULTY, GOOD, HEAD, Change

ROOT = Path(__file__).parents[3]
VALIDATOR = Draft202012Validator(schema())

UNSAID = (
    re.compile(r"allowed: (never, or )?a duration"),  # its bounds: the form is a pattern
    re.compile(r"allowed: at least (thresholds\.|utilization)"),  # two fields are compared
    re.compile(r"allowed: (first at most max|another host:port than)"),  # so are these
    re.compile(r"allowed: a text that no other pool has$"),  # so are entries of a list
    re.compile(r"allowed: weights of which one is above 0$"),  # two fields are summed up
    re.compile(r": [\d.e+-]+; allowed: a decimal number"),  # an exponent, or too many digits
    re.compile(r": \d+\.0; allowed: a (whole )?number"),  # to a schema 3.0 is a whole number
)
"""Why the reader refuses what the schema takes."""


def shipped() -> list[Any]:
    """Return the configurations of README, and of each component and example of manifests/."""
    objects = [item for name in ("", *COMPONENTS, *EXAMPLES) for item in render(name)]
    manifests = [item["data"]["config.yaml"] for item in of_kind(objects, "ConfigMap")]
    readme = (ROOT / "README.md").read_text().split("```yaml")[1].split("```")[0]
    return [yaml.safe_load(text) for text in dict.fromkeys((readme, *manifests))]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(schema())
    assert len(shipped()) >= 3


@pytest.mark.parametrize("document", [*({**HEAD, **change} for change in GOOD), *shipped()])
def test_what_is_good_is_good_for_both(document: Any) -> None:
    assert list(VALIDATOR.iter_errors(document)) == []
    parse(document, "x")


@pytest.mark.parametrize(("change", "path"), FAULTY)
def test_the_schema_refuses_what_it_can(change: Change, path: str) -> None:
    assert not VALIDATOR.is_valid({**HEAD, **change}), path


@pytest.mark.parametrize(("change", "path"), BEYOND)
def test_what_it_cannot_refuse_has_a_named_reason(change: Change, path: str) -> None:
    assert VALIDATOR.is_valid({**HEAD, **change}), path
    (fault,) = faults({**HEAD, **change})
    assert any(reason.search(fault) for reason in UNSAID)


def test_null_is_missing_to_the_reader_and_refused_by_the_schema_as_the_page_says() -> None:
    document = {**HEAD, "unneededTime": None, "thresholds": {"cpu": None}, "extender": None}
    assert parse(document, "x") == parse(HEAD, "x")
    paths = {".".join(map(str, one.path)) for one in VALIDATOR.iter_errors(document)}
    assert paths == {"unneededTime", "thresholds.cpu", "extender"}
    assert "The schema rejects null" in page()


def faults(document: object) -> tuple[str, ...]:
    try:
        parse(document, "x")
    except ConfigError as refused:
        return refused.faults
    return ()


def drawn(one: Schema) -> st.SearchStrategy[Any]:
    """Draw what a part of the schema takes."""
    if "enum" in one:
        return st.sampled_from(one["enum"])
    if "oneOf" in one:
        return st.one_of([drawn(each) for each in one["oneOf"]])
    kinds = one["type"] if isinstance(one["type"], list) else [one["type"]]
    return st.one_of([_of_type(kind, one) for kind in kinds])


def _of_type(kind: str, one: Schema) -> st.SearchStrategy[Any]:
    least, most = one.get("minimum", one.get("exclusiveMinimum")), one.get("maximum", 10**12)
    simple = {
        "boolean": st.booleans(),
        "integer": st.integers(least, most),
        "number": st.integers(least, most) | st.floats(0, 1e6),
        "string": st.from_regex(one.get("pattern", ""), fullmatch=True),
    }
    if kind in simple:
        return simple[kind]
    if kind == "array":
        return st.lists(drawn(one["items"]), max_size=3)
    if "propertyNames" in one:
        names, sections = drawn(one["propertyNames"]), drawn(one["additionalProperties"])
        return st.dictionaries(names, sections, max_size=2)
    if "properties" not in one:
        return st.dictionaries(st.text(), st.text(), min_size=1, max_size=3)
    fields = {name: drawn(field) for name, field in one["properties"].items()}
    needed = {name: fields.pop(name) for name in one.get("required", ())}
    return st.fixed_dictionaries(needed, optional=fields)


DOCUMENTS = drawn(schema())
LAW = settings(deadline=None, suppress_health_check=list(HealthCheck))


@LAW
@given(DOCUMENTS)
def test_the_reader_takes_what_the_schema_takes_but_for_what_no_schema_can_say(
    document: Any,
) -> None:
    assume(VALIDATOR.is_valid(document))
    for fault in faults(document):
        assert any(reason.search(fault) for reason in UNSAID), fault


WORDS = ("", "x", "80%", "0%", "10m", "1s", "500ms", "never", "auto", "100m")
ODD = st.sampled_from([0, 1, -1, 3.5, True, [], {}, *WORDS])


@LAW
@given(DOCUMENTS, st.data())
def test_the_schema_takes_what_the_reader_takes(document: Any, data: st.DataObject) -> None:
    inside = document
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(inside)))
        if not isinstance(inside[name], dict) or not inside[name]:
            inside[name] = data.draw(ODD)
            break
        inside = inside[name]
    if not faults(document):
        assert list(VALIDATOR.iter_errors(document)) == []


@LAW
@given(DOCUMENTS)
def test_what_is_read_is_read_again_as_it_is_written(document: Any) -> None:
    assume(not faults(document))
    config = parse(document, "x")
    assert parse(written(config), "x") == config


def test_every_setting_says_what_it_means_and_what_is_allowed() -> None:
    for one in config_schema.settings():
        assert one.schema.get("description"), one.path
        assert config_schema.allowed(one.schema), one.path


def test_the_page_is_what_the_settings_say() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == page(), "make fix writes it anew"


def read_once(program: str) -> list[str]:
    """Return the settings, or whole sections, that a program reads once."""
    found = [one.path for one in config_schema.settings() if program in one.restart]
    return [path for path in found if path.rpartition(".")[0] not in found]


def test_a_restart_is_needed_for_just_what_is_read_once() -> None:
    others = {
        "taintKey": "own.example/key",
        "clusterAutoscaler": {"statusNamespace": "autoscaler"},
        "controller.leaseDuration": "20s",
        "controller.metricsListen": "127.0.0.1:2",
    }
    assert list(others) == read_once(CONTROLLER)
    for path, value in others.items():
        section, _, last = path.rpartition(".")
        other: Change = {section: {last: value}} if section else {last: value}
        assert path in restart_needed(Config(), parse({**HEAD, **other}, "x"))


TEXTS = ("README.md", "docs/how-it-works.md", "docs/install.md", "manifests/base/configmap.yaml")


@pytest.mark.parametrize("name", TEXTS)
def test_all_texts_name_what_needs_a_restart_as_the_settings_do(name: str) -> None:
    controller, webhook, extender = (
        [f"`{path}`" for path in read_once(program)] for program in (CONTROLLER, WEBHOOK, EXTENDER)
    )
    said = (
        f"`{CONTROLLER}` reads {', '.join(controller[:-1])} and {controller[-1]} only when it "
        f"starts, `{WEBHOOK}` {' and '.join(webhook)}, `{EXTENDER}` {' and '.join(extender)}."
    )
    text = re.sub(r"\s+(# )?", " ", (ROOT / name).read_text())
    assert said in text, said
