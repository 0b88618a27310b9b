"""`ebb migrate`: the settings of other tools become a configuration, or one line of error."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from cli.migrate.node_compactor import ENABLED, OF_POOL
from cli.migrate.settings_file import COMMAND_LINE_MAX
from cli.migrate.tools import TOOLS
from core.config.schema import settings
from runtime.files import CONFIG_BYTES_MAX, parse_config
from tests.support.migrating import fault, made, run
from tests.support.plan_cli import ITEMS, ROOT, dump, ebb, without_warnings


def refiner(**data: object) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "node-refiner-cm", "namespace": "node-refiner"},
            "data": data,
        }
    )


REFINER = {
    "drainer_enabled": "false",
    "time_gap": "5",
    "time_since_last_addition": "60",
    "minimum_nodes": "3",
    "minimum_non_tainted_nodes": "3",
    "excess_nodes_threshold": "2",
}
"""Node Refiner's settings as its manifest ships them."""


class TestNodeRefiner:
    def test_shipped_configmap_is_converted(self) -> None:
        fields, comments = made(refiner(**REFINER))
        assert fields == {
            "mode": "observe",
            "policy": "ExcessNodes",
            "markInterval": "5m",
            "cooldown": {"delayAfterAdd": "1h"},
            "budgets": {"minNodes": 3, "minUntaintedNodes": 3},
            "excessNodes": {"threshold": 2},
        }
        assert "evicts" in comments

    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            ("drainer_enabled", "False", {"mode": "observe"}),
            ("drainer_enabled", "True", {"mode": "observe"}),
            ("drainer_enabled", "0", {"mode": "observe"}),
            ("drainer_enabled", False, {"mode": "observe"}),
            ("time_gap", "10", {"markInterval": "10m"}),
            ("time_gap", 10, {"markInterval": "10m"}),
            ("time_gap", "10m", {"markInterval": "10m"}),
            ("time_gap", "1h30m", {"markInterval": "1h30m"}),
            ("time_gap", "0", {"markInterval": "0s"}),
            ("time_since_last_addition", "90", {"cooldown": {"delayAfterAdd": "1h30m"}}),
            ("excess_nodes_threshold", "1.5", {"excessNodes": {"threshold": 1.5}}),
            ("excess_nodes_threshold", 2.25, {"excessNodes": {"threshold": 2.25}}),
            ("excess_nodes_threshold", "0", {"excessNodes": {"threshold": 0}}),
            ("minimum_nodes", "0", {"budgets": {"minNodes": 0}}),
            ("minimum_non_tainted_nodes", "7", {"budgets": {"minUntaintedNodes": 7}}),
        ],
    )
    def test_key_is_converted(self, key: str, value: object, expected: dict[str, Any]) -> None:
        policy = {"mode": "observe", "policy": "ExcessNodes"}
        assert made(refiner(**{key: value}))[0] == policy | expected

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("drainer_enabled", "off"),
            ("drainer_enabled", ""),
            ("drainer_enabled", None),
            ("time_gap", "-1"),
            ("time_gap", "1.5"),
            ("time_gap", "10 m"),
            ("time_gap", "721h"),
            ("time_gap", "90ms"),
            ("time_gap", "9" * 5000),
            ("time_gap", "\u0661\u0660"),
            ("time_since_last_addition", ["60"]),
            ("minimum_nodes", "2.0"),
            ("minimum_nodes", "100001"),
            ("minimum_non_tainted_nodes", "-3"),
            ("excess_nodes_threshold", "-1"),
            ("excess_nodes_threshold", "NaN"),
            ("excess_nodes_threshold", "Inf"),
            ("excess_nodes_threshold", "1e-99"),
            ("excess_nodes_threshold", "1/2"),
        ],
    )
    def test_invalid_value_is_reported_in_one_line(self, key: str, value: object) -> None:
        line = fault(refiner(**REFINER | {key: value}))
        told = "missing" if value is None else repr(value)
        assert line.startswith(f"{key}: {told[:20]}")
        assert "; allowed: " in line

    def test_json_file_without_configmap_is_converted(self) -> None:
        assert made(json.dumps(REFINER)) == made(yaml.safe_dump(REFINER))

    def test_settings_are_found_in_list_and_in_several_documents(self) -> None:
        alone = made(refiner(**REFINER))
        other = {"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": {"a": "b"}}
        several = yaml.safe_dump(other) + "---\n" + refiner(**REFINER)
        listed = {"kind": "List", "items": list(yaml.safe_load_all(several))}
        for text in (several, json.dumps(listed)):
            fields, comments = made(text)
            assert fields == alone[0]
            assert "ConfigMap kube-root-ca.crt: holds no settings" in comments

    def test_unknown_key_becomes_comment(self) -> None:
        fields, comments = made(refiner(time_gapp="5\n  mode: enforce", drainer_enabled="False"))
        assert fields == {"mode": "observe", "policy": "ExcessNodes"}
        assert "# - time_gapp=5\\n  mode: enforce: " in comments


