import gzip
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from core.config.budgets import Budget, Budgets, LabelSelector, Limit, Pool
from core.config.document import built_in, parse
from core.config.schema import restart_needed
from core.config.settings import (
    Config,
    Mode,
    UsabilityMode,
)
from core.model.errors import ConfigError, InvalidInputError
from core.placement.usable_capacity import Usability
from core.policies.all import POLICIES
from runtime import files
from runtime.yaml_text import as_yaml, parse_yaml
from tests.support.configurations import BEYOND, FAULTY, HEAD

EXAMPLE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_config_has_defaults_when_file_has_only_head() -> None:
    assert parse(HEAD, "x") == Config()
    assert Config().mode is Mode.OBSERVE
    assert Config().usable_capacity is UsabilityMode.AUTO


def test_policy_defaults_apply_when_file_sets_nothing() -> None:
    found = parse({**HEAD, "policy": "ExcessNodes", "budgets": {"maxMarked": 3}}, "x")
    assert (found.unneeded_time_seconds, found.controller.interval_seconds) == (0, 60)
    assert found.budgets.cluster == replace(Budgets().cluster, max_marked=Limit(3), min_nodes=2)
    assert found.budgets.min_untainted_nodes == 2
    assert found.budgets.cooldown.delay_after_add_seconds == 3600
    assert found.budgets.cooldown.delay_after_pending_seconds == 180
    assert found.budgets.mark_interval_seconds == 600
    settings = {"unneededTime": "1m", "budgets": {"minNodes": 0}, "cooldown": None}
    found = parse({**HEAD, "policy": "ExcessNodes", **settings}, "x")
    assert (found.unneeded_time_seconds, found.budgets.cluster.min_nodes) == (60, 0)
    assert found.budgets.cooldown.delay_after_add_seconds == 3600  # null says nothing


def test_requested_policy_overrides_policy_of_file() -> None:
    settings = {**HEAD, "policy": "ClusterThreshold", "unneededTime": "7m"}
    found = parse(settings, "x", "ExcessNodes")
    assert (found.policy, found.unneeded_time_seconds) == ("ExcessNodes", 420)
    assert found.controller.interval_seconds == 60
    assert parse(HEAD, "x", "ClusterThreshold") == built_in("ClusterThreshold") == Config()


@pytest.mark.parametrize("policy", POLICIES)
def test_policy_defaults_are_valid(policy: str) -> None:
    assert built_in(policy).policy == policy


def test_example_on_page_is_valid_config(tmp_path: Path) -> None:
    file = tmp_path / "ebb.yaml"
    file.write_text(EXAMPLE.read_text().split("```yaml")[2].split("```")[0])
    config = files.read_config(str(file))
    assert len(file.read_text().splitlines()) <= 30
    assert config.thresholds_of({"pool": "batch"}).cpu == 1
    assert config.price_of({"node.kubernetes.io/instance-type": "m5.large"}) == Fraction("0.096")
    assert config.price_of({}) == 0


def test_four_numbers_define_usable_capacity() -> None:
    numbers = {"minCPU": "100m", "minMemory": "90M", "maxCPUPerGB": "3.6", "maxGBPerCPU": "20"}
    assert parse({**HEAD, "usableCapacity": numbers}, "x").usable_capacity == Usability(
        min_cpu_millis=100,
        min_memory_bytes=90_000_000,
        max_cpu_per_gb=Fraction("3.6"),
        max_gb_per_cpu=Fraction(20),
    )


def document_with_price(written: str) -> Any:
    """Return a loaded document that contains a price with this spelling."""
    text = f"{as_yaml(HEAD)}prices: [{{nodeSelector: {{a: b}}, price: {written}}}]"
    (document,) = parse_yaml(text.encode(), "x", single=True)
    return document


@pytest.mark.parametrize("written", ["0.00005", "0.000123", "0.000000000001", "'0.00005'", "7.0"])
def test_small_price_is_exact_and_survives_round_trip(written: str) -> None:
    """Python prints 0.00005 as 5e-05."""
    found = parse(document_with_price(written), "x")
    assert found.price_of({"a": "b"}) == Fraction(written.strip("'"))
    (again,) = parse_yaml(as_yaml(document_with_price(written)).encode(), "x", single=True)
    assert again == document_with_price(written)


