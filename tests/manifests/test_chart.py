"""The Helm chart: its generated files are current, and its values agree with its schema.

tests/e2e/test_helm.py renders and installs it with Helm.
"""

import re
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
        ({"image": {"tag": "x\n        securityContext: {privileged: true}"}}, "image.tag"),
        ({"image": {"tag": "v1 # comment"}}, "image.tag"),
        ({"image": {"tag": "-v1"}}, "image.tag"),
        ({"image": {"tag": "v" * 129}}, "image.tag"),
        ({"image": {"repository": ""}}, "image.repository"),
        ({"image": {"repository": "evil\n        hostPID: true #"}}, "image.repository"),
        ({"image": {"repository": "{a: b}"}}, "image.repository"),
        ({"image": {"repository": "ebb@sha256"}}, "image.repository"),
        ({"image": {"pullPolicy": "always"}}, "image.pullPolicy"),
        ({"extender": {"clusterIP": "1.2.3.4 #"}}, "extender.clusterIP"),
        ({"extender": {"hostNetwork": True}}, "extender"),
        ({"webhook": {"extraEnv": [{"name": "POD_NAME"}]}}, "webhook.extraEnv.0.name"),
        (
            {"webhook": {"podLabels": {"app.kubernetes.io/name": "x"}}},
            "webhook.podLabels.app.kubernetes.io/name",
        ),
    ],
)
def test_schema_rejects_wrong_value(change: dict[str, Any], path: str) -> None:
    (fault,) = VALIDATOR.iter_errors({**VALUES, **change})
    assert ".".join(map(str, fault.absolute_path)) == path


def test_schema_rejects_text_in_words() -> None:
    (fault,) = VALIDATOR.iter_errors({**VALUES, "config": {"unneededTime": "soon"}})
    assert fault.message.startswith("'a duration of whole seconds, 0s to 720h, such as ")
    assert not {"pattern", "not"} & _words(values_schema()), "outside of conditions"


def _words(part: Any) -> set[str]:
    """Return all keys of a schema that are not in a condition."""
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    own = part.items() if isinstance(part, dict) else ()
    inner = [_words(one) for one in parts if one is not dict(own).get("if")]
    return {name for name, _ in own}.union(*inner)


@pytest.mark.parametrize(
    "image",
    [
        {"repository": "localhost:5000/team_a/ebb--x", "tag": "v1.2.3-rc.1_b"},
        {"repository": "registry.example.com/a/b/c.d"},
        {"repository": "ebb", "tag": "", "digest": f"sha256:{'0' * 64}"},
    ],
)
def test_schema_accepts_image(image: dict[str, Any]) -> None:
    VALIDATOR.validate({**VALUES, "image": image})


CONTROL = ("if ", "with ", "define ", "$", "include ", "/*", "end", "else", "fail ")
IN_A_NAME = ("  - ebb-webhook.", "    cert-manager.io/inject-ca-from: ")
"""Lines with the namespace, a name of DNS, inside of a longer name."""


def test_values_are_quoted_in_templates() -> None:
    """A text with a line break would otherwise add fields, and `123` would be a number."""
    found = [
        (line.partition("{{")[0], action)
        for path in CHART.glob("templates/**/*.yaml")
        for line in path.read_text("utf-8").splitlines()
        for action in re.findall(r"\{\{-? *(.*?) *-?\}\}", line)
        if re.search(r"\.(Values|Release\.Namespace)\b", action)
    ]
    assert len(found) > 100
    unquoted = [
        (before, action)
        for before, action in found
        if not action.startswith((*CONTROL, "toYaml "))
        and not action.endswith(("| quote", ".replicas"))
        and before not in IN_A_NAME
    ]
    assert unquoted == []


def test_image_is_quoted() -> None:
    texts = [path.read_text("utf-8") for path in CHART.glob("templates/**/*.yaml")]
    images = [line for text in texts for line in text.splitlines() if "ebb.image" in line]
    assert len(images) == 4
    assert all(line.endswith('{{ include "ebb.image" . | quote }}') for line in images)
