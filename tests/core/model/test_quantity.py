from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.errors import InvalidInputError
from core.model.quantity import (
    QUANTITY_MAX,
    format_bytes,
    format_millis,
    millis,
    parse_quantity,
    whole,
)


@pytest.mark.parametrize(
    ("text", "units", "thousandths"),
    [
        ("1", 1, 1000),
        (2, 2, 2000),
        (0.5, 1, 500),
        ("0", 0, 0),
        ("-0", 0, 0),
        ("+1", 1, 1000),
        ("100m", 1, 100),
        ("0.1", 1, 100),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("1.5Gi", 3 * 2**29, 3 * 2**29 * 1000),
        ("1e3", 1000, 1_000_000),
        ("1E3", 1000, 1_000_000),
        ("1e-3", 1, 1),
        ("1n", 1, 1),
        ("1u", 1, 1),
        ("1k", 1000, 1_000_000),
        ("1Ki", 1024, 1_024_000),
        ("90M", 90_000_000, 90_000_000_000),
        ("9E", 9 * 10**18, QUANTITY_MAX),
        ("16Ei", QUANTITY_MAX, QUANTITY_MAX),
        ("1e999", QUANTITY_MAX, QUANTITY_MAX),
    ],
)
def test_quantity_is_parsed_in_every_notation(
    text: str | float, units: int, thousandths: int
) -> None:
    assert (whole(text), millis(text)) == (units, thousandths)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " 1",
        "1 ",
        "abc",
        "-1",
        "-100m",
        "1ki",
        "1KI",
        "1e",
        "1e1234",
        "1.2.3",
        "0x1",
        "1" * 65,
        "NaN",
        "inf",
        "1Gi5",
        "m",
        "\u0661",
        True,
    ],
)
def test_invalid_quantity_is_rejected_in_one_line(text: str) -> None:
    with pytest.raises(InvalidInputError) as rejected:
        whole(text)
    assert "allowed" in str(rejected.value) or "not" in str(rejected.value)
    assert "\n" not in str(rejected.value)


@given(st.fractions(min_value=0, max_value=10**9, max_denominator=10**6))
def test_quantity_is_rounded_up_by_less_than_one_unit(value: Fraction) -> None:
    text = f"{value.numerator * 10**6 // value.denominator}u"
    exact = parse_quantity(text)
    assert 0 <= whole(text) - exact < 1
    assert 0 <= millis(text) - exact * 1000 < 1


@pytest.mark.parametrize(
    ("amount", "written"),
    [(0, "0"), (450, "450m"), (1000, "1"), (12_500, "12.5"), (125_514_000, "125,514")],
)
def test_cpu_is_formatted_for_people(amount: int, written: str) -> None:
    assert format_millis(amount) == written


@pytest.mark.parametrize(
    ("amount", "written"),
    [(0, "0"), (512, "512"), (1536, "1.5Ki"), (2**30, "1Gi"), (584 * 2**40, "584Ti")],
)
def test_memory_is_formatted_for_people(amount: int, written: str) -> None:
    assert format_bytes(amount) == written
