"""Read prices of nodes from a CSV or from metrics, for the setting `prices`."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from cli.nodes import TYPE_LABELS
from core.config.prices import PRICES_MAX
from core.config.settings import API_VERSION, KIND
from core.engine.zones import ZONE_LABEL
from core.model.constraints import HOST_LABEL
from core.model.errors import ConfigError, InvalidInputError
from runtime import files
from runtime.yaml_text import as_yaml

BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of a file."""
KARPENTER: Final = "karpenter_cloudprovider_instance_type_offering_price_estimate"
"""Metric of Karpenter for AWS: the price of a type for each kind of capacity and each zone."""
OPENCOST: Final = "node_total_hourly_cost"
"""Metric of OpenCost: the price of each node."""
TYPE: Final = TYPE_LABELS[0]
LABELS: Final[Mapping[str, str]] = {
    "type": TYPE,
    "instance_type": TYPE,
    "capacity_type": "karpenter.sh/capacity-type",
    "zone": ZONE_LABEL,
}
"""Label of nodes by the name that `ebb plan -o csv` or a metric has for it."""
PRICE: Final = "price"
DIGITS: Final = Decimal("0.000001")
_SAMPLE: Final = re.compile(rf"(?:{KARPENTER}|{OPENCOST})\s*[{{\s]")
ALLOWED: Final = (
    f"a CSV with a column {PRICE} and columns of labels, or {KARPENTER} or {OPENCOST} as text or "
    "as an answer of Prometheus"
)


class Entry(NamedTuple):
    """The price of the nodes with some labels, for an hour."""

    labels: tuple[tuple[str, str], ...]
    price: Decimal


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[Any, str] | None = None
    values: list[tuple[Any, str]] = msgspec.field(default_factory=list)


