"""A replay as JSON."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from cli.answers import Figure, Replayed, VariantResult
from cli.forms.json.plan import DIGITS
from core.config.settings import API_VERSION


def document(answer: Replayed) -> dict[str, Any]:
    """Return the replay in the form that orjson writes."""
    chosen = answer.recommended
    return {
        "apiVersion": API_VERSION,
        "kind": "Replay",
        "source": answer.source,
        "played": answer.told,
        "notes": list(answer.notes),
        "seeds": list(answer.seeds),
        "asItWas": _figures(answer.really),
        "ways": [_way(one) for one in answer.ways],
        "recommended": chosen
        and {"way": chosen.name, "why": chosen.why, "configuration": chosen.file},
    }


def _way(one: VariantResult) -> dict[str, Any]:
    return {
        "name": one.name,
        "settings": dict(one.settings),
        "nothingIsBetter": one.best,
        "figures": _figures(one.figures),
    }


def _figures(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    return [_figure(one) for one in figures]


def _figure(one: Figure) -> dict[str, Any]:
    return {
        "name": one.label,
        "mean": _number(one.mean),
        "least": _number(one.least),
        "most": _number(one.most),
    }


def _number(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), DIGITS)
