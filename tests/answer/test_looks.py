"""What a run was told survives being stored: every operator, pattern, number and cost."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.blocks import (
    AllRange,
    Columns,
    Dense,
    Haar,
    Identity,
    IdentityTotal,
    Prefix,
    Ranges,
    Total,
    Weighted,
)
from dpsql.answer.codec import OPERATORS, decode_looks, encode_looks
from dpsql.learn.candidates import rows
from dpsql.learn.transcript import Look
from dpsql.pgm.measurements import Measured, Query
from dpsql.workload.term import Pattern
from dpsql.workload.workload import Product

TWO = np.array([[0, 1, 300, 0], [0.5, 0, 0, 0]])
BLOCKS = [
    Dense(np.eye(4)[:3]),
    Dense(TWO),
    Identity(4),
    IdentityTotal(4),
    Prefix(4),
    Total(4),
    AllRange(4),
    Ranges(4, np.array([0, 2]), np.array([1, 3])),
    Haar(4),
    Columns(Prefix(3), np.array([2, 0, 1, 1])),
    Weighted(Identity(4), 3),
]


def stored(looks: list[Look]) -> tuple[Look, ...]:
    arrays: dict[str, NDArray[Any]] = {}

    def keep(array: NDArray[Any]) -> str:
        arrays[str(len(arrays))] = array
        return str(len(arrays) - 1)

    return decode_looks(encode_looks(looks, keep), arrays, "laplace")


def look(*queries: Query) -> Look:
    rng = np.random.default_rng(len(queries))
    each = [Measured.of(q, rng.normal(size=rows(q)), 2.5, "laplace") for q in queries]
    return Look(Fraction(1, 3), tuple(each))


def test_every_operator_comes_back() -> None:
    assert {type(block).__name__ for block in BLOCKS} == set(OPERATORS)
    queries = [
        (Product({"a": b, "b": Prefix(2)}, 2.0), Product({"a": b, "b": Prefix(2)})) for b in BLOCKS
    ]
    looks = [look((Product({}),)), Look(Fraction(2, 7), (), 2, 9), look(*queries)]
    found = stored(looks)
    assert [(f.amount, f.chosen, f.among) for f in found] == [
        (w.amount, w.chosen, w.among) for w in looks
    ]
    for new, old in zip(found, looks, strict=True):
        for one, other in zip(new.measured, old.measured, strict=True):
            assert np.array_equal(one.values, other.values)
            assert (one.stddev, one.noise) == (2.5, "laplace")
            for product, wanted in zip(one.candidate, other.candidate, strict=True):
                assert product.weight == wanted.weight
                assert list(product.factors) == list(wanted.factors)
                for name, operator in wanted.factors.items():
                    assert product.factors[name].key == operator.key
                    assert np.array_equal(product.factors[name].dense(), operator.dense())


def test_a_pattern_comes_back() -> None:
    pattern = Pattern({"a": np.array([0, 1, 1]), "b": np.arange(200)}, np.ones((2, 200), bool))
    (found,) = stored([look(pattern)])
    assert found.measured[0].pattern is not None
    assert found.measured[0].pattern.key == pattern.key


def test_an_operator_is_stored_once() -> None:
    facts = encode_looks([look(*[(Product({"a": Prefix(4)}),)] * 5)], lambda array: "x")
    assert len(facts["operators"]) == 1
    assert stored([]) == ()


def test_numbers_that_do_not_fit_are_refused() -> None:
    arrays: dict[str, NDArray[Any]] = {}

    def keep(array: NDArray[Any]) -> str:
        arrays[str(len(arrays))] = array
        return str(len(arrays) - 1)

    facts = encode_looks([look((Product({"a": Identity(3)}),))], keep)
    arrays[facts["values"]] = np.zeros(4)
    with pytest.raises(ValueError, match="looks"):
        decode_looks(facts, arrays, "laplace")