@pytest.mark.parametrize("value", [5e-05, 1e20, 1e22, 0.1, 3.0, -1.5e-7])
def test_number_survives_yaml_round_trip(value: float) -> None:
    (again,) = parse_yaml(as_yaml({"a": value}).encode(), "x", single=True)
    assert again == {"a": value}
    assert isinstance(again["a"], float)


@pytest.mark.parametrize("written", ["0.0000000000001", "1" * 16 + ".0", "'5e-05'", "-0.00005"])
def test_price_is_rejected_when_out_of_bounds(written: str) -> None:
    with pytest.raises(ConfigError, match="allowed: a decimal number of at least 0"):
        parse(document_with_price(written), "x")


def test_percentage_is_exact() -> None:
    config = parse({**HEAD, "thresholds": {"cpu": "62.5%"}}, "x")
    assert config.thresholds.cpu == Fraction(5, 8)
    assert config.thresholds.memory == Fraction(19, 20)


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("10m", 600), ("1h30m", 5400), ("90s", 90), ("2000ms", 2)]
)
def test_duration_is_read_in_seconds(text: str, seconds: int) -> None:
    assert parse({**HEAD, "unneededTime": text}, "x").unneeded_time_seconds == seconds


@pytest.mark.parametrize(("change", "path"), [*FAULTY, *BEYOND])
def test_fault_names_path_and_allowed_values(change: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as rejected:
        parse({**HEAD, **change}, "ebb.yaml")
    (fault,) = rejected.value.faults
    assert fault.startswith(f"{path}: ")
    assert "allowed" in fault
    assert str(rejected.value) == f"ebb.yaml: {fault}"


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as rejected:
        parse({"mode": "x", "unneededTime": "y", "mod": 1}, "ebb.yaml")
    assert len(rejected.value.faults) == 5
    (unknown,) = (fault for fault in rejected.value.faults if fault.startswith("mod: "))
    assert unknown.startswith("mod: unknown field; allowed: apiVersion, kind, mode, ")
    assert unknown.endswith("; did you mean mode?")


def test_fault_of_former_minimum_savings_says_what_is_allowed() -> None:
    with pytest.raises(ConfigError) as rejected:
        parse({**HEAD, "minSavings": {"perMonth": 20}}, "x")
    (fault,) = rejected.value.faults
    allowed = "a price for an hour, a decimal number of at least 0"
    assert fault == f"minSavings: {{'perMonth': 20}}; allowed: {allowed}"


@pytest.mark.parametrize("written", ["20%", "62.5%", "33.333333333%", "0.00001%", "100%"])
def test_percentage_limit_is_reported_as_written_in_file(written: str) -> None:
    found = parse({**HEAD, "budgets": {"maxMarked": written}}, "x").budgets.cluster
    assert str(found.max_marked) == written


def test_budgets_of_cluster_and_pools_are_numbers_or_percentages() -> None:
    pool = {
        "name": "a",
        "selector": {"matchLabels": {"pool": "a"}},
        "maxMarked": "25%",
        "minNodes": 2,
    }
    found = parse({**HEAD, "budgets": {"maxMarked": 3}, "pools": [pool]}, "x").budgets
    assert found.cluster == replace(Budgets().cluster, max_marked=Limit(3))
    assert found.pool_of({"pool": "a"}) == Pool(
        name="a",
        selector=LabelSelector(match_labels=(("pool", "a"),)),
        budget=Budget(max_marked=Limit(None, Fraction(1, 4)), min_nodes=2),
    )
    assert found.pool_of({"pool": "b"}) is None


@pytest.mark.parametrize(
    ("given", "hysteresis"),
    [("0%", Fraction(0)), ("2.5%", Fraction(1, 40)), ("99.9%", Fraction(999, 1000))],
)
def test_hysteresis_is_a_share_below_one(given: str, hysteresis: Fraction) -> None:
    assert parse({**HEAD, "hysteresis": given}, "x").hysteresis == hysteresis
    assert Config().hysteresis == Fraction(1, 20)


@pytest.mark.parametrize(("given", "seconds"), [("never", None), ("30m", 1800), ("0s", 0)])
def test_no_schedule_after_is_never_by_default(given: str, seconds: int | None) -> None:
    assert parse({**HEAD, "noScheduleAfter": given}, "x").no_schedule_after_seconds == seconds
    assert Config().no_schedule_after_seconds is None


def test_settings_that_need_restart_are_named() -> None:
    other = {"clusterAutoscaler": {"status": "ca/other"}, "controller": {"interval": "1s"}}
    after = parse({**HEAD, **other}, "x")
    changed = ["clusterAutoscaler", "clusterAutoscaler.status"]
    assert restart_needed(Config(), after) == changed
    assert restart_needed(Config(), parse({**HEAD, "mode": "enforce"}, "x")) == []


def test_no_restart_is_needed_when_only_other_programs_change() -> None:
    theirs = {"webhook": {"certDir": "/tls"}, "extender": {"certDir": "/tls"}}
    assert restart_needed(Config(), parse({**HEAD, **theirs}, "x")) == []


def test_node_labels_are_those_used_by_any_setting() -> None:
    assert Config().node_labels() == set()
    text = {
        "prices": [{"nodeSelector": {"type": "a", "spot": "b"}, "price": "1"}],
        "pools": [{"name": "p", "selector": {"matchLabels": {"pool": "x"}}}],
        "underutilizedCount": {"poolLabel": "count", "pools": {"x": {}}},
    }
    assert parse({**HEAD, **text}, "x").node_labels() == {"type", "spot", "pool", "count"}


def test_file_sets_mode_and_score() -> None:
    config = parse({**HEAD, "mode": "enforce", "extender": {"score": "marks"}}, "x")
    assert config.mode is Mode.ENFORCE
    assert config.extender.score == "marks"
    assert Config().extender.score == "pack"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        pytest.param(b"a: 1\na: 2\n", "line 2: ", id="duplicate key"),
        pytest.param(b"a: &x 1\nb: *x\n", "aliases", id="alias"),
        pytest.param(b"a: [", "line", id="not YAML"),
        pytest.param(b"\xff\xfe", "UTF-8", id="not UTF-8"),
        pytest.param(b"", "document", id="empty"),
        pytest.param(b"- 1", "document", id="a list"),
        pytest.param(b"a: 1" * 300_000, "larger than", id="too large"),
        pytest.param(b"1: 2", "not text", id="number as key"),
    ],
)
def test_invalid_file_is_reported_with_its_name(tmp_path: Path, raw: bytes, problem: str) -> None:
    file = tmp_path / "ebb.yaml"
    file.write_bytes(raw)
    with pytest.raises(ConfigError) as rejected:
        files.read_config(str(file))
    assert str(file) in str(rejected.value)
    assert problem in str(rejected.value)


