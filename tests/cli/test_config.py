"""`ebb config`: the schema in each output format, and the validation of files."""

import json
from pathlib import Path

import pytest

from core.config.page import reference
from core.config.schema import schema, settings
from tests.support.plan_cli import ebb

HEAD = "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\n"


def test_schema_is_printed_as_json() -> None:
    done = ebb("config", "schema")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == schema()


def test_schema_is_printed_as_markdown_and_table() -> None:
    assert ebb("config", "schema", "-o", "markdown").stdout.decode() == reference()
    table = ebb("config", "schema", "-o", "table").stdout.decode()
    assert [line.split()[0] for line in table.splitlines()[1:]] == [one.path for one in settings()]


@pytest.mark.parametrize(
    ("texts", "out", "faults"),
    [
        pytest.param([HEAD], ["0: ok"], [], id="valid file"),
        pytest.param(
            [HEAD + "mod: x\nmode: enforced\n", HEAD, "a: ["],
            ["1: ok"],
            [
                "0: line 3: mod: unknown field; allowed: apiVersion, kind, mode, policy, ",
                "0: line 4: mode: 'enforced'; allowed: observe | enforce; did you mean enforce?",
                "2: line 1: ",
            ],
            id="several errors in several files",
        ),
    ],
)
def test_validate_reports_every_error_of_every_file(
    texts: list[str], out: list[str], faults: list[str], tmp_path: Path
) -> None:
    paths = [tmp_path / str(number) for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    done = ebb("config", "validate", *map(str, paths))
    told = done.stderr.decode().splitlines()
    assert done.stdout.decode().splitlines() == [f"{tmp_path}/{line}" for line in out]
    assert len(told) == len(faults)
    assert all(
        line.startswith(f"ebb: {tmp_path}/{fault}")
        for line, fault in zip(told, faults, strict=True)
    )
    assert done.returncode == (2 if faults else 0)


def test_validate_reads_standard_input() -> None:
    done = ebb("config", "validate", "-", stdin=HEAD.encode())
    assert (done.returncode, done.stdout) == (0, b"standard input: ok\n")
    done = ebb("config", "validate", "-", stdin=b"kind: x")
    assert done.returncode == 2
    assert b"ebb: standard input: line 1: kind: 'x'; allowed: EbbConfiguration" in done.stderr


CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: ebb-config}
data:
"""
CONTENT = f"""\
{HEAD}pools:
- name: a
  selector: {{matchLabels: {{a: b}}}}
- name: b
  minNodes: -1
  selector: {{matchLabels: {{a: c}}}}
thresholds:
  cpu: 80%
  memory: lots
"""


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param(
            CONTENT, ["line 7: pools[1].minNodes: -1; ", "line 11: thresholds.memory: 'lots'; "],
            id="fields of sections and lists",
        ),
        pytest.param(
            f"{CONFIG_MAP}  config.yaml: |\n{indented(CONTENT)}",
            ["line 12: pools[1].minNodes: -1; ", "line 16: thresholds.memory: 'lots'; "],
            id="lines of the file of a ConfigMap",
        ),
        pytest.param(
            f"{CONFIG_MAP}  config.yaml: |\n{indented(HEAD)}    a: [\n",
            ["line 9: expected "],
            id="invalid YAML in a ConfigMap",
        ),
        pytest.param(
            json.dumps({"kind": "ConfigMap", "data": {"config.yaml": CONTENT}}),
            ["line 7: pools[1].minNodes: -1; ", "line 11: thresholds.memory: 'lots'; "],
            id="lines of the text in JSON",
        ),
        pytest.param(
            CONFIG_MAP, ["data.config.yaml: missing; allowed: an EbbConfiguration"], id="no data"
        ),
        pytest.param(
            f"{CONFIG_MAP}  other.yaml: a\n", ["data.config.yaml: missing"], id="another key"
        ),
        pytest.param("mode: observe", ["apiVersion: missing", "kind: missing"], id="no line"),
        pytest.param(f"{CONFIG_MAP}  config.yaml: |\n{indented(HEAD)}", [], id="valid ConfigMap"),
    ],
)  # fmt: skip
def test_validate_accepts_configmap_and_names_lines(text: str, faults: list[str]) -> None:
    done = ebb("config", "validate", "-", stdin=text.encode())
    told = done.stderr.decode().splitlines()
    assert len(told) == len(faults), told
    for line, fault in zip(told, faults, strict=True):
        assert line.startswith(f"ebb: standard input: {fault}"), line
    assert done.returncode == (2 if faults else 0)


@pytest.mark.parametrize("folder", ["base"])
def test_shipped_configmap_is_valid(folder: str) -> None:
    done = ebb("config", "validate", f"manifests/{folder}/configmap.yaml")
    assert (done.returncode, done.stderr) == (0, b"")
