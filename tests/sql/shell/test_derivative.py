"""Standard errors of expressions against the textbook formula with numerical derivatives."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from sqlglot import parse_one

from dpsql.sealed import SealedConnection
from dpsql.sql.shell import derivative
from dpsql.sql.shell.derivative import FEW, CovarianceTerms, stddev_sql

POINT = {"a0": 120.0, "a1": 45.0}
COVARIANCE = {(0, 0): 9.0, (0, 1): 2.5, (1, 1): 4.0}


def evaluate(sealed: SealedConnection, sql: str, point: dict[str, float]) -> float:
    items = ", ".join(f"CAST({value} AS DOUBLE) AS {name}" for name, value in point.items())
    items += ", " + ", ".join(f"{v} AS c{i}_{j}" for (i, j), v in COVARIANCE.items())
    return float(sealed.run(f"SELECT {sql} FROM (SELECT {items}, 7 AS k0)")[0][0])


@pytest.mark.parametrize(
    "sql",
    [
        "a0",
        "-a0",
        "a0 + a1",
        "a0 - a1",
        "3 * a0 - a1 / 2",
        "a1 / a0",
        "100.0 * a1 / (a0 + a1)",
        "a0 * a1",
        "round(a1 / a0, 15)",
        "CAST(a0 AS DOUBLE) / k0",
        "CASE WHEN a0 > 0 THEN a1 / a0 END",
        "(a0 - a1) / (a0 + a1)",
        "coalesce(a0, 0)",
        "a1 / nullif(a0, 0)",
        "sqrt(a0)",
        "least(greatest(a1 / a0, -5.0), 500.0)",
    ],
)
def test_stddev_is_the_delta_method(sql: str) -> None:
    sealed = SealedConnection()
    needed = CovarianceTerms()
    text = stddev_sql(parse_one(sql, read="duckdb"), needed)
    assert text is not None
    assert needed.pairs <= set(COVARIANCE)
    step = 1e-4
    slopes = []
    for name in POINT:
        high = evaluate(sealed, sql, {**POINT, name: POINT[name] + step})
        low = evaluate(sealed, sql, {**POINT, name: POINT[name] - step})
        slopes.append((high - low) / (2 * step))
    variance = sum(
        slopes[i] * slopes[j] * COVARIANCE[min(i, j), max(i, j)] for i in (0, 1) for j in (0, 1)
    )
    assert evaluate(sealed, text, POINT) == pytest.approx(math.sqrt(variance), rel=1e-6)


def covariances(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    factors = np.random.default_rng(count).normal(size=(count, count))
    return np.asarray(factors @ factors.T)


def columns_of(
    needed: CovarianceTerms, shared: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> str:
    """The columns of covariances as the cells have them."""
    items = [f"{float(shared[i, j])!r}::DOUBLE AS c{i}_{j}" for i, j in sorted(needed.pairs)]
    for group, place in needed.groups.items():
        lists = [[float(shared[i, j]) for j in group[p:]] for p, i in enumerate(group)]
        items.append(f"{lists!r}::DOUBLE[][] AS m{place}".replace("nan", "'nan'"))
    return ", ".join(items)


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, 50, 200])
def test_many_terms_are_added_up_with_all_their_covariances(count: int) -> None:
    shared = covariances(count)
    tree = parse_one(" + ".join(f"a{i}" for i in range(count)), read="duckdb")
    needed = CovarianceTerms()
    text = stddev_sql(tree, needed)
    assert text is not None
    assert len(needed.pairs) == (count * (count + 1) // 2 if count <= FEW else 0)
    found = SealedConnection().run(f"SELECT {text} FROM (SELECT {columns_of(needed, shared)})")[0][
        0
    ]
    assert found == pytest.approx(math.sqrt(shared.sum()), rel=1e-9)


@pytest.mark.parametrize(
    "form",
    ["{sum}", "a3 / nullif({sum}, 0)", "round({sum}, 1) * 2 + round(a1 * a0)", "sqrt({sum}) * a7"],
)
@pytest.mark.parametrize("a0", ["120.0", "0.0", "-5000.0", "NULL", "'nan'", "1e300"])
def test_lists_of_covariances_say_what_columns_of_them_do(
    form: str, a0: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of values, of what has none, and of what cannot be told at all."""
    count, found, sealed = 9, [], SealedConnection()
    sql = form.format(sum=" + ".join(f"{i + 1} * a{i}" for i in range(count)))
    numbers = ", ".join(f"{3.0 * i}::DOUBLE AS a{i}" for i in range(1, count))
    for few in (4, 20):
        monkeypatch.setattr(derivative, "FEW", few)
        needed = CovarianceTerms()
        text = stddev_sql(parse_one(sql, read="duckdb"), needed)
        assert text is not None
        assert bool(needed.groups) == (few == 4)
        known = columns_of(needed, covariances(count))
        asked = f"SELECT {known}, CAST({a0} AS DOUBLE) AS a0, {numbers}"
        found.append(sealed.run(f"SELECT TRY({text}) FROM ({asked})")[0][0])
    assert found == [None, None] or found[0] == pytest.approx(found[1], rel=1e-9)


