"""Odd but possible Nodes, as data for the hostile suite.

Each case consists of changed labels, annotations and spec; `Odd.onto` applies it to a Node.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from core.marks.wellknown import BACKOFF_ANNOTATION, DETAILS_ANNOTATION, MARK_LABEL, TAINT_KEY

Json = dict[str, Any]
ABSENT: Any = object()
THEIRS = {"key": "example.org/theirs", "value": "1", "effect": "NoSchedule"}
LOST = {"key": "example.org/lost", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
MANY = [{"key": f"example.org/t{number}", "effect": "NoSchedule"} for number in range(300)]
FIELDS = {"since": 1700000000, "deadline": 4000000000, "owner": "o", "policy": "p", "reason": "r"}

NUMBERS = [
    *("-1", "0", "-0", "1e3", "1.5", "1700000000.0", "1" + "0" * 12, "9" * 12, "1" + "0" * 70),
    *("9" * 5000, "Infinity", "-Infinity", "NaN", "true", "null", '""', '"7"', '"\u0663"'),
    *("\u0663", "[]", "{}", "[" * 900 + "]" * 900, "[" * 4000, "01", "+1", "0x10", "1_000"),
]
"""Values of `"since":`."""
TEXTS = ["\\u0000", "\\ud800", "\\n", "\x1b[2J", "\\", '\\"', "\u2028", "e\u0301", "x" * 200_000]


def details(**changed: str) -> str:
    """Return the annotation of the details, with values replaced by any text."""
    values = {name: json.dumps(value) for name, value in FIELDS.items()} | changed
    members = ",".join(f'"{name}":{value}' for name, value in values.items())
    return f"{{{members}}}"


def damaged() -> Iterator[str]:
    """Yield annotations, most of them damaged."""
    yield from ("", " ", "{", "null", "7", "[]", "{}", "\u0663", "[" * 100_000, "{" * 5000)
    yield from (details(since=number) for number in NUMBERS)
    yield from (details(deadline=number) for number in NUMBERS[:5])
    yield from (details(order=number) for number in NUMBERS)
    yield from (details(owner=f'"{text}"') for text in TEXTS)
    yield details(**{"since": "5", '"since': "6"})
    yield details() + details()
    yield details() + " " * 5000


@dataclass(frozen=True, kw_only=True)
class Odd:
    """Differences from a plain Node with a PreferNoSchedule mark."""

    name: str
    mark: str | None = "PreferNoSchedule"
    details: str | None = details()
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Any = ABSENT

    def onto(self, node: Json) -> Json:
        """Return the Node with the changes of this case."""
        node = deepcopy(node)
        metadata = node["metadata"]
        metadata["labels"] = {**(metadata.get("labels") or {})}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **self.annotations}
        for which, key, value in (
            ("labels", MARK_LABEL, self.mark),
            ("annotations", DETAILS_ANNOTATION, self.details),
        ):
            metadata[which].pop(key, None)
            if value is not None:
                metadata[which][key] = value
        node["spec"] = {**(node.get("spec") or {})}
        if self.taints is ABSENT:
            node["spec"].pop("taints", None)
        else:
            node["spec"]["taints"] = deepcopy(self.taints)
        return node


def ours(value: Any = "1700000000", effect: Any = "PreferNoSchedule", **more: Any) -> Json:
    """Return a taint with Ebb's key."""
    return {"key": TAINT_KEY, "value": value, "effect": effect, **more}


TAINTS: Mapping[str, Any] = {
    "null": None,
    "none": [],
    "300": MANY,
    "300 and ours": [*MANY[:150], ours(), *MANY[150:]],
    "duplicates": [THEIRS, THEIRS],
    "one key, three effects": [{**THEIRS, "effect": e} for e in ("NoSchedule", "NoExecute",
                                                               "PreferNoSchedule")],
    "a time, and an empty value": [LOST, {**LOST, "effect": "NoSchedule", "value": ""}],
    "ours hard": [ours(effect="NoSchedule")],
    "ours three times": [ours(), THEIRS, ours(effect="NoSchedule"), ours(effect="NoExecute")],
    "ours as it is, twice": [ours(), ours()],
    "ours with a time": [LOST, ours(effect="NoExecute", timeAdded="2026-01-01T00:00:00Z")],
    "ours, right, with a time": [ours(timeAdded="2026-01-01T00:00:00Z")],
    "ours without a value": [{"key": TAINT_KEY, "effect": "NoSchedule"}],
    "ours with a word": [ours("word")],
    "ours with a long value": [ours("9" * 63)],
    "ours with a bad value": [ours("-1"), THEIRS],
    "ours with digits of Arabic": [ours("\u0663")],
    "an effect that is none": [{**THEIRS, "effect": "Sometimes"}],
    "an empty one": [{}],
    "a bad key": [{**THEIRS, "key": "a b"}],
    "unknown fields": [{**THEIRS, "later": {"a": [1]}}, THEIRS | {"key": "b"}],
    "a key that is a number": [{**THEIRS, "key": 5}],
    "a list": [[THEIRS]],
    "an object": {"0": THEIRS},
    "a text": "taints",
    "a null in the list": [None, THEIRS],
}  # fmt: skip
MARKS = ["PreferNoSchedule", "NoSchedule", "", "Soft", "other", "-", "x" * 63, None]


def table() -> list[Odd]:
    """Return the cases that are written by hand."""
    cases = [Odd(name=f"details {place}", details=text) for place, text in enumerate(damaged())]
    cases += [
        Odd(name=f"lost details, {name}", details=None, taints=[THEIRS, ours(value)])
        for name, value in {"12 digits": "9" * 12, "13": "9" * 13, "-1": "-1", "": ""}.items()
    ]
    for mark in MARKS:
        cases += [
            Odd(name=f"mark {mark!r}, taints {name}", mark=mark, taints=taints)
            for name, taints in TAINTS.items()
        ]
    cases.append(Odd(name="a large annotation", annotations={"example.org/a": "x" * 200_000}))
    cases.append(Odd(name="a back-off", annotations={BACKOFF_ANNOTATION: "-1 " + "9" * 200}))
    return cases


def drawn(chance: random.Random, number: int) -> Odd:
    """Draw a random case from the tables, with mixed taints."""
    pool: Sequence[Json] = [
        *(one for taints in TAINTS.values() if isinstance(taints, list) and len(taints) < 9
          for one in taints if isinstance(one, dict)),
        *MANY[:5],
    ]  # fmt: skip
    taints = [deepcopy(chance.choice(pool)) for _ in range(chance.randrange(6))]
    if chance.random() < 0.7:  # the API server rejects two taints with the same key and effect
        taints = list({(t.get("key"), t.get("effect")): t for t in taints}.values())
    return Odd(
        name=f"drawn {number}",
        mark=chance.choice(MARKS),
        details=chance.choice([None, details(), *damaged()]),
        taints=chance.choice([taints, taints, taints, ABSENT, None]),
    )
