"""What analysts write about groups, at random: without noise, answers are DuckDB's own."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.effort import effort, first_seed
from tests.support.oracle import VALUES, declare_view, mentioned, settle, write_world
from tests.support.seam import zero_noise

pytestmark = pytest.mark.slow

STATEMENTS = effort(40)
KEYS = [
    *("a", "b", "c", "e", "d", "a // 3", "a > 3", "a BETWEEN 2 AND 5", "a % 2 = 0 AND c"),
    *("length(b)", "upper(b)", "b ~ '^[xy]'", "month(d)", "quarter(d) = 1", "coalesce(e, 9)"),
    *("CASE WHEN a < 3 THEN 'low' ELSE 'high' END", "e IN (VALUES (1), (4))", "n < 0", "-a"),
    *("(a, b) IN (VALUES (3, 'x'), (1, 'y'))", "b !~* 'X'", "b || '!'", "~a"),
]
AGGREGATES = [
    *("COUNT(*)", "COUNT(e)", "SUM(a)", "AVG(e)", "COUNT(*) FILTER (WHERE a > 3)", "COUNT_IF(c)"),
    *("MEDIAN(length(b))", "MEDIAN(month(d))", "QUANTILE_CONT(a * 2, 0.3)", "MEDIAN(abs(e))"),
    *("QUANTILE_CONT(CASE WHEN b = 'x' THEN 1 ELSE 4 END, 0.6)", "QUANTILE_DISC(upper(b), 0.5)"),
    *("COUNT(*) > 20.5", "CASE WHEN COUNT(*) > 30.5 THEN 'many' ELSE 'few' END", "COUNT(*) // 7"),
    *("~COUNT(*)", "IF(COUNT(*) > 9.5, 'A', 'b')", "100.0 * COUNT(*) FILTER (WHERE c) / COUNT(*)"),
]
WINDOWS = [
    *("COUNT(*) OVER ({})", "SUM(COUNT(*)) OVER ({})", "COUNT(*) / SUM(COUNT(*)) OVER ({})"),
    *("RANK() OVER ({} ORDER BY ROUND(COUNT(*)))", "COUNT(*) OVER ({} ORDER BY ROUND(COUNT(*)))"),
    *("MAX(COUNT(*)) OVER ({})", "AVG(COUNT(*)) OVER ({})"),
]
TESTS = [
    "EXISTS (SELECT 1 FROM (VALUES (1), (3)) AS v(x) WHERE v.x = t.a)",
    "NOT EXISTS (SELECT * FROM (VALUES (1, 'x'), (4, NULL)) AS v(x, y) WHERE x > e AND y <> b)",
    "a > 1",
    "c",
    "b <> 'x'",
    "e IS NOT NULL",
    "a IN (VALUES (1), (3), (5))",
    "b ~ 's$'",
    "n < 2",
]


def of_groups(rng: random.Random) -> tuple[str, list[str]]:
    """A SELECT of groups that have rows, and the names of its columns."""
    keys = rng.sample(KEYS, rng.randint(1, 2))
    items = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    items += [f"{each} AS x{place}" for place, each in enumerate(rng.sample(AGGREGATES, 2))]
    if rng.random() < 0.5:
        by = f"PARTITION BY {keys[0]}" if rng.random() < 0.5 else ""
        items.append(f"{rng.choice(WINDOWS).format(by)} AS w0")
        group = ", ".join(keys)
    else:
        kinds = ["{}", "ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ())"]
        group = rng.choice(kinds).format(", ".join(keys))
        bits = ["GROUPING_ID()", f"GROUPING_ID({keys[0]})"]
        items += [f"{rng.choice(bits)} AS w0"] if "(" in group[:15] and group[0] in "RCG" else []
    where = f" WHERE {rng.choice(TESTS)}" if rng.random() < 0.5 else ""
    sql = f"SELECT {', '.join(items)} FROM t{where} GROUP BY {group} HAVING COUNT(*) > 0.5"
    return sql, [item.rsplit(" AS ", 1)[1] for item in items]


def statement(rng: random.Random) -> str:
    """A statement of groups, over them, of their different rows, or turned."""
    sql, names = of_groups(rng)
    kind = rng.randrange(5)
    if kind == 1:
        return sql.replace("SELECT ", "SELECT DISTINCT ", 1)
    if kind == 2:
        shown = rng.choice([names[0], f"{names[0]}, {names[0]} IS NULL AS missing"])
        return f"WITH q AS ({sql}) SELECT DISTINCT {shown} FROM q"
    if kind == 3:
        one, two = rng.sample(KEYS[:3], 2)
        inner = f"SELECT {one} AS k, {two} AS v, COUNT(*) AS n FROM t GROUP BY ALL HAVING n > 0.5"
        listed = {"a": "(1, 3)", "b": "('x', 'rest')", "c": "(TRUE)"}[two]
        tail = rng.choice(["", " ORDER BY k LIMIT 3"])
        return f"PIVOT ({inner}) ON v IN {listed} USING SUM(n) GROUP BY k{tail}"
    return sql if kind else f"SELECT COUNT(*), MAX(x0) FROM ({sql}) AS q"


def alike(one: Any, two: Any) -> bool:
    """Whether two values agree; a sum of nothing may be 0."""
    if isinstance(one, bool | float) and isinstance(two, bool | float):
        return math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-6)
    return bool(one == two) or {one, two} == {None, 0.0}


def differ(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Whether rows differ, in whatever order they are."""
    left = list(expected)
    for row in found:
        fitting = [each for each in left if all(map(alike, row, each))]
        if not fitting:
            return True
        left.remove(fitting[0])
    return bool(left)


