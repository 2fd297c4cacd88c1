"""Epsilon and delta: what is a number, what is in range, and how units are rounded."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.amounts import (
    UNITS,
    parse_delta,
    parse_delta_text,
    parse_epsilon,
    parse_epsilon_text,
    units_down,
    units_up,
)
from dpsql.errors import DataError

REFUSED_TEXTS = [
    *("-1", "+1", "NaN", "nan", "inf", "Infinity", "1e-400", "1e309", "9223372036854775808"),
    *("0x10", "１", "٣", "0.1+0.2", "0,5", "1_000", ".", ".e1", "", " 1", "1 ", "1\n", "1e", "e1"),
    *("1e+", "1/2", "0", "0.0", "0e5", "1e-7", "0.0000009", "100.0000001", "1e99999999999999"),
    *("0" * 41, "1." + "0" * 39, "١", "1e٣", "true", "None", "1\x00", "0.5\u200b"),
]
REFUSED_VALUES: list[Any] = [
    *(True, False, "1", b"1", None, float("nan"), float("inf"), -float("inf"), 0, 0.0, -1, -0.5),
    *(1e-400, 1e-7, 1e309, 2**63, 10**400, 101, 1j, [1], {}, Decimal("NaN"), Decimal("sNaN")),
    *(Decimal("Infinity"), Decimal("1e-999999"), Decimal("1e999999"), Decimal(-1), Fraction(-1, 2)),
    *(Fraction(0), np.bool_(True), np.float32(0.5), object()),
]


@pytest.mark.parametrize("text", REFUSED_TEXTS)
def test_text_that_is_not_an_epsilon(text: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_epsilon_text(text)
    assert caught.value.code == "E_EPSILON"


@pytest.mark.parametrize("value", REFUSED_VALUES, ids=lambda value: repr(value).split(" at ")[0])
def test_values_that_are_not_an_epsilon(value: object) -> None:
    with pytest.raises(DataError) as caught:
        parse_epsilon(value)
    assert caught.value.code == "E_EPSILON"


@pytest.mark.parametrize("value", [1, None, 0.5, True, ["1"]])
def test_the_text_grammar_takes_text_only(value: object) -> None:
    with pytest.raises(DataError):
        parse_epsilon_text(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", Fraction(1)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("5.e-1", Fraction(1, 2)),
        ("1.", Fraction(1)),
        ("5e-1", Fraction(1, 2)),
        ("05E+0", Fraction(5)),
        ("0.000001", Fraction(1, 10**6)),
        ("1e-6", Fraction(1, 10**6)),
        ("100", Fraction(100)),
        ("0.123456789012345678901234567890", Fraction("0.123456789012345678901234567890")),
    ],
)
def test_text_is_read_exactly(text: str, value: Fraction) -> None:
    assert parse_epsilon_text(text) == value


@pytest.mark.parametrize(
    "value", [0.1, np.float64(0.1), Decimal("0.1"), Fraction(1, 10), Decimal("1.0e-1")], ids=repr
)
def test_every_way_of_writing_a_tenth_is_a_tenth(value: object) -> None:
    assert parse_epsilon(value) == Fraction(1, 10)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("0.0", 0), ("0e9", 0), ("1e-9", "1/1000000000"), ("1e-15", None)]
)
def test_delta_may_be_zero_or_small(text: str, value: object) -> None:
    found = parse_delta_text(text)
    assert found == (Fraction(1, 10**15) if value is None else Fraction(str(value)))


@pytest.mark.parametrize("text", ["1", "NaN", "1e-2", "1.1e-4", "1e-16", "1e-400", "-1e-9", "x"])
def test_delta_out_of_range(text: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_delta_text(text)
    assert caught.value.code == "E_DELTA"


@pytest.mark.parametrize("value", [True, "0", None, float("nan"), 0.5, 1, -1e-9, 1e-16])
def test_values_that_are_not_a_delta(value: object) -> None:
    with pytest.raises(DataError) as caught:
        parse_delta(value)
    assert caught.value.code == "E_DELTA"


def test_delta_by_value() -> None:
    assert parse_delta(0) == parse_delta(0.0) == 0
    assert parse_delta(1e-9) == parse_delta(Decimal("1e-9")) == Fraction(1, 10**9)


def test_the_caller_sets_the_maximum() -> None:
    assert parse_epsilon(5, Fraction(5)) == 5
    with pytest.raises(DataError):
        parse_epsilon(5, Fraction(4))


@given(st.fractions(min_value=0, max_value=100))
def test_units_bracket_the_amount(amount: Fraction) -> None:
    down, up = units_down(amount), units_up(amount)
    assert Fraction(down, UNITS) <= amount <= Fraction(up, UNITS)
    assert up - down == (0 if (amount * UNITS).denominator == 1 else 1)


@given(st.text(max_size=45))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(DataError):
        assert Fraction(1, 10**6) <= parse_epsilon_text(text) <= 100


@given(st.floats())
def test_any_float_means_what_it_prints(value: float) -> None:
    if 1e-6 <= value <= 100:
        assert parse_epsilon(value) == Fraction(repr(value))
    else:
        with pytest.raises(DataError):
            parse_epsilon(value)
