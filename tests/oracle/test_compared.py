"""Private rows compared with an aggregate of such rows: random statements beside DuckDB's own."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dpsql
from tests.support.effort import SHIFT, effort
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

CATALOG = """
[budget]
epsilon = 100000

[table.t]
source = "t.parquet"
privacy_unit = { column = "who", max_rows = 4 }

[table.t.column]
a = { type = "integer", domain = [0, 9] }
b = { type = "text", domain = ["x", "y", "z"] }
d = { type = "date", domain = ["2024-01-01", "2024-01-12"] }
m = { type = "integer", bounds = [0, 64] }
z = { type = "integer", bounds = [-4, 4], null = true }
w = { type = "integer", bounds = [0, 64], step = 8 }

[table.names]
source = "names.parquet"
public = true

[table.names.column]
b = { type = "text" }
name = { type = "text" }
least = { type = "integer" }
"""


GROUPS = "SELECT b, a, COUNT(*) AS n FROM t GROUP BY ALL HAVING n > 1"
BESIDE = "FROM t JOIN (SELECT b, COUNT(*) AS n FROM t GROUP BY b) s ON s.b = t.b"

SPREADS = ["STDDEV(m)", "VAR_POP(m + 1)", "VARIANCE(m) FILTER (WHERE a > 2)"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    rows = "SELECT i // 4 AS who, i * i % 10 AS a, ['x', 'y', 'z'][i * 7 % 11 % 3 + 1] AS b"
    rows += ", DATE '2024-01-01' + CAST(i * i % 11 AS INTEGER) AS d, i % 64 AS m, i % 64 AS w"
    rows += ", CASE WHEN i % 3 > 0 THEN i % 9 - 4 END AS z"
    tables: Tables = {
        "t": f"{rows} FROM range(400) r(i)",
        "names": (
            "b VARCHAR, name VARCHAR, least BIGINT",
            [("x", "ex", 20), ("y", "why", 45), ("q", "queue", 3)],
        ),
    }
    folder = tmp_path_factory.mktemp("compared")
    with open_tables(folder, CATALOG, tables) as found, zero_noise():
        found[0].set("mechanism", "identity")
        found[0].set("epsilon", "100")  # small groups are above what noise alone makes likely
        yield found


def draw_comparison(draw: random.Random) -> str:
    """A SELECT whose rows are compared with an aggregate of others."""
    side, inner = draw.choice([("a", "a"), ("a * 2", "2 * a"), ("a", "m / 8")])
    other = draw.choice(["", " WHERE b <> 'x'", " WHERE u.b = t.b", " WHERE u.d = t.d AND u.a > 1"])
    # no value is equal to it: noise, however little, would decide
    aggregate = draw.choice([f"AVG({inner}) + 0.3", "SUM(a) / COUNT(*) - 0.2"])
    query = f"(SELECT {aggregate} FROM t AS u{other})"
    sign = draw.choice(["<", "<=", ">", ">=", "<>"])
    test = f"{side} {sign} {query}" if draw.random() < 0.7 else f"{query} {sign} {side}"
    rest = draw.choice(["", " AND b IN ('x', 'z')", " AND a > 2"])
    key = draw.choice(["", "b", "a % 3"])
    sums = ["COUNT(*)", "SUM(m)", "AVG(m)", "COUNT(*) FILTER (WHERE b = 'x')", *SPREADS]
    sums = draw.sample(sums, 2)
    items = [*([f"{key} AS k"] if key else []), *(f"{s} AS s{i}" for i, s in enumerate(sums))]
    source, where = "t", f"{test}{rest}"
    if draw.random() < 0.3 and "t." not in query:
        source, where = f"(SELECT a, b, m FROM t WHERE {where}) AS q", ""
    sql = f"SELECT {', '.join(items)} FROM {source}{f' WHERE {where}' if where else ''}"
    return f"{sql}{' GROUP BY 1' if key else ''}"


def draw_beside(draw: random.Random) -> str:
    """A SELECT whose rows are joined with, or picked by, what was counted in their groups."""
    key, other = draw.sample(["b", "a", "a % 3", "d"], 2)
    value = draw.choice(["COUNT(*)", "AVG(m) + 0.3", "SUM(a) + 0.2"])
    inner = f"SELECT {key} AS k, {value} AS v FROM t{draw.choice(['', ' WHERE a > 1'])} GROUP BY 1"
    mine = key.replace("a", "t.a").replace("b", "t.b").replace("d", "t.d")
    if draw.random() < 0.3:
        listed = f"SELECT k FROM ({inner}) q WHERE v > {draw.choice([15, 40, 90])}"
        test = f"{key} {draw.choice(['', 'NOT '])}IN ({listed})"
        shown = draw.choice([key, other])
        return f"SELECT {shown} AS k, COUNT(*) AS s0, AVG(m) AS s1 FROM t WHERE {test} GROUP BY 1"
    side = draw.choice(["", "", "LEFT "])
    source = f"t {side}JOIN ({inner}) s ON s.k = {mine}"
    if draw.random() < 0.2:
        source = f"t CROSS JOIN (SELECT {value} AS v FROM t) s"
    sums = ["COUNT(*)", "SUM(m)", "AVG(t.m)", "COUNT(*) FILTER (WHERE t.b = 'x')", "SUM(v)"]
    sums += ["SUM(t.m * v) / 1000", "SUM(m / v)", "AVG(v)", "MAX(s.v)", "COUNT(*) / MIN(v)"]
    sums += ["SUM(CASE WHEN s.v > 40 THEN t.a ELSE 1 END)", "COUNT(*) FILTER (WHERE v > 40)"]
    sums += SPREADS
    shown = draw.choice([mine, other.replace("d", "t.d")])
    items = [f"{shown} AS k", *(f"{s} AS s{i}" for i, s in enumerate(draw.sample(sums, 2)))]
    where = draw.choice(
        ["", " WHERE v > 40.5", " WHERE m > 8 * v / 7", " WHERE t.a > 1 AND v < 90"]
    )
    where = where.replace("m >", "t.a * 8 >")
    # groups that no row is in are shown by dpsql alone
    return f"SELECT {', '.join(items)} FROM {source}{where} GROUP BY 1 HAVING COUNT(*) > 0.5"


def draw_mixed(draw: random.Random) -> str:
    """A SELECT with a key that follows from several columns of the rows, or of public ones."""
    joined = draw.random() < 0.4
    one = draw.choice(["a > 4", "t.b = 'x'", "month(d) + day(d) > 7", "a % 3 = 1"])
    two = draw.choice(["t.b IN ('x', 'z')", "a < 6", "name = 'ex'" if joined else "a = 3"])
    key = draw.choice(
        [
            f"CASE WHEN {one} AND {two} THEN 'p' WHEN {two} THEN t.b ELSE 'q' END",
            f"CASE WHEN {one} OR {two} THEN a % 2 ELSE day(d) END",
            "concat(t.b, a % 4)",
            "a + day(d)",
            "date_diff('day', d, DATE '2024-01-05' + CAST(a AS INTEGER))",
            "name || (a % 2)" if joined else "t.b || (a % 2)",
        ]
    )
    sums = ["COUNT(*)", "SUM(m)", "AVG(m)", f"COUNT(*) FILTER (WHERE {one})", "SUM(a)"]
    if not joined:
        sums += ["COUNT(DISTINCT who)", "MEDIAN(a)"]
    items = ", ".join(f"{s} AS s{i}" for i, s in enumerate(draw.sample(sums, 2)))
    source = "t JOIN names USING (b)" if joined else "t"
    where = draw.choice(["", " WHERE a > 0", " WHERE t.b <> 'y'"])
    return f"SELECT {key} AS k, {items} FROM {source}{where} GROUP BY 1 HAVING COUNT(*) > 0.5"


def draw_sets(draw: random.Random) -> str:
    """A SELECT with sets of keys whose rows are picked by, or joined with, what was counted."""
    one, two = draw.sample(["t.b", "t.a", "t.d", "t.a % 3"], 2)
    sets = draw.choice(
        [
            f"ROLLUP ({one}, {two})",
            f"CUBE ({one}, {two})",
            f"GROUPING SETS (({one}, {two}), ({two}), ())",
            f"{one}, ROLLUP ({two})",
            f"ROLLUP (({one}, {two}))",
        ]
    )
    listed = draw.choice(
        [
            "SELECT b FROM (SELECT b, rank() OVER (ORDER BY SUM(m) DESC) AS r FROM t GROUP BY b) q "
            "WHERE r <= 2",
            "SELECT b FROM t GROUP BY b HAVING AVG(m) > 31.4",
        ]
    )
    source, where = "t", f"t.b {draw.choice(['', 'NOT '])}IN ({listed})"
    if draw.random() < 0.3:
        source = "t JOIN (SELECT b AS k, COUNT(*) AS n FROM t GROUP BY b) s ON s.k = t.b"
        where = "n > 120"
    shown = draw.choice(
        [one, f"upper(CAST({one} AS VARCHAR))", f"CASE WHEN {two} IS NULL THEN 'n' END"]
    )
    shown = shown if "ROLLUP ((" not in sets else two
    grouping = draw.choice([f"GROUPING({one})", f"GROUPING({two}, {one})"])
    ranked = f"rank() OVER (PARTITION BY {grouping} ORDER BY {one}, {two})"
    last = draw.choice(["SUM(t.m)", "AVG(t.m)", "100 * SUM(t.a) / SUM(SUM(t.a)) OVER ()", ranked])
    items = f"{one} AS x, {two} AS y, {shown} AS s, {grouping} AS g, COUNT(*) AS n, {last} AS l"
    return f"SELECT {items} FROM {source} WHERE {where} GROUP BY {sets} HAVING COUNT(*) > 0.5"


def settle(rows: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """Rows with numbers rounded as far as measures are on a grid; those of no row are left out."""
    found = set()
    for row in rows:
        values = [
            v if isinstance(v, str | dt.date | None) else round(float(v), 1) + 0.0 for v in row
        ]
        found.add(tuple(v or 0.0 for v in values))
    return {row for row in found if any(isinstance(v, float) and v for v in row[-2:])}


@pytest.mark.parametrize("seed", range(2))
def test_random_comparisons_are_those_of_the_database(world: World, seed: int) -> None:
    connection, database = world
    draw = random.Random(seed)
    for _ in range(effort(4)):
        sql = draw_comparison(draw)
        found, known = (settle(each.execute(sql).fetchall()) for each in (connection, database))
        assert found == known, sql


@pytest.mark.parametrize("drawn", [draw_beside, draw_mixed, draw_sets])
def test_random_answers_are_those_of_the_database(
    world: World, drawn: Callable[[random.Random], str]
) -> None:
    connection, database = world
    draw = random.Random(6)
    for _ in range(effort(6)):
        sql = drawn(draw)
        found, known = (settle(each.execute(sql).fetchall()) for each in (connection, database))
        assert found == known, sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name, n FROM (SELECT b, COUNT(*) AS n FROM t GROUP BY b) g JOIN names USING (b) "
        "WHERE n > (SELECT AVG(m) FROM t)",
        "SELECT name FROM names WHERE least < (SELECT AVG(m) FROM t WHERE t.b = names.b)",
        "SELECT name FROM names n WHERE least > (SELECT COUNT(*) FROM t WHERE t.b = n.b)",
        "SELECT name FROM names n WHERE 9 * least > (SELECT SUM(a) FROM t WHERE t.b = n.b AND a > 3"
        ")",
        "SELECT SUM(m) FROM t, names n WHERE t.b = n.b AND a < (SELECT AVG(a) FROM t u WHERE u.b = "
        "n.b)",
        f"SELECT x.b, n FROM ({GROUPS}) x WHERE n > (SELECT AVG(n) FROM ({GROUPS}) y "
        "WHERE y.b = x.b)",
        "SELECT n, COUNT(*) FROM (SELECT who, SUM(a) AS n FROM t GROUP BY who) p WHERE n >= "
        "(SELECT AVG(n) FROM (SELECT who, SUM(a) AS n FROM t GROUP BY who) q) GROUP BY n",
        "WITH s AS (SELECT b, COUNT(*) AS n FROM t GROUP BY b) SELECT s.b, a % 2 AS h, COUNT(*) * "
        "1.0 / MAX(n) AS share FROM t JOIN s USING (b) GROUP BY ALL",
        "SELECT MEDIAN(a) AS h, t.b, s.n FROM t JOIN (SELECT b, COUNT(*) AS n FROM t GROUP BY b) s "
        "ON s.b = t.b GROUP BY t.b, s.n",
        "SELECT name, COUNT(*) AS n FROM t JOIN names USING (b) WHERE b IN (SELECT b FROM t GROUP "
        "BY b HAVING COUNT(*) > 100) GROUP BY name",
        # a row of which one part is NULL adds nothing
        f"SELECT t.b, SUM(z + s.n), SUM(s.n - t.a - z), SUM(s.n * (z + 1)) {BESIDE} GROUP BY 1",
        f"SELECT t.a, SUM(-(z - s.n)), SUM(CASE WHEN s.n > 130 THEN z END) {BESIDE} GROUP BY 1",
        # looked up for groups, of rows or of answers, and for answers as they are shown
        "SELECT t.b, COUNT(*) AS n, (SELECT AVG(n) FROM (SELECT b, COUNT(*) AS n FROM t GROUP BY b)"
        " q WHERE q.b = t.b) AS c FROM t GROUP BY t.b",
        *(
            f"SELECT b, {n}, (SELECT COUNT(*) FROM t u WHERE u.b = q.b AND a > 5) FROM (SELECT b, a"
            f", COUNT(*) AS n FROM t GROUP BY b, a HAVING n > 1) q{group}"
            for n, group in (("n", ""), ("SUM(n)", " GROUP BY b"))
        ),
        # several answers, or one among other conditions
        "SELECT COUNT(*) FROM t WHERE a > (SELECT AVG(a) FROM t) AND a < (SELECT SUM(m) FROM t)",
        "SELECT b, SUM(m) FROM t WHERE a > (SELECT AVG(a) + 0.3 FROM t) OR b = 'x' GROUP BY b",
        "SELECT b, COUNT(*) FROM t WHERE ABS(a - (SELECT AVG(a) + 0.3 FROM t)) < 3 GROUP BY b",
        "SELECT b, a % 2 + 1, COUNT(*) FROM t WHERE a > (SELECT AVG(a) + 0.3 FROM t) GROUP BY b, a",
        # a column comes before an alias: several rows of the answer are alike
        "SELECT a % 2 AS a, COUNT(*) FROM t WHERE a > (SELECT AVG(a) + 0.3 FROM t) GROUP BY a",
        "SELECT upper(b) AS a, COUNT(*) FROM t WHERE a > (SELECT AVG(a) + 0.3 FROM t) "
        "GROUP BY a, b",
        "SELECT a % 2 AS a, COUNT(*), (SELECT COUNT(*) FROM t u WHERE u.a = t.a) FROM t GROUP BY a",
        "SELECT concat(b, a % 2) AS a, COUNT(*) AS n FROM t GROUP BY a, b",
        "SELECT t.b, COUNT(*) AS n FROM t JOIN (SELECT a % 2 AS a, COUNT(*) AS n FROM t GROUP BY a "
        "HAVING COUNT(*) > 0.5) s ON s.a = t.a GROUP BY t.b",
        "SELECT t.b, COUNT(*) AS n FROM t JOIN (SELECT a AS x, COUNT(*) AS y FROM t GROUP BY a"
        ") AS s(y, x) ON s.x = t.a + 34 GROUP BY t.b",
    ],
)
def test_sub_queries_may_depend_on_the_row_around(world: World, sql: str) -> None:
    connection, database = world
    found, known = (
        sorted(tuple(round(v, 1) if isinstance(v, float) else v for v in row) for row in rows)
        for rows in (connection.execute(sql).fetchall(), database.execute(sql).fetchall())
    )
    assert [row for row in found if row[-1] != 0] == known


@pytest.mark.parametrize(
    "test",
    [
        *(f"a {sign} (SELECT AVG(a) + 0.3 FROM t)" for sign in ("<", ">=", "<>")),
        "a < (SELECT AVG(a) + 0.3 FROM t AS u WHERE u.b = t.b)",
        "b IN (SELECT b FROM t GROUP BY b HAVING COUNT(*) > 120)",
    ],
)
def test_groups_of_compared_rows_are_those_that_exist(world: World, test: str) -> None:
    """Groups that nobody is in are not counted: no row has 2, 3, 7 or 8, which are declared."""
    groups = f"SELECT a AS k, COUNT(*) AS n FROM t WHERE {test} GROUP BY 1"
    for asked in (
        f"SELECT COUNT(*) AS c, AVG(n) AS m FROM ({groups}) g",
        f"SELECT COUNT(*) AS c, MAX(n - (SELECT AVG(n) FROM ({groups}) h)) AS m FROM ({groups}) g",
    ):
        (found,), (known,) = (each.execute(asked).fetchall() for each in world)
        assert found == pytest.approx(known, abs=0.1), asked


TOLD = "SELECT AVG(a) + 0.3 AS v FROM"
SOME = "SELECT * FROM t WHERE b <> 'x'"
ANSWERS = [
    ("", f"{TOLD} t WHERE b <> 'x'"),
    ("", f"{TOLD} ({SOME}) q"),
    ("", f"WITH z AS ({SOME}) {TOLD} z"),
    (f"z AS ({SOME})", f"{TOLD} z"),
    (f"names AS ({SOME})", f"{TOLD} names"),  # a CTE that is called as a public table is
    (f"one AS ({TOLD} t WHERE b <> 'x')", "SELECT v FROM one"),
    (f"z(who, a, b) AS (SELECT who, a, b FROM ({SOME}))", f"{TOLD} z"),
]
"""CTEs, and one number that rows are compared with: the same in every spelling."""
COMPARISONS = [
    "a > ({0})",
    "({0}) < r.a",
    "NOT a <= ({0})",
    "NOT (NOT r.a > ({0}))",
    "NOT (a <= ({0}) OR a <= 0)",
    "a BETWEEN ({0}) AND 9",
]
ROWS = [
    ("", "t"),
    ("", "(SELECT * FROM t)"),
    ("all_rows AS (SELECT * FROM t)", "all_rows"),
    ("", "(SELECT a, b FROM t UNION ALL SELECT a, b FROM t WHERE a > 99)"),
]
CHOOSING = [
    ("", "SELECT b, COUNT(*) FROM {rows} r WHERE {test}"),
    ("", "SELECT b, COUNT(*) FILTER (WHERE {test}) FROM {rows} r"),
    ("", "SELECT b, COUNT(CASE WHEN {test} THEN 1 END) FROM {rows} r"),
    ("chosen AS (SELECT * FROM {rows} r WHERE {test})", "SELECT b, COUNT(*) FROM chosen"),
]
"""The places of a condition that chooses rows; every group has some."""


def test_a_comparison_has_one_answer_in_all_spellings(world: World) -> None:
    connection, database = world
    plain = f"SELECT b, COUNT(*) FROM t WHERE a > ({TOLD} t WHERE b <> 'x') GROUP BY b ORDER BY b"
    known = database.execute(plain).fetchall()
    draw = random.Random(f"spellings {SHIFT}")
    every = list(itertools.product(ANSWERS, COMPARISONS, ROWS, CHOOSING))
    drawn = draw.sample(every, min(effort(8), len(every)))
    for (cte, answer), test, (other, rows), (last, select) in drawn:
        parts = {"rows": rows, "test": test.format(answer)}
        ctes = ", ".join(filter(None, (cte, other, last.format(**parts))))
        sql = f"{f'WITH {ctes} ' if ctes else ''}{select.format(**parts)} GROUP BY b ORDER BY b"
        assert database.execute(sql).fetchall() == known, sql
        found = connection.execute(sql).fetchall()
        assert [(key, round(count)) for key, count in found] == known, sql


@pytest.mark.parametrize("sign", [">", "<=", "="])
def test_one_total_of_each_group_has_an_error(world: World, sign: str) -> None:
    sql = f"SELECT b, COUNT(*), SUM(m) FROM t WHERE a {sign} (SELECT ROUND(AVG(a)) FROM t) "
    for having in ("", "HAVING COUNT(*) > 1"):
        result = world[0].execute(f"{sql} GROUP BY b {having}").result
        assert all(each is not None for errors in result.stddev[1:] for each in errors or (None,))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT MEDIAN(a) FROM t WHERE a > (SELECT AVG(a) FROM t)",
        "SELECT COUNT(DISTINCT who) FROM t WHERE a > (SELECT AVG(a) FROM t)",
        "SELECT COUNT(*) FROM t WHERE w = (SELECT AVG(w) FROM t)",
        "SELECT COUNT(*) FROM t WHERE a > (SELECT a FROM t)",
        "SELECT COUNT(*) FROM t JOIN (SELECT b, AVG(w) AS v FROM t GROUP BY b) s USING (b) "
        "WHERE w > s.v",
        "SELECT COUNT(*) FROM (SELECT b, w AS k FROM t) u JOIN (SELECT b, AVG(m) AS v FROM t GROUP "
        "BY b) s ON s.b = u.b WHERE k < v",
        # a CTE within, which the SELECT around does not see
        "SELECT COUNT(*) FROM (WITH names AS (SELECT * FROM t WHERE a > 3) SELECT b FROM t WHERE "
        "a > (SELECT AVG(a) FROM names)) q",
    ],
)
def test_what_cannot_be_compared_is_refused_uncharged(world: World, sql: str) -> None:
    connection, _ = world
    before = connection.budget.entries
    with pytest.raises(dpsql.Error) as caught:
        connection.execute(sql)
    assert caught.value.code in ("E_SUBQUERY", "E_AGGREGATE", "E_JOIN")
    assert connection.budget.entries == before


@pytest.mark.parametrize("sign", ["<", ">="])
def test_bins_are_divided_where_an_answer_falls(world: World, sign: str) -> None:
    connection, database = world
    for asked in ("AVG(w)", "AVG(w) / 9", "-1 * AVG(w)", "9 * AVG(w)"):
        sql = f"SELECT COUNT(*) AS n FROM t WHERE w {sign} (SELECT {asked} FROM t)"
        (found,), (known,) = (each.execute(sql).fetchall() for each in (connection, database))
        # a bin has 50 rows or so, of which the answer is a part
        assert all(abs(a - b) < 10 for a, b in zip(found, known, strict=True)), sql
