"""The answer of `ebb replay` as JSON."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from cli.answers import Figure, Replayed, VariantResult
from cli.formats.json import DIGITS
from core.config.settings import API_VERSION


def document(answer: Replayed) -> dict[str, Any]:
    """Return the simulated variants and the recommended one as a JSON document."""
    chosen = answer.recommended
    return {
        "apiVersion": API_VERSION,
        "kind": "Replay",
        "source": answer.source,
        "simulated": answer.summary,
        "notes": list(answer.notes),
        "seeds": list(answer.seeds),
        "recorded": _figures(answer.recorded),
        "variants": [_variant(variant) for variant in answer.variants],
        "recommended": chosen
        and {"variant": chosen.name, "why": chosen.why, "configuration": chosen.file},
    }


def _variant(variant: VariantResult) -> dict[str, Any]:
    return {
        "name": variant.name,
        "settings": dict(variant.settings),
        "paretoOptimal": variant.best,
        "metrics": _figures(variant.figures),
    }


def _figures(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    return [_figure(figure) for figure in figures]


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.label,
        "mean": _number(figure.mean),
        "minimum": _number(figure.least),
        "maximum": _number(figure.most),
    }


def _number(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), DIGITS)