def test_missing_file_is_reported_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"/no/such: No such file"):
        files.read_config("/no/such")


def test_dump_is_read_plain_or_gzipped(tmp_path: Path) -> None:
    plain = b"{}" * 1000
    for name, raw in (("dump.json", plain), ("dump.json.gz", gzip.compress(plain))):
        (tmp_path / name).write_bytes(raw)
        assert files.read_dump(str(tmp_path / name)) == plain
    whole = (tmp_path / "dump.json.gz").read_bytes()
    (tmp_path / "cut.gz").write_bytes(whole[:-9])
    with pytest.raises(InvalidInputError, match=r"cut\.gz: "):
        files.read_dump(str(tmp_path / "cut.gz"))


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": "b"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]},
         {"a": "c"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]},
         {"a": "b"}, False),
        ({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]},
         {"a": "b"}, False),
        ({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]},
         {"a": "b", "c": "d"}, True),
    ],
)  # fmt: skip
def test_which_nodes_a_pool_selects(
    selector: dict[str, Any], labels: dict[str, str], selected: bool
) -> None:
    config = parse({**HEAD, "pools": [{"name": "p", "selector": selector}]}, "x")
    budgets = config.budgets
    assert (budgets.pool_of(labels) is not None) is selected
    assert budgets.empty_pools([labels, {"other": "x"} | labels]) == ([] if selected else ["p"])
    assert budgets.pools[0].selector.label_keys <= config.node_labels()
