"""Bounds on the rows of joined tables, compared with random tables that are joined."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from sqlglot import parse_one

from dpsql.sql.relations import ShellColumn, ShellTable
from dpsql.sql.shell.join_bounds import ColumnPlace, JoinBound, most_of
from dpsql.sql.shell.table_joins import keys_among
from dpsql.sql.units.ranked_rows import ranked

Rows = list[tuple[int, ...]]


def known(rows: Rows, told: list[int]) -> ShellTable:
    """A table of these rows that tells the values of some of its columns."""
    columns = list(zip(*rows, strict=True))
    traits = tuple(ShellColumn(f"c{k}", "BIGINT") for k in range(len(columns)))
    listed = {k: columns[k] for k in told}
    unique = keys_among(columns) if len(told) % 2 else ()
    return ShellTable("t", traits, len(rows), True, unique, listed=lambda: listed)


def draw_rows(draw: random.Random) -> Rows:
    width = draw.randrange(1, 4)
    return [tuple(draw.randrange(3) for _ in range(width)) for _ in range(draw.randrange(1, 7))]


def joined(tables: list[Rows], tells: list[tuple[ColumnPlace, ColumnPlace]], outer: bool) -> Rows:
    """All joined rows side by side; ``outer`` keeps those of the others beside the last table."""
    starts = [0, *itertools.accumulate(len(rows[0]) for rows in tables)]

    def meets(row: tuple[int, ...], last: int) -> bool:
        return all(
            row[starts[a[0]] + a[1]] == row[starts[b[0]] + b[1]]
            for a, b in tells
            if max(a[0], b[0]) == last
        )

    found: Rows = [()]
    for number, rows in enumerate(tables):
        keep = outer and number == len(tables) - 1
        wider: Rows = []
        for row in found:
            pairs = [row + each for each in rows if meets(row + each, number)]
            wider += pairs or ([row + (-1,) * len(rows[0])] if keep else [])
        found = wider
    return found


@pytest.mark.parametrize("seed", range(40))
def test_no_more_rows_are_joined_than_the_bound_says(seed: int) -> None:
    draw = random.Random(seed)
    tables = [draw_rows(draw) for _ in range(draw.randrange(1, 4))]
    places = [(n, k) for n, rows in enumerate(tables) for k in range(len(rows[0]))]
    outer = len(tables) > 1 and draw.random() < 0.5
    last = len(tables) - 1
    equal = [
        (a, b)
        for a, b in (draw.sample(places, 2) for _ in range(draw.randrange(4)) if len(places) > 1)
        if a[0] != b[0]
    ]
    tells = [
        (a, b)
        for pair in equal
        for a, b in (pair, pair[::-1])
        if not outer or last not in (a[0], b[0]) or b[0] == last
    ]
    told = [sorted(draw.sample(range(len(r[0])), draw.randrange(len(r[0]) + 1))) for r in tables]
    facts = tuple(known(rows, each) for rows, each in zip(tables, told, strict=True))
    bound = JoinBound(facts, tuple(tells), optional=frozenset({last} if outer else ()))
    rows = joined(tables, equal, outer)
    by = [k for k in range(len(places)) if draw.random() < 0.3]
    asked = [k for k in range(len(places)) if draw.random() < 0.4]
    fixed = frozenset(places[k] for k in by)
    agreeing = Counter(tuple(row[k] for k in by) for row in rows)
    assert max(agreeing.values(), default=0) <= bound.most(fixed)
    different = {tuple(row[k] for k in (*by, *asked)) for row in rows}
    most = Counter(each[: len(by)] for each in different)
    wanted = frozenset(places[k] for k in asked)
    assert max(most.values(), default=0) <= bound.most(fixed, wanted)


def test_keys_that_others_tell_bound_a_join() -> None:
    weeks = known([(week, store) for week in range(50) for store in range(4)], [0, 1])
    stores = known([(store, 10 * store) for store in range(4)], [0, 1])
    days = known([(day, day // 7) for day in range(350)], [0])
    tells = [((0, 1), (1, 0)), ((1, 0), (0, 1)), ((0, 0), (2, 1)), ((2, 1), (0, 0))]
    bound = JoinBound((weeks, stores, days), tuple(tells))
    assert most_of(days, frozenset({1})) == 350  # its weeks are not told
    assert bound.most(wanted=frozenset({(0, 0), (1, 1)})) == 200
    assert bound.most(frozenset({(0, 0), (1, 1)}), frozenset({(0, 1)})) == 1
    assert bound.most(frozenset({(0, 0), (1, 1), (2, 0)})) == 1


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a, ROW_NUMBER() OVER (PARTITION BY a ORDER BY n) AS r FROM t", [{0, 1}]),
        ("SELECT ROW_NUMBER() OVER () AS r, a FROM t", [{0}]),
        ("SELECT a, RANK() OVER (PARTITION BY a ORDER BY b) AS r FROM t GROUP BY a, b", [{0, 1}]),
        ("SELECT a, RANK() OVER (ORDER BY b) AS r FROM t GROUP BY a, b", []),
        ("SELECT a, RANK() OVER (PARTITION BY a ORDER BY n) AS r FROM t", []),
        ("SELECT a, RANK() OVER (ORDER BY b) AS r FROM t GROUP BY ROLLUP (b)", []),
        ("SELECT b, ROW_NUMBER() OVER (PARTITION BY a ORDER BY n) AS r FROM t", []),
        ("SELECT *, ROW_NUMBER() OVER () AS r FROM t", []),
    ],
)
def test_numbers_of_rows_tell_rows_apart(sql: str, expected: list[set[int]]) -> None:
    assert [set(each) for each in ranked(parse_one(sql, read="duckdb"))] == expected