def test_every_target_of_migration_is_setting_of_ebb() -> None:
    known = {one.path for one in settings()}
    taken = {".".join(one.path) for tool in TOOLS for one in tool.taken.values()}
    assert taken <= known


def test_migration_page_lists_every_converted_setting() -> None:
    rows = (ROOT / "docs" / "migrate.md").read_text().splitlines()
    for tool in TOOLS:
        for key, one in tool.taken.items():
            assert [row for row in rows if row.startswith(f"| `{key}` | `{'.'.join(one.path)}` |")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("", "holds no settings of Node Refiner", id="empty"),
        pytest.param("a: b\n", "holds no settings of Node Refiner", id="unrelated file"),
        pytest.param("a: [", "line 1: ", id="invalid YAML"),
        pytest.param('{"a": ', "line 1: ", id="invalid JSON"),
        pytest.param("a: &x 1\nb: *x\n", "line 2: ", id="aliases"),
        pytest.param(
            refiner(**REFINER) + "---\n" + refiner(time_gap="1"), "time_gap: ", id="two ConfigMaps"
        ),
        pytest.param("[" * 5000, "not YAML: ", id="deeply nested file"),
        pytest.param(
            '{"time_gap":' + "[" * 900 + "]" * 900 + "}", "time_gap: ", id="deeply nested value"
        ),
    ],
)
def test_invalid_file_is_reported_in_one_line(text: str, told: str) -> None:
    assert fault(text).startswith(told)


def test_file_and_command_line_are_rejected_when_too_large() -> None:
    assert fault("--a=" + "b" * COMMAND_LINE_MAX).startswith("a command line longer than 131072 ")
    assert run(b"#" * (CONFIG_BYTES_MAX + 1)) == (2, "", "ebb: given: larger than 1048576 bytes\n")


def test_plan_accepts_configuration_converted_from_standard_input(tmp_path: Path) -> None:
    done = ebb("migrate", "-", stdin=refiner(**REFINER).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    config, cluster = tmp_path / "ebb.yaml", tmp_path / "dump.json"
    config.write_bytes(done.stdout)
    cluster.write_bytes(dump(*ITEMS))
    plan = ebb("plan", "--from-file", str(cluster), "--config", str(config))
    assert (plan.returncode, without_warnings(plan.stderr)) == (0, b"")
    lost = ebb("migrate", "-", stdin=b"")
    assert lost.stderr.startswith(b"ebb: standard input: holds no settings")


def variable(given: tuple[str, object]) -> dict[str, object]:
    name, value = given
    return {"name": name, "value": value}


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["10", "10m", "true", "0.75", "1.5h", "2", "1e3", "[", "{}", "--", "# x"])
)  # fmt: skip
KEYS = st.sampled_from(sorted({key for tool in TOOLS for key in tool.taken})) | st.text(max_size=6)
PLACES = st.sampled_from(
    ["args", "command", "configmap", "data", "env", "extraArgs", "items", "kind", "nodePools"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | PLACES, inner, max_size=4),
    max_leaves=12,
)
LIKELY = ["10", "10m", "1h", "true", "false", "0.5", "1", 1, 0.75, True]
NEAR = st.sampled_from(LIKELY) | st.sampled_from(LIKELY) | SCALARS
REFINER_DATA, TIMES, FLAGS = (
    st.dictionaries(st.sampled_from(sorted(tool.taken)) | st.text(max_size=2), NEAR, max_size=3)
    for tool in TOOLS
)
POOLS = st.dictionaries(
    st.text("ab"), st.dictionaries(st.sampled_from([ENABLED, *OF_POOL]), NEAR), max_size=2
)
OBJECTS = (
    VALUES
    | (VALUES | REFINER_DATA).map(lambda data: {"kind": "ConfigMap", "data": data})
    | POOLS.map(lambda pools: {"nodePools": pools})
    | TIMES.map(
        lambda times: [{"nodePools": {}}, {"args": [], "env": [*map(variable, times.items())]}]
    ).map(lambda items: {"items": items})
    | FLAGS.map(lambda flags: {"args": [f"--{key}={value}" for key, value in flags.items()]})
    | FLAGS.map(lambda flags: {"extraArgs": flags})
)
WRITTEN = OBJECTS.map(lambda one: json.dumps(one).encode()) | OBJECTS.map(
    lambda one: yaml.safe_dump(one).encode()
)


@given(st.binary(max_size=64) | st.text(max_size=64).map(str.encode) | WRITTEN)
@example(b"time_gap: '10'\n")
@example(b'\xef\xbb\xbf{"time_gap": "10"}')
@example(b"\x1f\x8b\x08")
@example(b"--- !a b")
def test_any_input_yields_valid_configuration_or_one_line(raw: bytes) -> None:
    code, out, err = run(raw)
    if code == 0:
        assert err == ""
        parse_config(out.encode(), "printed")
    else:
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
        assert err.startswith("ebb: given: ")