@contextmanager
def opened(
    folder: Path, rows: Sequence[tuple[Any, ...]], mechanism: str = "identity"
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Connection]]:
    """The same rows in DuckDB and in a catalog, without noise."""
    with (
        write_world(folder, rows) as database,
        zero_noise(),
        dpsql.connect(folder / "t.toml", epsilon=1) as connection,
    ):
        connection.execute(f"SET mechanism = {mechanism}")
        yield database, connection


def test_random_statements_about_groups_are_answered_as_by_duckdb(tmp_path: Path) -> None:
    rng = random.Random(first_seed(8))
    rows = [tuple(map(rng.choice, VALUES)) for _ in range(500)]
    checked = 0
    with opened(tmp_path, rows) as (database, connection):
        for _ in range(STATEMENTS):
            sql = statement(rng)
            declare_view(database, mentioned(connection, sql))
            try:
                expected = database.execute(sql).fetchall()
            except duckdb.Error:  # GROUPING of a key that is written otherwise
                continue
            found = connection.execute(sql).fetchall()
            pairs = ([tuple(map(settle, row)) for row in each] for each in (found, expected))
            assert not differ(*pairs), f"{sql}\n{found[:9]}\n{expected[:9]}"
            checked += 1
    assert checked > STATEMENTS / 2


def test_pivot_of_a_sub_query_has_the_declared_values(tmp_path: Path) -> None:
    with (
        write_world(tmp_path, [(1, "x", True, None, 1, 0.0, 0.0, 0.0, 0, 1.0)] * 9),
        zero_noise(),
        dpsql.connect(tmp_path / "t.toml", epsilon=1) as connection,
    ):
        for source in (
            "(SELECT c AS k, b AS v FROM t)",
            "(SELECT c AS k, v FROM (SELECT *, b AS v FROM t) AS s)",
            "(SELECT s.c AS k, s.b AS v FROM (SELECT * FROM t WHERE a > 0) AS s)",
        ):
            names = connection.describe(f"PIVOT {source} ON v USING COUNT(*) GROUP BY k")
            assert [each.name for each in names] == ["k", "''", "it's", "rest", "x", "y"]
        for source, reason in {
            "(SELECT c AS k, b || CAST(a AS VARCHAR) AS v FROM t)": "nobody listed",
            "(SELECT c AS k, m AS v FROM t)": "nobody listed",
            "(SELECT c AS k, COUNT(*) AS v FROM t GROUP BY c)": "nobody listed",
            "(SELECT c AS k, b AS v FROM t JOIN t AS u USING (a))": "c is in several tables",
            "(SELECT t.c AS k, t.b AS v FROM t JOIN t AS u USING (a))": "a join of t",
        }.items():
            with pytest.raises(dpsql.Error, match=reason):
                connection.describe(f"PIVOT {source} ON v USING COUNT(*) GROUP BY k")


SPREAD = [
    *("a // 3", "a % 2", "upper(b)", "month(d)", "b || '!'", "e + 1", "coalesce(e, 9)", "-a", "c"),
    *("CASE WHEN a < 3 THEN 'low' ELSE 'high' END", "strftime(d, '%Y-%m')", "quarter(d)", "e / 2"),
    *("(a > 3)", "CAST(a AS VARCHAR)", "date_trunc('quarter', d)", "length(b)", "abs(e)", "a"),
]


