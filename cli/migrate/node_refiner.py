"""Convert settings of Node Refiner: a ConfigMap with flat text values, times in minutes."""

from collections.abc import Mapping, Sequence
from typing import Final

from cli.migrate.settings_file import field
from cli.migrate.tool import DRAINING, Migrated, SourceSetting, TargetSetting, Tool
from cli.migrate.values import COUNT, MINUTES, MODE, NUMBER

POLICY: Final = "ExcessNodes"
CONFIG_MAP: Final = "node-refiner-cm"
TAKEN: Final[Mapping[str, TargetSetting]] = {
    "drainer_enabled": TargetSetting(("mode",), MODE),
    "time_gap": TargetSetting(("markInterval",), MINUTES),
    "time_since_last_addition": TargetSetting(("cooldown", "delayAfterAdd"), MINUTES),
    "excess_nodes_threshold": TargetSetting(("excessNodes", "threshold"), NUMBER),
    "minimum_nodes": TargetSetting(("budgets", "minNodes"), COUNT),
    "minimum_non_tainted_nodes": TargetSetting(("budgets", "minUntaintedNodes"), COUNT),
}
"""All settings that Node Refiner reads."""
NOTES: Final = (
    f"draining: Node Refiner evicts a node's pods; {DRAINING}",
    "minimums: Node Refiner checks them before a removal, so it may end one node below; Ebb never",
    "threshold: Node Refiner may remove a node at exactly the threshold; Ebb only above it",
)


def _settings_of(document: object) -> Sequence[SourceSetting]:
    """Return the settings in Node Refiner's ConfigMap, or in a mapping with one of its keys.

    Returns an empty sequence for any other object.
    """
    data = field(document, "data") if field(document, "kind") == "ConfigMap" else document
    named = field(document, "metadata", "name") == CONFIG_MAP
    if not isinstance(data, dict) or not (named or TAKEN.keys() & data.keys()):
        return ()
    return [SourceSetting(key, value) for key, value in data.items()]


def _convert(given: Sequence[SourceSetting]) -> Migrated:
    result = Migrated.by(POLICY)
    result.each(given, TAKEN, lambda _: "unknown to Node Refiner, which ignores it")
    result.notes.extend(NOTES)
    return result


TOOL: Final = Tool("Node Refiner", TAKEN, _settings_of, _convert)
