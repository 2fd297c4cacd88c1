"""Where expressions over one number change: random ones, evaluated on every number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from sqlglot import exp, parse_one

from dpsql.sql.units import steps
from dpsql.sql.units.steps import StepSearch, TooManyStepsError, probes_of
from tests.support.tables import own_database


def draw_value(draw: random.Random) -> str:
    """Something that rises, or falls, with x."""
    value = "x"
    for _ in range(draw.randrange(3)):
        k = draw.choice([2, 3, 7.5, -4, 0.25])
        value = draw.choice(
            [
                *(f"({value} * {k})", f"({value} / {k})", f"({k} - {value})", f"(-{value} + {k})"),
                *(f"LEAST({value}, {k * 9})", f"GREATEST({k}, {value})", f"COALESCE({value}, 3)"),
            ]
        )
    return value


def draw_step(draw: random.Random) -> str:
    """A floor of it, or whether it is beyond something."""
    value, k = draw_value(draw), draw.randrange(-40, 40)
    return draw.choice(
        [
            f"FLOOR({value} / 9)",
            f"CAST({value} / 12 AS INT)",
            f"ROUND({value}, -1)",
            f"CEIL({value} / 20.0)",
            f"{value} {draw.choice(['<', '<=', '>', '>=', '=', '<>'])} {k}",
            f"{k} {draw.choice(['<', '>='])} {value}",
            f"{value} BETWEEN {k} AND {k + draw.randrange(30)}",
            f"{value} NOT IN ({k}, {k + 3}, {k + 4})",
            f"FLOOR({value} / 5) > {k}",
            f"SIGN({value} - {k})",
            f"{value} IS NULL",
        ]
    )


def draw_expression(draw: random.Random) -> str:
    one, two = draw_step(draw), draw_step(draw)
    return draw.choice(
        [
            one,
            f"CASE WHEN CAST({one} AS INT) = 1 THEN 'a' WHEN CAST({two} AS INT) > 0 THEN 'b' END",
            f"CAST({one} AS INT) + 2 * CAST({two} AS INT)",
            f"concat({one}, '/', {two})",
        ]
    )


def test_values_between_cuts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    database, draw, several = own_database(), random.Random(4), 0

    def values(tree: exp.Expr, numbers: Sequence[int]) -> list[Any]:
        listed = ", ".join(f"({k}, {n})" for k, n in enumerate(numbers))
        text = tree.sql("duckdb")
        rows = database.execute(f"SELECT {text} FROM (VALUES {listed}) v(k, x) ORDER BY k")
        return [value for (value,) in rows.fetchall()]

    for _ in range(40):
        monkeypatch.setattr(steps, "TOGETHER", draw.choice([1, 5, 128]))
        tree = parse_one(draw_expression(draw), read="duckdb")
        probes = probes_of(tree)
        assert probes is not None, tree.sql()
        first = draw.randrange(-90, 0)
        last = first + draw.randrange(1, 200)
        cuts = StepSearch(first, last, values).cut(probes)
        every = values(tree, range(first, last + 1))
        changes = [
            n for n in range(first + 1, last + 1) if every[n - first] != every[n - 1 - first]
        ]
        assert set(changes) <= set(cuts), tree.sql()
        assert first < min(cuts, default=last)
        several += len(cuts) > 3
    assert several > 5


@pytest.mark.parametrize(
    "sql",
    [
        *("x", "x + 1", "CASE WHEN x > 3 THEN x END", "x * x > 4", "1 / x > 2", "x % 7", "1 + 1"),
        *("x > x - 1", "x BETWEEN 3 AND x", "x IN (1, x)", "FLOOR(7 / x)", "sin(x) > 0"),
        *("abs(x) > 3", "TRY_CAST(x AS TINYINT) > 2", "LEAST(x, x + 1) > 2"),
    ],
)
def test_what_is_not_in_steps_is_told(sql: str) -> None:
    assert probes_of(parse_one(sql, read="duckdb")) is None


def test_too_many_steps_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MOST_STEPS", 10)
    dividing = StepSearch(0, 100, lambda tree, numbers: list(numbers))
    with pytest.raises(TooManyStepsError):
        dividing.cut([parse_one("FLOOR(x)")])