def spread(rng: random.Random) -> str:
    """A PIVOT over an expression, as it is or as a column of what is around the table."""
    over, using = rng.choice(SPREAD), rng.choice(["COUNT(*)", "SUM(a)", "AVG(e)", "COUNT(e)"])
    key = rng.choice(["c", "b", "a"])
    rows = rng.choice(["t", "(SELECT * FROM t) AS s", "(SELECT * FROM t WHERE a > 1) AS s"])
    kind = rng.randrange(4)
    if kind == 0:
        return f"PIVOT {rows} ON {over} USING {using} GROUP BY {key}"
    inner = f"SELECT {key} AS k, {over} AS v, a, e FROM {rows}"
    if kind == 1:
        return f"PIVOT ({inner}) ON v USING {using} GROUP BY k"
    if kind == 2:
        return f"WITH q AS ({inner}) PIVOT q ON v USING {using} GROUP BY k"
    return f"WITH q AS ({inner}), r AS (SELECT * FROM q) PIVOT r ON v USING {using} GROUP BY k"


def test_pivot_of_an_expression_has_the_values_that_it_has_on_declared_ones(
    tmp_path: Path,
) -> None:
    rng = random.Random(first_seed(8))
    rows = [tuple(map(rng.choice, VALUES)) for _ in range(300)]
    with opened(tmp_path, rows) as (database, connection):
        for _ in range(STATEMENTS):
            sql = spread(rng)
            declare_view(database, mentioned(connection, sql))
            expected = database.execute(sql)
            names = [each[0] for each in expected.description or ()]
            cursor = connection.execute(sql)
            own = [each[0] for each in cursor.description or ()]
            assert set(names) <= set(own), f"{sql}\n{own}\n{names}"
            found, places = cursor.fetchall(), list(map(own.index, names))
            rest = [place for place in range(len(own)) if place not in places]
            assert all(row[place] in (None, 0) for row in found for place in rest), sql
            kept = [tuple(settle(row[place]) for place in places) for row in found]
            some = [row for row in kept if any(value not in (None, 0) for value in row[1:])]
            wanted = [tuple(map(settle, row)) for row in expected.fetchall()]
            wanted = [row for row in wanted if any(value not in (None, 0) for value in row[1:])]
            assert not differ(some, wanted), f"{sql}\n{some[:9]}\n{wanted[:9]}"


def test_no_message_names_what_is_inside(tmp_path: Path) -> None:
    """Columns of layers, k0 and a1, are nothing that a user wrote."""
    rng = random.Random(9)
    outer = [
        "sha256({})",
        "COUNT(DISTINCT {}) OVER ()",
        "{} COLLATE NOCASE",
        "hash({})",
        "struct_pack(x := {})",
    ]
    with (
        write_world(tmp_path, []),
        dpsql.connect(tmp_path / "t.toml", epsilon=1) as connection,
    ):
        for _ in range(STATEMENTS):
            key, asked = rng.choice(KEYS), rng.choice(AGGREGATES)
            item = rng.choice(outer).format(rng.choice([key, asked]))
            with pytest.raises(dpsql.Error) as caught:
                connection.describe(f"SELECT {key}, {asked}, {item} FROM t GROUP BY {key}")
            told = f"{caught.value.message} {caught.value.hint}"
            assert not re.search(r"\b[kagwxr]\d+\b", told), f"{item}\n{told}"


@pytest.mark.parametrize("mechanism", ["identity", "auto"])
def test_keys_of_one_group_stand_beside_counts_of_values(tmp_path: Path, mechanism: str) -> None:
    rng = random.Random(4)
    rows = [tuple(map(rng.choice, VALUES)) for _ in range(300)]
    with opened(tmp_path, rows, mechanism) as (database, connection):
        for items in ("a > 9 AS k, {} AS x, {}", "{} AS x, a > 9 AS k, {}", "a > 9 AS k, {1}"):
            for key, asked in (("b", "COUNT(DISTINCT e)"), ("c", "SUM(DISTINCT e)")):
                sql = f"SELECT {items.format(key, asked)} FROM t GROUP BY ALL HAVING COUNT(*) > 0.5"
                declare_view(database, mentioned(connection, sql))
                pairs = [connection.execute(sql).fetchall(), database.execute(sql).fetchall()]
                assert not differ(*([tuple(map(settle, row)) for row in each] for each in pairs)), (
                    sql
                )