class _Result(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    data: _Result


_ANSWER: Final = msgspec.json.Decoder(_Answer)


def section(sources: Sequence[tuple[str, bytes]]) -> tuple[str, list[str]]:
    """Return the setting `prices` as YAML, and warnings.

    *sources*: the name of each file, for messages, and its content. Raises: InvalidInputError.
    """
    warnings: list[str] = []
    by_labels: dict[tuple[tuple[str, str], ...], Decimal] = {}
    for source, raw in sources:
        for entry in _entries(source, raw, warnings):
            if by_labels.setdefault(entry.labels, entry.price) != entry.price:
                names = ", ".join("=".join(label) for label in entry.labels)
                raise InvalidInputError(source, f"{names}: has a second price, {entry.price:f}")
    if len(by_labels) > PRICES_MAX:
        problem = (
            f"{len(by_labels):,} prices; allowed: up to {PRICES_MAX:,}; keep only the prices of "
            "your nodes"
        )
        raise InvalidInputError(", ".join(source for source, _ in sources), problem)
    # The first entry that matches a node counts, so the most specific ones come first.
    ordered = sorted(by_labels.items(), key=lambda entry: (-len(entry[0]), entry[0]))
    prices = [{"nodeSelector": dict(labels), "price": f"{price:f}"} for labels, price in ordered]
    text = as_yaml({"prices": prices})
    _check(text, ", ".join(source for source, _ in sources))
    return text, warnings


def _check(text: str, source: str) -> None:
    """Check the setting as the programs do. Raises: InvalidInputError."""
    head = as_yaml({"apiVersion": API_VERSION, "kind": KIND})
    try:
        files.parse_config(f"{head}{text}".encode(), source)
    except ConfigError as fault:
        raise InvalidInputError(source, "; ".join(fault.faults)) from fault


def _entries(source: str, raw: bytes, warnings: list[str]) -> Sequence[Entry]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise InvalidInputError(source, f"not UTF-8 (byte {fault.start})") from fault
    if text.lstrip().startswith("{"):
        found = _of_metrics(source, _answered(source, raw), warnings)
    elif text.startswith("#") or any(map(_SAMPLE.match, text.splitlines())):
        found = _of_metrics(source, _exposed(source, text), warnings)
    else:
        found = list(_of_csv(source, text))
    if not found:
        raise InvalidInputError(source, f"has no prices; allowed: {ALLOWED}")
    return found


Sample = tuple[Mapping[str, str], str]
"""Labels and value of a sample."""


def _answered(source: str, raw: bytes) -> Iterator[Sample]:
    """Yield the samples of an answer to a query of Prometheus; the last one of a range."""
    try:
        answer = _ANSWER.decode(raw)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise InvalidInputError(source, f"{fault}; allowed: {ALLOWED}") from fault
    for series in answer.data.result:
        for _, value in [series.value] if series.value else series.values[-1:]:
            yield series.metric, value


def _exposed(source: str, text: str) -> Iterator[Sample]:
    """Yield the samples of a page of metrics."""
    lines = [line for line in text.splitlines() if _SAMPLE.match(line)]
    try:
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                yield {"__name__": sample.name, **sample.labels}, str(sample.value)
    except ValueError as fault:
        raise InvalidInputError(source, f"not a page of metrics: {fault}") from fault


def _of_metrics(source: str, samples: Iterator[Sample], warnings: list[str]) -> list[Entry]:
    offered: dict[tuple[str, str], dict[str, Decimal]] = defaultdict(dict)
    costs: dict[tuple[str, str], set[Decimal]] = defaultdict(set)
    for labels, text in samples:
        of_type, where = labels.get("instance_type", ""), f"{labels.get('__name__', 'result')}"
        price = _price(source, where, text)
        if of_type and "capacity_type" in labels:
            offered[of_type, labels["capacity_type"]][labels.get("zone", "")] = price
        elif of_type:
            costs[TYPE, of_type].add(price)
        elif "node" in labels:
            costs[HOST_LABEL, labels["node"]].add(price)
    return [*_offerings(offered), *_costs(source, costs, warnings)]


def _offerings(offered: Mapping[tuple[str, str], Mapping[str, Decimal]]) -> Iterator[Entry]:
    """Yield a price for each zone, or one for all zones if they are equal."""
    for (of_type, capacity), by_zone in offered.items():
        labels = (LABELS["capacity_type"], capacity), (TYPE, of_type)
        if len(set(by_zone.values())) == 1:
            yield Entry(labels, next(iter(by_zone.values())))
            continue
        for zone, price in by_zone.items():
            yield Entry((*labels, *(((ZONE_LABEL, zone),) if zone else ())), price)


def _costs(
    source: str, costs: Mapping[tuple[str, str], set[Decimal]], warnings: list[str]
) -> Iterator[Entry]:
    for label, prices in costs.items():
        mean = (sum(prices, Decimal()) / len(prices)).quantize(DIGITS).normalize()
        if len(prices) > 1:
            least, most = min(prices), max(prices)
            warnings.append(
                f"{source}: nodes with {'='.join(label)} cost from {least:f} to {most:f}; "
                f"their price becomes the mean, {mean:f}"
            )
        yield Entry((label,), mean)


def _of_csv(source: str, text: str) -> Iterator[Entry]:
    try:
        reader = csv.DictReader(io.StringIO(text), strict=True)
        headings = [heading.strip() for heading in reader.fieldnames or ()]
        if PRICE not in headings or len(headings) < 2:
            raise InvalidInputError(
                source, f"headings {', '.join(headings) or 'none'}; allowed: {ALLOWED}"
            )
        reader.fieldnames = headings
        for row in reader:
            where = f"line {reader.line_num}"
            if None in row or None in row.values():
                problem = f"{where}: has more or fewer cells than there are headings"
                raise InvalidInputError(source, problem)
            price = _price(source, f"{where}: {PRICE}", row.pop(PRICE))
            labels = {LABELS.get(key, key): value for key, value in row.items() if value}
            if not labels:
                raise InvalidInputError(source, f"{where}: has a price, but no label")
            yield Entry(tuple(sorted(labels.items())), price)
    except csv.Error as fault:
        raise InvalidInputError(source, f"not a CSV: {fault}") from fault


def _price(source: str, where: str, text: str) -> Decimal:
    try:
        price = Decimal(text.strip())
        rounded = price.quantize(DIGITS) if price >= 0 else None
    except InvalidOperation:  # no number, not a finite one, or too large
        rounded = None
    if rounded is None:
        raise InvalidInputError(source, f"{where}: {text!r:.80}; allowed: a number from 0 on")
    return rounded.normalize()
