"""LEFT JOIN of private rows to public ones, at random: no group is missing, as DuckDB answers.

Public rows are those of calendars that are longer than the declared days, series, ranges, lists and
products of these; conditions are of expressions, ranges and several columns.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from tests.support.differences import Rows, agree, answerable, differences
from tests.support.effort import effort, first_seed
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

STATEMENTS = effort(25)
SEED = first_seed(1)
CATALOG = """
[budget]
epsilon = 1000000
[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
day = { type = "date", domain = ["2024-02-20", "2024-04-10"] }
seen = { type = "timestamp", domain = ["2024-02-20", "2024-04-10"], by = "hour" }
kind = { type = "text", domain = ["a", "b", "c"], null = true }
n = { type = "integer", domain = [0, 19] }
[table.dates]
source = "dates.parquet"
public = true
[table.dates.column]
d = { type = "date" }
m = { type = "integer" }
dow = { type = "text" }
[table.kinds]
source = "kinds.parquet"
public = true
[table.kinds.column]
k = { type = "text" }
family = { type = "text" }
"""
DATA: Tables = {
    "t": "SELECT DATE '2024-02-20' + (hash(i) % 51)::INT AS day, TIMESTAMP '2024-02-20' +"
    " INTERVAL 1 HOUR * (hash(i, 1) % 1200)::INT AS seen, ['a', 'b', 'c', NULL][1 + (hash(i, 2)"
    " % 4)::INT] AS kind, (hash(i, 3) % 20)::INT AS n FROM range(900) r(i)",
    "dates": "SELECT d::DATE AS d, month(d) AS m, dayname(d) AS dow FROM generate_series("
    "DATE '2024-01-15', DATE '2024-05-20', INTERVAL 1 DAY) r(d)",
    "kinds": (
        "k VARCHAR, family VARCHAR",
        [("a", "x"), ("b", "x"), ("c", "y"), ("z", "y"), ("q", "w"), (None, "v")],
    ),
}
PUBLIC = [
    ("dates p", ["p.d", "p.m", "p.dow", "p.m = 3"], [
        "r.day = p.d", "p.d = r.seen::DATE", "date_trunc('day', r.seen) = p.d",
        "r.seen >= p.d AND r.seen < p.d + INTERVAL 1 DAY", "r.day = p.d AND r.kind = 'a'",
        "r.day = p.d AND p.m <> 3", "r.day = p.d AND r.n < 0", "r.n = p.m", "p.d = r.day - 3",
    ], ["p.m = 3", "p.d >= DATE '2024-02-25' AND p.dow <> 'Monday'", "p.m BETWEEN 2 AND 4"]),
    ("kinds p", ["p.k", "p.family", "upper(p.family)", "coalesce(p.k, 'none')"], [
        "r.kind = p.k", "p.k = r.kind AND r.n > 5", "r.kind < p.k", "r.kind || '' = p.k",
    ], ["p.family <> 'w'", "p.k IS NOT NULL"]),
    ("(VALUES (0, 4), (5, 9), (10, 30), (25, 40), (NULL, 3)) AS p(lo, hi)", ["p.lo", "p.hi"], [
        "r.n BETWEEN p.lo AND p.hi", "r.n >= p.lo AND r.n <= p.hi AND r.kind = 'b'",
        "r.n % 5 = p.lo", "month(r.day) BETWEEN p.lo AND p.hi", "p.lo = r.n // 5",
    ], ["p.lo IS NOT NULL", "p.hi < 35"]),
    ("range(-1, 30, 3) AS p(i)", ["p.i", "p.i % 2"], [
        "r.n = p.i", "hour(r.seen) = p.i", "r.n < p.i", "EXTRACT(month FROM r.day) = p.i",
    ], ["p.i > 0"]),
    ("generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2024-06-01', INTERVAL 1 MONTH) AS p(s)",
     ["p.s", "p.s::DATE"], [
        "date_trunc('month', r.seen) = p.s", "date_trunc('month', r.day) = p.s",
        "r.seen >= p.s AND r.seen < p.s + INTERVAL 1 MONTH",
    ], ["p.s >= TIMESTAMP '2024-02-01'"]),
    ("(SELECT d, m, k, family FROM dates CROSS JOIN kinds WHERE dow = 'Friday') AS p",
     ["p.d", "p.k", "p.m", "p.family"], [
        "r.day = p.d AND r.kind = p.k", "r.seen::DATE = p.d AND p.k = r.kind AND r.n < 12",
        "r.day = p.d AND r.n = p.m",
    ], ["p.m = 3 AND p.k <> 'q'"]),
]  # fmt: skip
PRIVATE = [
    *("t AS r", "t AS r", "(SELECT * FROM t WHERE n > 6) AS r", "(SELECT * FROM t) AS r"),
    "(SELECT day, seen, kind, n FROM t WHERE day >= DATE '2024-03-05' AND kind = 'a') AS r",
    "(SELECT day + 1 AS day, seen, kind, n + 0 AS n FROM t WHERE n < 9 OR kind = 'b') AS r",
]
ITEMS = [
    *("COUNT(r.n)", "SUM(r.n)", "AVG(r.n)", "COUNT(r.n) FILTER (WHERE r.kind = 'a')"),
    *("COALESCE(SUM(r.n), 0)", "COUNT(r.day) * 2 + 1", "SUM(COUNT(r.n)) OVER ()"),
    *("COUNT(r.n) / 7", "MAX(COUNT(r.n)) OVER (PARTITION BY {})"),
]


def drawn(rng: random.Random) -> str:
    source, keys, tests, wheres = rng.choice(PUBLIC)
    chosen = rng.sample(keys, rng.randint(1, 2))
    on, private = rng.choice(tests), rng.choice(PRIVATE)
    join = f"{source} LEFT JOIN {private} ON {on}"
    if rng.random() < 0.2:
        join = f"{private} RIGHT JOIN {source} ON {on}"
    items = [f"{key} AS k{k}" for k, key in enumerate(chosen)]
    items += [f"{x.format(chosen[0])} AS x{k}" for k, x in enumerate(rng.sample(ITEMS, 2))]
    where = f" WHERE {rng.choice(wheres)}" if rng.random() < 0.4 else ""
    group = rng.choice([", ".join(chosen), "ALL", ", ".join(f"k{k}" for k in range(len(chosen)))])
    order = rng.choice(["", " ORDER BY ALL", " HAVING COUNT(r.n) < 50.5"])
    return f"SELECT {', '.join(items)} FROM {join}{where} GROUP BY {group}{order}"


def _plain(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return str(value)[:10] if hasattr(value, "year") else value


def near(one: Any, other: Any) -> bool:
    """Whether two values agree; the sum of nothing may be 0, and a day may be its midnight."""
    a, b = _plain(one), _plain(other)
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
    return bool(a == b) or {a, b} <= {None, 0.0, "None"}


def same(found: Rows, expected: Rows) -> bool:
    left = list(expected)
    for row in found:
        fitting = [each for each in left if all(map(near, row, each))]
        if not fitting:
            return False
        left.remove(fitting[0])
    return not left


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        zero_noise(),
        open_tables(tmp_path_factory.mktemp("kept"), CATALOG, DATA) as (connection, database),
    ):
        connection.execute("SET mechanism = identity")
        yield connection, database


def test_no_group_of_public_rows_is_missing(world: World) -> None:
    rng = random.Random(SEED)
    agree(world, answerable(world[1], [drawn(rng) for _ in range(STATEMENTS)]), same)


NUMBERS = [
    *("r.n", "r.n + 1", "-r.n", "GREATEST(r.n, 3)", "LEAST(3, r.n)", "COALESCE(r.n, 2)"),
    *("CASE WHEN r.n > 3 THEN r.n END", "CASE WHEN r.n > 3 THEN 1 ELSE 0 END", "NULLIF(r.n, 3)"),
    *("NULLIF(3, r.n)", "IF(r.n > 3, r.n, r.n + 1)", "length(CONCAT(r.kind, 'x'))", "abs(r.n)"),
    *("length(r.kind || 'x')", "length(concat_ws('-', 'x', r.kind))", "ABS(r.n - 9)"),
    *("CAST(r.n IS NULL AS INTEGER)", "CAST(r.n > 3 OR TRUE AS INTEGER)"),
]
"""Numbers of which some are known where there is no private row."""
TESTS = [
    *("{} > 3", "{} = 3 OR TRUE", "NOT ({} > 3 AND FALSE)", "{} BETWEEN 2 AND 9"),
    *("5 BETWEEN {} AND 3", "NOT (5 BETWEEN {} AND 3)", "5 IN ({}, 5)", "{} IN (1, 2, 3)"),
    *("{} IS NOT NULL", "{} IS NULL", "{} IS DISTINCT FROM 3", "{} <> 3 OR {} < 2"),
    *("(CASE WHEN {} > 3 THEN 1 ELSE 2 END) > 0", "NOT {} > 3", "NULLIF({}, 3) > 0"),
]
FUNCTIONS = ["SUM", "AVG", "COUNT", "VAR_POP", "COUNT(DISTINCT", "MAX", "BOOL_OR(0 <"]


def known(rng: random.Random) -> str:
    """A statement about expressions that may be known where there is no private row."""
    called, number = rng.choice(FUNCTIONS), rng.choice(NUMBERS)
    item = f"{called}{' ' if '(' in called else '('}{number})"
    test = "TRUE" if rng.random() < 0.5 else rng.choice(TESTS).replace("{}", rng.choice(NUMBERS))
    join = "kinds p LEFT JOIN t r ON r.kind = p.k"
    return f"SELECT p.k, {item} AS x FROM {join} WHERE {test} GROUP BY p.k"


def test_what_is_known_without_private_rows_is_not_left_out(world: World) -> None:
    """Before, SUM(GREATEST(r.n, 3)) and WHERE r.n = 3 OR TRUE were those of an inner join."""
    rng, answered = random.Random(SEED), 0
    for sql in {known(rng) for _ in range(effort(120))}:
        with contextlib.suppress(dpsql.Error, duckdb.Error):
            expected = world[1].execute(sql).fetchall()
            found = world[0].execute(sql).fetchall()
            assert not [
                row for row in expected if not any(same([each], [row]) for each in found)
            ], sql
            answered += 1
    assert answered > 20


def test_rows_that_a_sub_query_leaves_out_are_seen_in_the_groups(world: World) -> None:
    sql = (
        "SELECT p.lo, COUNT(r.n) FROM (VALUES (1), (5), (30)) AS p(lo) LEFT JOIN"
        " (SELECT * FROM t WHERE n > 3) AS r ON r.n = p.lo GROUP BY p.lo"
    )
    assert not list(differences(world, [sql], same))
    assert not same(world[0].execute(sql).fetchall()[1:], world[1].execute(sql).fetchall())


def test_counts_of_a_calendar_keep_their_standard_errors(world: World) -> None:
    sql = (
        "SELECT p.m, COUNT(r.n) AS n FROM dates p LEFT JOIN t r ON r.seen::DATE = p.d"
        " GROUP BY p.m ORDER BY p.m"
    )
    cursor = world[0].execute(sql)
    assert [row[0] for row in cursor.fetchall()] == [1, 2, 3, 4, 5]
    errors = cursor.stddev[1]
    assert errors is not None
    assert [error is None or math.isnan(error) for error in errors] == [True, *[False] * 3, True]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT p.m, COUNT(*) FROM dates p LEFT JOIN t r ON r.day = p.d GROUP BY p.m", "COUNT"),
        ("SELECT p.m, r.kind, COUNT(r.n) FROM dates p LEFT JOIN t r ON r.day = p.d GROUP BY ALL",
         "as a key"),
        ("SELECT p.m, COUNT(r.n) FROM dates p LEFT JOIN t r ON r.n + month(r.day) = p.m"
         " GROUP BY ALL", "several private columns"),
        ("SELECT p.m, COUNT(r.n) FROM dates p LEFT JOIN t r ON r.day = p.d GROUP BY ROLLUP (p.m)",
         "not all declared"),
        ("SELECT p.m, COUNT(r.n) FROM dates p CROSS JOIN kinds k LEFT JOIN t r ON r.day = p.d"
         " AND r.kind = k.k GROUP BY ALL", "outer side"),
    ],
)  # fmt: skip
def test_what_asks_for_rows_without_a_partner_is_refused(world: World, sql: str, said: str) -> None:
    with pytest.raises(dpsql.NotSupportedError, match=said) as caught:
        world[0].execute(sql)
    assert caught.value.hint


@pytest.mark.parametrize("on", ["r.day = q.d", "r.day = p.q", "r.q = p.d", "r.day = p.d AND q > 1"])
def test_names_that_there_are_not_are_told(world: World, on: str) -> None:
    sql = f"SELECT p.m, COUNT(r.n) FROM dates p LEFT JOIN t r ON {on} GROUP BY p.m"
    with pytest.raises(dpsql.Error) as caught:
        world[0].execute(sql)
    assert caught.value.code in ("E_UNKNOWN_COLUMN", "E_UNKNOWN_TABLE"), str(caught.value)
