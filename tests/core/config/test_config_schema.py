"""The JSON schema agrees with the reader, and the documentation agrees with the settings."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from core.config import schema as config_schema
from core.config.document import built_in, parse
from core.config.page import first_page, reference, when
from core.config.schema import Schema, changed, restart_needed, schema, written
from core.config.settings import Config, Mode
from core.config.surge import SurgeConfig, SurgeMode
from core.model.errors import ConfigError
from core.setting_types.structure import CONTROLLER, EXTENDER, WEBHOOK
from tests.manifests.kustomize import COMPONENTS, EXAMPLES, of_kind, render
from tests.support.configurations import BEYOND, FAULTY, GOOD, HEAD, Change

ROOT = Path(__file__).parents[3]
VALIDATOR = Draft202012Validator(schema())

NOT_IN_SCHEMA = (
    re.compile(r"allowed: (never, or )?a duration"),  # its bounds: the form is a pattern
    re.compile(r"allowed: at least (thresholds\.|utilization)"),  # two fields are compared
    re.compile(r"allowed: (first at most max|another host:port than)"),  # so are these
    re.compile(r"allowed: a name that no other pool has$"),  # so are entries of a list
    re.compile(r"allowed: a cron expression"),  # the schema has the form of a field only
    re.compile(r"allowed: the name of an IANA time zone"),  # the schema has no list of them
    re.compile(r"allowed: a time with its offset"),  # nor a calendar
    re.compile(r"allowed: disabled, because "),  # so are settings of different sections
    # An exponent, or too many digits.
    re.compile(r": [\d.e+-]+; allowed: (a price for an hour, )?a decimal number"),
    re.compile(r": \d+\.0; allowed: a (whole )?number"),  # to a schema 3.0 is a whole number
)
"""Faults that the reader reports although the schema accepts the document."""


def shipped() -> list[Any]:
    """Return the configurations of the page, and of each component and example of manifests/."""
    objects = [item for name in ("", *COMPONENTS, *EXAMPLES) for item in render(name)]
    data = [item.get("data") or {} for item in of_kind(objects, "ConfigMap")]
    manifests = [one["config.yaml"] for one in data if "config.yaml" in one]
    page = (ROOT / "docs" / "configuration.md").read_text()
    example = page.split("```yaml")[2].split("```")[0]
    return [yaml.safe_load(text) for text in dict.fromkeys((example, *manifests))]


def test_schema_is_valid() -> None:
    Draft202012Validator.check_schema(schema())
    assert "(?=" not in str(schema()), "Helm checks values with RE2, which has no lookahead"
    assert "(?!" not in str(schema())
    assert len(shipped()) >= 3


@pytest.mark.parametrize("document", [*({**HEAD, **change} for change in GOOD), *shipped()])
def test_valid_document_is_accepted_by_schema_and_reader(document: Any) -> None:
    assert list(VALIDATOR.iter_errors(document)) == []
    parse(document, "x")


@pytest.mark.parametrize(("change", "path"), FAULTY)
def test_schema_rejects_faulty_document(change: Change, path: str) -> None:
    assert not VALIDATOR.is_valid({**HEAD, **change}), path


@pytest.mark.parametrize(("change", "path"), BEYOND)
def test_fault_has_known_reason_when_schema_accepts_document(change: Change, path: str) -> None:
    assert VALIDATOR.is_valid({**HEAD, **change}), path
    (fault,) = faults({**HEAD, **change})
    assert any(reason.search(fault) for reason in NOT_IN_SCHEMA)


def test_null_is_missing_for_reader_and_rejected_by_schema() -> None:
    document = {**HEAD, "unneededTime": None, "thresholds": {"cpu": None}, "extender": None}
    assert parse(document, "x") == parse(HEAD, "x")
    paths = {".".join(map(str, one.path)) for one in VALIDATOR.iter_errors(document)}
    assert paths == {"unneededTime", "thresholds.cpu", "extender"}
    assert "The schema rejects null" in reference()


def faults(document: object) -> tuple[str, ...]:
    try:
        parse(document, "x")
    except ConfigError as rejected:
        return rejected.faults
    return ()


def drawn(one: Schema) -> st.SearchStrategy[Any]:
    """Draw values that a part of the schema accepts."""
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


WHOLE = schema()
DOCUMENTS = drawn(WHOLE)
"""Documents with about half of all settings; most have a fault that the schema does not know."""


@st.composite
def short_documents(draw: st.DrawFn) -> Any:
    """Draw a document with a few sections, which seldom has a fault."""
    names = draw(st.sets(st.sampled_from(sorted(WHOLE["properties"].keys() - HEAD)), max_size=4))
    fields = {name: WHOLE["properties"][name] for name in (*HEAD, *sorted(names))}
    return draw(drawn({**WHOLE, "properties": fields, "required": [*fields]}))


LAW = settings(deadline=None, suppress_health_check=list(HealthCheck))


@LAW
@given(DOCUMENTS)
def test_reader_accepts_what_schema_accepts_except_known_reasons(
    document: Any,
) -> None:
    assume(VALIDATOR.is_valid(document))
    for fault in faults(document):
        assert any(reason.search(fault) for reason in NOT_IN_SCHEMA), fault


WORDS = ("", "x", "80%", "0%", "10m", "1s", "500ms", "never", "auto", "100m")
ODD = st.sampled_from([0, 1, -1, 3.5, True, [], {}, *WORDS])


@LAW
@given(DOCUMENTS, st.data())
def test_schema_accepts_what_reader_accepts(document: Any, data: st.DataObject) -> None:
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
@given(short_documents())
def test_config_survives_round_trip(document: Any) -> None:
    """Written in full, and as the settings that differ from the defaults."""
    assume(not faults(document))
    config = parse(document, "x")
    assert parse(written(config), "x") == config
    assert parse(changed(config, built_in(config.policy)), "x") == config


def test_changed_settings_are_empty_for_defaults() -> None:
    assert changed(Config(), Config()) == {**HEAD, "policy": Config().policy}


def test_every_setting_has_description_and_allowed_values() -> None:
    for one in config_schema.settings():
        assert one.schema.get("description"), one.path
        assert config_schema.allowed(one.schema), one.path


def test_every_setting_says_last_when_to_change_it() -> None:
    """Sections have no value of their own, and a required setting has no default to change."""
    for one in config_schema.settings():
        if "properties" not in one.schema and not one.required:
            assert re.fullmatch(r"(Raise|Lower|Set) it .*[^.]\.", when(one)), one.path


@pytest.mark.parametrize(
    ("name", "page"), [("configuration", first_page), ("settings", reference)]
)
def test_page_is_up_to_date(name: str, page: Callable[[], str]) -> None:
    assert (ROOT / "docs" / f"{name}.md").read_text() == page(), "make fix regenerates it"


def test_first_page_fits_on_screen() -> None:
    lines = first_page().partition("\n## ")[0].splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 160
    rows = [line.split(" | ")[0] for line in lines if line.startswith("| `")]
    # A list of sections counts as the settings in it.
    assert 0 < sum(max(1, row.count("`") // 2 - 1) for row in rows) <= 12


def test_configuration_on_first_page_is_complete() -> None:
    file = first_page().split("```yaml")[1].split("```")[0]
    assert parse(yaml.safe_load(file), "x") == Config(mode=Mode.ENFORCE)
    managed = parse(yaml.safe_load(file.replace("# surge", "surge")), "x")
    assert managed == Config(mode=Mode.ENFORCE, surge=SurgeConfig(mode=SurgeMode.ENABLED))


def test_reference_has_every_setting_in_one_part() -> None:
    cluster, policies = reference().split("## Settings of policies")
    names = [re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE) for part in (cluster, policies)]
    beside = [one.path for one in config_schema.settings() if one.of_policy]
    assert names[1] == beside
    assert sorted(names[0] + beside) == sorted(one.path for one in config_schema.settings())
    assert {path.split(".")[0] for path in beside} == {
        *("excessNodes", "markInterval", "nodeUtilization", "underutilizedCount"),
        "usableCapacity",
    }


def read_once(program: str) -> list[str]:
    """Return the settings, or whole sections, that a program reads once."""
    found = [one.path for one in config_schema.settings() if program in one.restart]
    return [path for path in found if path.rpartition(".")[0] not in found]


def test_restart_is_needed_only_for_settings_read_once() -> None:
    others = {
        "clusterAutoscaler": {"status": "autoscaler/cluster-autoscaler-status"},
    }
    assert list(others) == read_once(CONTROLLER)
    for path, value in others.items():
        section, _, last = path.rpartition(".")
        other: Change = {section: {last: value}} if section else {last: value}
        assert path in restart_needed(Config(), parse({**HEAD, **other}, "x"))


TEXTS = (
    "docs/configuration.md",
    "docs/install-reference.md",
    "manifests/base/configmap.yaml",
)


@pytest.mark.parametrize("name", TEXTS)
def test_documentation_names_settings_that_need_restart(name: str) -> None:
    controller, webhook, extender = (
        [f"`{path}`" for path in read_once(program)] for program in (CONTROLLER, WEBHOOK, EXTENDER)
    )
    assert len(webhook) == len(extender) == 1
    sentence = (
        f"`{CONTROLLER}` reads {' and '.join(controller)} only when it starts, "
        f"`{WEBHOOK}` reads {webhook[0]}, and `{EXTENDER}` reads {extender[0]}."
    )
    text = re.sub(r"\s+(# )?", " ", (ROOT / name).read_text())
    assert sentence in text, sentence
