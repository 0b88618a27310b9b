"""Variants that are compared on one load: without Ebb, and with Ebb under many settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from core.config.document import parse
from core.config.programs import SCORE_NAMES
from core.config.settings import API_VERSION, KIND, Config
from core.edge.files import parse_yaml
from core.model.errors import InvalidInputError
from core.policies.all import POLICIES
from sim.scenario import SCENARIOS, WHOLE, Scenario

POINTS_MAX: Final = 200
"""Combinations of a sweep; each runs with every seed."""
VALUES_MAX: Final = 20
"""Values of one setting."""
BOTH: Final[Mapping[str, tuple[str, ...]]] = {
    "thresholds": ("thresholds.cpu", "thresholds.memory")
}
"""Names that stand for two settings with the same value."""
EVICTIONS: Final = "evictions of Ebb are not played"
NOT_PLAYED: Final[Mapping[str, str]] = {
    "eviction": EVICTIONS,
    "drain": EVICTIONS,
    "mode": "what is played is enforce",
    "webhook": "it has no setting that a simulation could vary",
    "controller": "is not played; --interval says how often the engine looks",
    "extender": "of its settings score alone is played",
}
"""Sections and settings that the simulation ignores, and why."""
PLAYED: Final = ("extender.score",)
"""Settings in these sections that the simulation uses."""
FOLLOWING: Final[Mapping[str, str]] = {
    "thresholds": "leaveThresholds",
    "nodeUtilization.utilization": "nodeUtilization.leave",
}
"""Setting that may contradict another value of a setting, and is removed then."""
USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "thresholds": ("70%", "80%", "90%"),
    "reserve.length": ("2m", "10m"),
    "extender.score": SCORE_NAMES,
}
"""Values of the predefined sweep `usual`."""
Document = Mapping[str, Any]
EMPTY: Final[Document] = {"apiVersion": API_VERSION, "kind": KIND}


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant."""

    name: str
    scenario: Scenario
    config: Config
    """Configuration of Ebb; without Ebb only its prices are used."""
    document: Document | None = None
    """Configuration file of the variant; None if no file configures it."""
    settings: tuple[tuple[str, str], ...] = ()
    """Settings that a sweep has set."""


def columns(document: Document, source: str) -> Iterator[Variant]:
    """Yield a variant for each mode, score and policy. Raises: ConfigError.

    A policy that nominates no node with these settings is left out: it equals a cluster without
    Ebb.
    """
    config = parse(document, source)
    for scenario in SCENARIOS:
        # without its extender Ebb is less than any file says
        yield Variant(scenario.name, scenario, config, document if scenario is WHOLE else None)
    for score in SCORE_NAMES:
        if score != config.extender.score:
            told = _changed(document, {"extender.score": score})
            yield Variant(f"{WHOLE.name}, {score}", WHOLE, parse(told, source), told)
    for policy in POLICIES:
        if policy != config.policy:
            ruled = parse(document, source, policy)
            if not _nominates(ruled):
                continue
            told = {**document, "policy": policy}
            yield Variant(f"{WHOLE.name}, {policy}", WHOLE, ruled, told)


def _nominates(config: Config) -> bool:
    pools = getattr(config.policy_settings(), "pools", None)
    return pools is None or any(pool.enabled for pool in pools.values())


def asked_for(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Parse `setting=value,value`. Raises: InvalidInputError."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        path, equals, values = text.partition("=")
        split = tuple(value.strip() for value in values.split(","))
        if not equals or not path.strip() or not all(split) or path.strip() in found:
            raise InvalidInputError(
                f"--sweep {text!r:.80}",
                "allowed: a setting's path once, '=', and values between commas, "
                "such as reserve.length=2m,5m",
            )
        section = path.strip().partition(".")[0]
        if section in NOT_PLAYED and path.strip() not in PLAYED:
            raise InvalidInputError(f"--sweep {path:.80}", NOT_PLAYED[section])
        if len(split) > VALUES_MAX:
            told = f"{len(split)} values; allowed: up to {VALUES_MAX}"
            raise InvalidInputError(f"--sweep {path:.80}", told)
        found[path.strip()] = split
    return found


def points(swept: Mapping[str, Sequence[str]], document: Document, source: str) -> list[Variant]:
    """Return a variant for each combination of values. Raises: ConfigError, InvalidInputError."""
    paths = list(swept)
    count = 1
    for values in swept.values():
        count *= len(values)
    if count > POINTS_MAX:
        told = f"{count:,} combinations; allowed: up to {POINTS_MAX}"
        raise InvalidInputError("--sweep", told)
    return [
        _point(tuple(zip(paths, values, strict=True)), document, source)
        for values in product(*swept.values())
    ]


def _point(settings: tuple[tuple[str, str], ...], document: Document, source: str) -> Variant:
    told = {one: _read(path, text) for path, text in settings for one in BOTH.get(path, (path,))}
    document = _changed(document, told)
    name = ", ".join(f"{path} {value}" for path, value in settings)
    config = parse(document, f"{source} with {name}")
    return Variant(name, WHOLE, config, document, settings)


def _changed(document: Document, told: Mapping[str, Any]) -> Document:
    """Return the document with new values, without settings that depended on the old ones."""
    for leading, following in FOLLOWING.items():
        own = (path for path in told if f"{path}.".startswith(f"{leading}."))
        if changed := [path for path in own if _at(document, path) != told[path]]:
            document = _unled(document, changed, following.split("."))
    for path, value in told.items():
        document = _with(document, path.split("."), value)
    return document


def _unled(document: Document, changed: Sequence[str], following: Sequence[str]) -> Document:
    """Return the document without dependent settings, except in pools that set all new values."""
    document = _without(document, following)
    if not document.get("pools"):
        return document
    pools = [
        pool if all(_at(pool, path) is not None for path in changed) else _without(pool, following)
        for pool in document["pools"]
    ]
    return {**document, "pools": pools}


def _at(document: Any, path: str) -> Any:  # noqa: ANN401 YAML holds anything
    for name in path.split("."):
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _without(document: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 YAML holds anything
    """Return the document without the value at a path."""
    first, *rest = path
    if not isinstance(document, Mapping) or first not in document:
        return document
    left = {name: value for name, value in document.items() if name != first}
    return {**document, first: _without(document[first], rest)} if rest else left


def _with(document: Any, path: Sequence[str], value: Any) -> Any:  # noqa: ANN401 YAML holds anything
    """Return the document with a value at a path."""
    first, *rest = path
    inner = document if isinstance(document, Mapping) else {}
    return {**inner, first: _with(inner.get(first), rest, value) if rest else value}


def _read(path: str, text: str) -> object:
    """Parse a value as in a configuration file. Raises: ConfigError."""
    raw = text.encode(errors="surrogateescape")  # as the command line had it
    (value,) = parse_yaml(raw, f"--sweep {path:.80}", single=True)
    return value
