"""The MutatingAdmissionPolicy compared with core.marks, as far as its text allows.

The e2e tests compare its results on a real API server.
"""

import re
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.marks.mark import (
    DETAILS_CHARACTERS_MAX,
    SECONDS_DIGITS_MAX,
    Details,
    Mark,
    decode_details,
    encode_details,
    seconds_of,
)
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL, TAINT_KEY
from tests.manifests.kustomize import find, of_kind, render
from webhook import names

OBJECTS = render("admission-policy")
SPEC = find(OBJECTS, "MutatingAdmissionPolicy", "ebb-node-taint")["spec"]
VARIABLES = {variable["name"]: variable["expression"] for variable in SPEC["variables"]}
WEBHOOK = find(render(""), "MutatingWebhookConfiguration", names.REGISTRATION)["webhooks"][0]
SECONDS = st.integers(0, 10**SECONDS_DIGITS_MAX - 1)
PRINTED = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))
JSON_TEXTS = st.dictionaries(
    st.sampled_from(["since", "deadline", "owner", "policy", "reason", "more"]),
    st.one_of(st.integers(), st.text(max_size=5), st.none()),
)


def written() -> re.Pattern[str]:
    """Return the pattern of details that the policy can read."""
    found = re.fullmatch(
        r"variables\.details\.size\(\) <= (\d+) && variables\.details\.matches\(r'(.*)'\)",
        VARIABLES["readable"],
    )
    assert found
    assert int(found[1]) == DETAILS_CHARACTERS_MAX
    return re.compile(found[2])


def test_policy_matches_same_requests_as_webhook() -> None:
    assert SPEC["matchConditions"] == WEBHOOK["matchConditions"]
    matched = SPEC["matchConstraints"]
    assert matched["objectSelector"] == WEBHOOK["objectSelector"]
    assert matched["resourceRules"] == WEBHOOK["rules"]
    assert matched["matchPolicy"] == WEBHOOK["matchPolicy"]
    for name in ("failurePolicy", "reinvocationPolicy"):
        assert SPEC[name] == WEBHOOK[name]


def test_policy_is_bound_and_replaces_webhook() -> None:
    (binding,) = of_kind(OBJECTS, "MutatingAdmissionPolicyBinding")
    assert binding["spec"] == {"policyName": "ebb-node-taint"}
    assert of_kind(OBJECTS, "MutatingWebhookConfiguration") == []
    assert "webhook" not in yaml.safe_dump(OBJECTS), "every object of it is removed"


def test_keys_and_effects_match_code() -> None:
    assert VARIABLES["key"] == f'"{TAINT_KEY}"'
    assert f'["{DETAILS_ANNOTATION}"]' in VARIABLES["details"]
    assert f'["{MARK_LABEL}"]' in VARIABLES["effect"]
    effects = ", ".join(f'"{mark}"' for mark in Mark)
    assert VARIABLES["effect"].startswith(f"[{effects}]")


def test_variables_use_only_earlier_variables() -> None:
    known: set[str] = set()
    for name, expression in VARIABLES.items():
        assert set(re.findall(r"variables\.(\w+)", expression)) <= known
        known.add(name)
    (mutation,) = SPEC["mutations"]
    expression = mutation["jsonPatch"]["expression"]
    assert set(re.findall(r"variables\.(\w+)", expression)) <= known


def test_patch_contains_no_part_of_the_object() -> None:
    (mutation,) = SPEC["mutations"]
    values = re.findall(r"value: ([^}]+)}", mutation["jsonPatch"]["expression"])
    assert {value.strip("[]") for value in values} == {"variables.ours"}
    assert set(re.findall(r"variables\.(\w+)", VARIABLES["ours"])) == {"key", "since", "effect"}


@given(
    st.builds(
        Details,
        since=SECONDS,
        deadline=SECONDS,
        owner=PRINTED,
        policy=PRINTED,
        reason=PRINTED,
        order=SECONDS,
    )
)
def test_encoded_details_are_readable_by_policy(details: Details) -> None:
    text = encode_details(details)
    assert written().fullmatch(text)
    found = re.search(r"[0-9]+", text)
    assert found
    assert int(found[0]) == details.since


@pytest.mark.parametrize("digits", [12, 13])
def test_policy_and_code_read_same_seconds_of_taint(digits: int) -> None:
    found = re.search(r'matches\("(.*?)"\)', VARIABLES["kept"])
    assert found
    read = seconds_of("9" * digits)
    assert bool(re.search(found[1], "9" * digits)) == (read is not None)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first example on a loaded machine
@given(JSON_TEXTS)
def test_details_readable_by_policy_are_decoded_by_code(found: dict[str, Any]) -> None:
    text = str(found).replace("'", '"').replace(" ", "")
    if written().fullmatch(text):
        details = decode_details({DETAILS_ANNOTATION: text})
        assert details
        assert details.since == found["since"]


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "{}",
        '{"since":5}',
        '{"since":05,"deadline":1,"owner":"a","policy":"b","reason":"c"}',
        '{"since":-5,"deadline":1,"owner":"a","policy":"b","reason":"c"}',
        '{"since":5,"deadline":1,"owner":"a","policy":"b","reason":"c"',
        '{"since":5,"deadline":1,"owner":"a","policy":"b","reason":"\\x"}',
        '{"since":5,"deadline":1,"owner":"a","policy":"b","reason":"c"}}',
        '{"since":1000000000000,"deadline":1,"owner":"a","policy":"b","reason":"c"}',
        '{"since":5,"deadline":1,"owner":"a\\u0000","policy":"b","reason":"c"}',
        '{"since":5,"deadline":1,"owner":"a\x7f","policy":"b","reason":"c"}',
    ],
)
def test_damaged_details_are_not_readable_by_policy(damaged: str) -> None:
    assert not written().fullmatch(damaged)
