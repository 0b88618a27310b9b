"""The Helm chart: its generated files are current, and its values agree with its schema.

tests/e2e/test_helm.py renders and installs it with Helm.
"""

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.support.chart import CHART, CONDITIONS, MANIFESTS, files, values_schema

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
VALIDATOR = Draft202012Validator(values_schema())
BY_HAND = {
    "templates/NOTES.txt",
    "templates/_helpers.tpl",
    "templates/checks.yaml",
    "templates/configmap.yaml",
    "templates/cleanup.yaml",
    "Chart.yaml",
    "values.yaml",
}


def test_chart_has_exactly_generated_files_and_those_written_by_hand() -> None:
    found = {path.relative_to(CHART) for path in CHART.rglob("*") if path.is_file()}
    assert {str(path) for path in found - files().keys()} == BY_HAND


@pytest.mark.parametrize(("path", "text"), [(str(path), text) for path, text in files().items()])
def test_generated_file_is_current(path: str, text: str) -> None:
    assert (CHART / path).read_text("utf-8") == text, "run make fix"


def test_every_component_is_part_of_chart() -> None:
    components = {path.name for path in (MANIFESTS / "components").iterdir()} - {"release"}
    assert components == {one.split("/")[1] for one in CONDITIONS if one.startswith("components/")}


def test_schema_accepts_values_of_chart_and_names_all_of_them() -> None:
    Draft202012Validator.check_schema(values_schema())
    VALIDATOR.validate(VALUES)
    assert VALUES.keys() == values_schema()["properties"].keys() - {"global"}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"config": {"mode": "off"}}, "config.mode"),
        ({"config": {"thresholds": {"cpu": "0%"}}}, "config.thresholds.cpu"),
        ({"admission": "none"}, "admission"),
        ({"controller": {"replicas": 0}}, "controller.replicas"),
        ({"image": {"digest": "sha256:1"}}, "image.digest"),
    ],
)
def test_schema_rejects_wrong_value(change: dict[str, Any], path: str) -> None:
    (fault,) = VALIDATOR.iter_errors({**VALUES, **change})
    assert ".".join(map(str, fault.absolute_path)) == path