@pytest.mark.parametrize("count", [4, FEW + 1])
def test_slopes_are_not_sought_among_the_columns_of_a_table(count: int) -> None:
    """DuckDB compares ``d.s0`` with the name of every column, to say which one was meant."""
    names = [f"a{j}" for j in range(count)]
    text = stddev_sql(
        parse_one(f"sqrt(({' + '.join(names)}) / ({' * '.join(names)}))"), CovarianceTerms()
    )
    assert text is not None
    assert "lambda d" in text
    assert not re.search(r"\bd\.", text)


def test_the_text_of_an_error_grows_as_the_sum_does() -> None:
    """It had a term for each pair: from 100 aggregates on, sums were refused as too complex."""
    lengths = []
    for count in (50, 100, 200):
        tree = parse_one(" + ".join(f"{i} * a{i}" for i in range(count)), read="duckdb")
        text = stddev_sql(tree, CovarianceTerms())
        assert text is not None
        lengths.append(len(text))
    assert lengths[2] < 2.2 * lengths[1] < 2.2**2 * lengths[0]


@pytest.mark.parametrize(
    "sql", ["ln(a0)", "greatest(a0, a1)", "a0 % 7", "CASE WHEN a0 > 1 THEN a0 ELSE a1 END"]
)
def test_unknown_forms_have_no_stddev(sql: str) -> None:
    assert stddev_sql(parse_one(sql, read="duckdb"), CovarianceTerms()) is None


def test_keys_have_no_error() -> None:
    assert stddev_sql(parse_one("k0 + 1", read="duckdb"), CovarianceTerms()) == "0.0"


RATIO = "(a0 - a1) / nullif(a0 + a1, 0) + sqrt(a1) / a0"


@pytest.mark.parametrize("sql", [RATIO, f"round({RATIO}, 2)", f"({RATIO}) * ({RATIO})"])
@pytest.mark.parametrize("a1", ["45.0", "0.0", "-120.0", "NULL", "'nan'", "1e300"])
def test_slopes_that_are_written_once_are_those_that_are_repeated(
    sql: str, a1: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of values, of what has none, and of what cannot be told at all."""
    known = "120.0 AS a0, 9.0 AS c0_0, 2.5 AS c0_1, 4.0 AS c1_1"
    found, sealed = [], SealedConnection()
    for long in (0, 1 << 20):
        monkeypatch.setattr(derivative, "LONG", long)
        text = stddev_sql(parse_one(sql, read="duckdb"), CovarianceTerms())
        assert text is not None
        assert ("lambda d" in text) == (long == 0)
        asked = f"SELECT TRY({text}) FROM (SELECT {known}, CAST({a1} AS DOUBLE) AS a1)"
        found.append(sealed.run(asked)[0][0])
    assert found == [None, None] or found[0] == pytest.approx(found[1], rel=1e-12)


@pytest.mark.parametrize(
    ("sql", "a0"),
    [
        ("sqrt(a0)", 0.0),
        ("sqrt(greatest(a0, 0))", -3.0),
        ("a1 / a0", 0.0),
        ("a1 / nullif(a0, 0)", 0.0),
        ("3 * sqrt(a0) + a1", 0.0),
        ("sqrt(a0 - a1) / (a0 + a1) * (a0 * a0 - a1) + sqrt(a0 * a1 - 2025) / (a0 * a1)", 45.0),
    ],
)
def test_an_error_that_is_not_defined_is_unknown_and_not_zero(sql: str, a0: float) -> None:
    text = stddev_sql(parse_one(sql, read="duckdb"), CovarianceTerms())
    items = (
        "CAST(? AS DOUBLE) AS a0, CAST(45 AS DOUBLE) AS a1, 9.0 AS c0_0, 2.5 AS c0_1, 4.0 AS c1_1"
    )
    for point, known in ((a0, False), (120.0, True)):
        placed = items.replace("?", str(point))
        ((found,),) = SealedConnection().run(f"SELECT {text} FROM (SELECT {placed})")
        assert (found is not None) is known


@pytest.mark.parametrize(
    ("shared", "error"),
    [(-1.0, 2.0), (0.5, 1.0), (1.0, None), (1.0 + 2.0**-52, None), (1.0 - 2.0**-52, None)],
)
def test_an_error_that_doubles_do_not_keep_is_unknown(shared: float, error: float | None) -> None:
    """Before: where covariances took more than all of it away, it was told as zero."""
    text = stddev_sql(parse_one("a0 - a1", read="duckdb"), CovarianceTerms())
    items = f"5.0 AS a0, 4.0 AS a1, 1.0 AS c0_0, CAST({shared!r} AS DOUBLE) AS c0_1, 1.0 AS c1_1"
    assert SealedConnection().run(f"SELECT {text} FROM (SELECT {items})")[0][0] == error
