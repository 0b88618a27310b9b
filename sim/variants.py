"""Variants that are compared on one load: without Ebb, and with Ebb under many settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from core.config.document import parse
from core.config.programs import SCORE_NAMES
from core.config.settings import API_VERSION, KIND, Config, PodDeletionCost
from core.config.surge import SurgeMode
from core.model.errors import InvalidInputError
from core.policies.all import POLICIES
from runtime.yaml_text import parse_yaml
from sim.scenario import SCENARIOS, SURGE, WHOLE, Parts, Scenario

POINTS_MAX: Final = 200
"""Combinations of a sweep; each runs with every seed."""
VALUES_MAX: Final = 20
"""Values of one setting."""
BOTH: Final[Mapping[str, tuple[str, ...]]] = {
    "thresholds": ("thresholds.cpu", "thresholds.memory")
}
"""Names that stand for two settings with the same value."""
EVICTIONS: Final = "evictions by Ebb are not simulated"
NOT_SIMULATED: Final[Mapping[str, str]] = {
    "eviction": EVICTIONS,
    "mode": "the simulated mode is always enforce",
    "webhook": "no setting of the webhook affects a simulation",
    "controller": "not simulated; --interval sets the time between reconciliations",
    "schedule": "a simulation has no real date",
    "pauseUntil": "a simulation has no real date",
    "extender": "of the section `extender`, only the setting `extender.score` is simulated",
}
"""Sections and settings that the simulation ignores, and why."""
SIMULATED: Final = ("extender.score",)
"""Settings in sections of NOT_SIMULATED that the simulation uses nevertheless."""
USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "thresholds": ("70%", "80%", "90%"),
    "reserve.window": ("2m", "10m"),
    "extender.score": SCORE_NAMES,
}
"""Values of the predefined sweep `usual`."""
Document = Mapping[str, Any]
EMPTY: Final[Document] = {"apiVersion": API_VERSION, "kind": KIND}


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario with a configuration of Ebb, to be compared with others on the same load."""

    name: str
    scenario: Scenario
    config: Config
    """Configuration of Ebb; without Ebb only its prices are used."""
    document: Document | None = None
    """Configuration of the variant as in a file; None if no configuration file can describe it."""
    settings: tuple[tuple[str, str], ...] = ()
    """Settings that a sweep has set."""


def columns(document: Document, source: str) -> Iterator[Variant]:
    """Yield a variant for each scenario, and for each other score and policy of Ebb.

    *document*: the configuration that they change; *source*: its name, for errors. A policy that
    proposes no node for removal is left out: its result would equal that without Ebb. Raises:
    ConfigError.
    """
    config = parse(document, source)
    for scenario in SCENARIOS:
        if scenario.ebb is not Parts.SURGE:
            # No file configures Ebb without its extender.
            yield Variant(scenario.name, scenario, config, document if scenario is WHOLE else None)
        elif config.pod_deletion_cost is not PodDeletionCost.DISABLED:
            changes = _changed(document, {"surge.mode": SurgeMode.ENABLED.value})
            configured = changes if scenario is SURGE else None
            yield Variant(scenario.name, scenario, parse(changes, source), configured)
    for score in SCORE_NAMES:
        if score != config.extender.score:
            changes = _changed(document, {"extender.score": score})
            yield Variant(f"{WHOLE.name}, {score}", WHOLE, parse(changes, source), changes)
    for policy in POLICIES:
        if policy != config.policy:
            policy_config = parse(document, source, policy)
            if not _nominates(policy_config):
                continue
            changes = {**document, "policy": policy}
            yield Variant(f"{WHOLE.name}, {policy}", WHOLE, policy_config, changes)


def _nominates(config: Config) -> bool:
    pools = getattr(config.policy_settings(), "pools", None)
    return pools is None or any(pool.enabled for pool in pools.values())


def parse_sweep(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the values to try by setting, parsed from texts of the form `setting=value,value`.

    Raises: InvalidInputError.
    """
    sweep_values: dict[str, tuple[str, ...]] = {}
    for text in texts:
        path, equals, values = text.partition("=")
        split = tuple(value.strip() for value in values.split(","))
        if not equals or not path.strip() or not all(split) or path.strip() in sweep_values:
            raise InvalidInputError(
                f"--sweep {text!r:.80}",
                "allowed: a setting's path once, '=', and values between commas, "
                "such as reserve.window=2m,5m",
            )
        section = path.strip().partition(".")[0]
        if section in NOT_SIMULATED and path.strip() not in SIMULATED:
            raise InvalidInputError(f"--sweep {path:.80}", NOT_SIMULATED[section])
        if len(split) > VALUES_MAX:
            problem = f"{len(split)} values; allowed: up to {VALUES_MAX}"
            raise InvalidInputError(f"--sweep {path:.80}", problem)
        sweep_values[path.strip()] = split
    return sweep_values


def points(sweep: Mapping[str, Sequence[str]], document: Document, source: str) -> list[Variant]:
    """Return a variant for each combination of the values in a sweep.

    *sweep*: values by setting. *document*: the configuration that they change; *source*: its name,
    for errors. Raises: ConfigError, InvalidInputError.
    """
    paths = list(sweep)
    count = 1
    for values in sweep.values():
        count *= len(values)
    if count > POINTS_MAX:
        problem = f"{count:,} combinations; allowed: up to {POINTS_MAX}"
        raise InvalidInputError("--sweep", problem)
    return [
        _point(tuple(zip(paths, values, strict=True)), document, source)
        for values in product(*sweep.values())
    ]


def _point(settings: tuple[tuple[str, str], ...], document: Document, source: str) -> Variant:
    changes = {
        one: _read(path, text) for path, text in settings for one in BOTH.get(path, (path,))
    }
    document = _changed(document, changes)
    name = ", ".join(f"{path} {value}" for path, value in settings)
    config = parse(document, f"{source} with {name}")
    return Variant(name, SURGE if config.surges else WHOLE, config, document, settings)


def _changed(document: Document, changes: Mapping[str, Any]) -> Document:
    """Return the configuration with new values; *changes*: value by path of the setting."""
    for path, value in changes.items():
        document = _with(document, path.split("."), value)
    return document


def _with(document: Any, path: Sequence[str], value: Any) -> Any:  # noqa: ANN401 YAML holds anything
    first, *rest = path
    inner = document if isinstance(document, Mapping) else {}
    return {**inner, first: _with(inner.get(first), rest, value) if rest else value}


def _read(path: str, text: str) -> object:
    raw = text.encode(errors="surrogateescape")  # bytes as on the command line
    (value,) = parse_yaml(raw, f"--sweep {path:.80}", single=True)
    return value
