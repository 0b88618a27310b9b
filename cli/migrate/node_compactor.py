"""Convert settings of Estafette's node compactor: pools in JSON, times in environment variables.

The JSON is in a ConfigMap, in values of the Helm chart, or in a file of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cli.migrate.settings_file import containers, field, parse_json
from cli.migrate.tool import DRAINING, OBSERVE, Migrated, SourceSetting, TargetSetting, Tool
from cli.migrate.values import (
    COUNT_FROM_1,
    FLAG,
    SECONDS,
    SECONDS_FROM_1,
    SHARE,
    read,
    shown,
)
from core.model.errors import InvalidInputError

POLICY: Final = "UnderutilizedCount"
DATA_KEY: Final = "estafette-k8s-node-compactor-config.yaml"
POOLS: Final = "nodePools"
ENABLED: Final = "enabled"
TAKEN: Final[Mapping[str, TargetSetting]] = {
    "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS": TargetSetting(("unneededTime",), SECONDS),
    "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS": TargetSetting(
        ("controller", "interval"), SECONDS_FROM_1
    ),
}
"""Environment variables with an equivalent."""
VALUES: Final[Mapping[str, str]] = {
    "neededMarkedTimeForRemovalSeconds": "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS",
    "sleepDurationBetweenIterationsSeconds": "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS",
    "minimumNodeAgeSeconds": "MINIMUM_NODE_AGE_SECONDS",
}
"""Environment variable for each value of the Helm chart."""
WITHOUT: Final[Mapping[str, str]] = {
    "MINIMUM_NODE_AGE_SECONDS": "Ebb has no minimum age; after a node is added, all removals wait "
    "for `cooldown.delayAfterAdd`",
}
OF_POOL: Final[Mapping[str, TargetSetting]] = {
    "scaleDownCPURequestRatioLimit": TargetSetting(("limit",), SHARE),
    "scaleDownRequiredUnderutilizedNodeCount": TargetSetting(("required",), COUNT_FROM_1),
}
"""Fields of a pool with an equivalent; a disabled pool omits fields that are unset or 0."""
NOTES: Final = (
    f"draining: the compactor deletes pods, whatever PodDisruptionBudgets say; {DRAINING}",
)
NO_DELAY: Final = (
    "unneededTime: not in this file; the compactor reads it from the environment variable "
    "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS; the default is 300, and 600 in the Helm chart"
)


def _settings_of(document: object) -> Sequence[SourceSetting]:
    if field(document, "kind") == "ConfigMap":
        return _of_data(field(document, "data", DATA_KEY), f"data.{DATA_KEY}")
    if isinstance(pools := field(document, POOLS), dict):
        return [SourceSetting(POOLS, pools), *_others(document, POOLS)]
    if config := field(document, "configmap", "compactorConfig"):
        values = [SourceSetting(name, field(document, key)) for key, name in VALUES.items()]
        given = [value for value in values if value.value is not None]
        return [*_of_data(config, "configmap.compactorConfig"), *given]
    return [given for container in containers(document) for given in _environment(container)]


def _of_data(data: object, where: str) -> Sequence[SourceSetting]:
    if data is None:
        return ()
    if not isinstance(data, str):
        raise InvalidInputError(where, f"{shown(data)}; allowed: JSON, as a text")
    try:
        content = parse_json(data, where)
    except InvalidInputError as fault:
        raise InvalidInputError(where, f"{shown(data)}: {fault.problem}") from fault
    if not isinstance(field(content, POOLS), dict):
        raise InvalidInputError(where, f"{shown(data)}; allowed: a mapping with {POOLS}")
    return [SourceSetting(POOLS, content[POOLS]), *_others(content, POOLS)]


def _others(mapping: Any, *known: str) -> Iterator[SourceSetting]:  # noqa: ANN401 JSON holds anything
    return (SourceSetting(key, value) for key, value in mapping.items() if key not in known)


def _environment(container: object) -> Iterator[SourceSetting]:
    variables = field(container, "env")
    for variable in variables if isinstance(variables, list) else ():
        if (name := field(variable, "name")) in VALUES.values():
            yield SourceSetting(str(name), field(variable, "value"))


def _convert(given: Sequence[SourceSetting]) -> Migrated:
    result = Migrated.by(POLICY)
    value_of = {setting.key: setting.value for setting in given}
    if not isinstance(value_of.get(POOLS), dict):
        raise InvalidInputError(POOLS, "missing; allowed: a mapping of pools")
    pools: Any = value_of[POOLS]
    enabled = [_pool(name, pool, result) for name, pool in pools.items()]
    if not any(enabled):
        result.put(("mode",), OBSERVE)
    others = [setting for setting in given if setting.key != POOLS]
    result.each(others, TAKEN, lambda key: WITHOUT.get(key, "unknown to the compactor"))
    result.notes.extend(NOTES if "unneededTime" in result.document else (*NOTES, NO_DELAY))
    return result


def _pool(name: str, pool: object, result: Migrated) -> bool:
    """Convert a node pool of the compactor into *result*; return whether the pool is enabled.

    Raises: InvalidInputError.
    """
    where = f"{POOLS}.{name}"
    if not isinstance(pool, dict):
        raise InvalidInputError(shown(where), f"{shown(pool)}; allowed: a mapping")
    at = ("underutilizedCount", "pools", name)
    enabled = read(f"{where}.{ENABLED}", pool.get(ENABLED, False), FLAG) is True
    result.put((*at, ENABLED), enabled)
    for key, taken in OF_POOL.items():
        if enabled or pool.get(key) not in _UNSET:
            result.put((*at, *taken.path), read(f"{where}.{key}", pool.get(key), taken.value_type))
    for other in _others(pool, ENABLED, *OF_POOL):
        result.leave(
            SourceSetting(f"{where}.{other.key}", other.value), "unknown to the compactor"
        )
    return enabled


_UNSET: Final = (None, 0, "0", "0.0")

TOOL: Final = Tool("estafette's node compactor", TAKEN, _settings_of, _convert)
