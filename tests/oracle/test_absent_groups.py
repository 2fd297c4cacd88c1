"""Groups that no row is in: each operator over a table with one, beside DuckDB, which has none."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.sql.groups.absent_groups import NOTE
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

CATALOG = """
[budget]
epsilon = 1000000

[table.t]
source = "t.parquet"
privacy_unit = { column = "who", max_rows = 4 }

[table.t.column]
g = { type = "text", domain = ["a", "b", "c", "d"] }
h = { type = "integer", domain = [0, 3] }
m = { type = "integer", bounds = [0, 64] }

[table.s]
source = "s.parquet"
privacy_unit = { column = "whom", max_rows = 4 }

[table.s.column]
h = { type = "integer", domain = [0, 3] }

[table.w]
source = "w.parquet"
public = true

[table.w.column]
x = { type = "integer" }
name = { type = "text" }

[view.gv]
sql = "SELECT g, COUNT(*) AS n FROM t GROUP BY g"

[view.firstv]
sql = "SELECT h, COUNT(*) AS n FROM t GROUP BY h ORDER BY h LIMIT 1"

[view.hv]
sql = "SELECT h, COUNT(*) AS n FROM t GROUP BY h"

[view.sv]
sql = "SELECT h, COUNT(*) AS n FROM s GROUP BY h"
"""

OPERATORS = [
    "SELECT x FROM w EXCEPT SELECT h FROM {H}",
    "SELECT x FROM w INTERSECT SELECT h FROM {H}",
    "SELECT h FROM {H} EXCEPT SELECT x FROM w WHERE x > 1",
    "SELECT SUM(a.n) AS s FROM {H} a, {G} b",
    "SELECT SUM(a.n * b.n) AS s, COUNT(*) AS k FROM {H} a CROSS JOIN {G} b",
    "SELECT AVG(n) AS s FROM {H}",
    "SELECT COUNT(*) AS k, SUM(n) AS s FROM {H}",
    "SELECT COUNT(h) AS k FROM {H}",
    "SELECT SUM(1) AS k FROM {G}",
    "SELECT MIN(n) AS s, MAX(n) AS t FROM {G}",
    "SELECT MEDIAN(n) AS s FROM {G}",
    "SELECT MIN(h) AS s, MAX(h) AS t FROM {H}",
    "SELECT h % 2 AS p, COUNT(*) AS k FROM {H} GROUP BY p HAVING k > 0",
    "SELECT x, h IS NULL AS m, n FROM w LEFT JOIN {H} b ON b.h = w.x",
    "SELECT x FROM w LEFT JOIN {H} b ON b.h = w.x WHERE b.h IS NULL",
    "SELECT x, h IS NULL AS m, b.n FROM {H} b RIGHT JOIN w ON b.h = w.x",
    "SELECT x, h IS NULL AS m, b.h FROM {H} b FULL JOIN w ON b.h = w.x",
    "SELECT a.h, b.n FROM {H} a LEFT JOIN (SELECT h, COUNT(*) AS n FROM t WHERE g = 'd' GROUP BY h) b ON a.h = b.h WHERE a.h = 1 AND b.h IS NULL",  # noqa: E501
    "SELECT COUNT(b.n) AS k FROM {H} a LEFT JOIN (SELECT h, COUNT(*) AS n FROM t WHERE g = 'd' GROUP BY h) b ON a.h = b.h",  # noqa: E501
    "SELECT x FROM w WHERE x IN (SELECT h FROM {H})",
    "SELECT x FROM w WHERE x NOT IN (SELECT h FROM {H})",
    "SELECT x FROM w WHERE EXISTS (SELECT 1 FROM {H} b WHERE b.h = w.x)",
    "SELECT x FROM w WHERE NOT EXISTS (SELECT 1 FROM {H} b WHERE b.h = w.x)",
    "SELECT x FROM w SEMI JOIN {H} b ON b.h = w.x",
    "SELECT x FROM w ANTI JOIN {H} b ON b.h = w.x",
    "SELECT COUNT(*) AS k FROM (SELECT h, n FROM {H} ORDER BY h LIMIT 2) q",
    "SELECT SUM(n) AS s FROM (SELECT h, n FROM {H} ORDER BY h LIMIT 1) q",
    "SELECT SUM(n) AS s FROM (SELECT h, COUNT(*) AS n FROM t GROUP BY h ORDER BY h LIMIT 1) q",
    "SELECT COUNT(*) AS k FROM (SELECT g, h, COUNT(*) AS n FROM t GROUP BY g, h) q",
    "SELECT AVG(s) AS a FROM (SELECT g, SUM(m) AS s FROM t GROUP BY g) q",
    "SELECT COUNT(*) AS k FROM (SELECT n FROM {H} UNION ALL SELECT n FROM {G}) q",
    "SELECT COUNT(*) AS k FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY ROLLUP (g)) q",
    "SELECT COUNT(*) AS k FROM (SELECT x FROM w UNION SELECT h FROM {H}) q",
    "SELECT COUNT(*) AS k FROM (SELECT DISTINCT n > 0 AS p FROM {G}) q",
    "SELECT (SELECT n FROM {H} b ORDER BY h LIMIT 1) AS s",
]
"""Statements that ask which groups there are; {G} and {H} are tables with one that is empty."""

BESIDE = [
    "SELECT COUNT(*) AS k FROM t WHERE h IN (SELECT h FROM {S})",
    "SELECT COUNT(*) AS k FROM t WHERE h NOT IN (SELECT h FROM {S})",
    "SELECT COUNT(*) AS k FROM t WHERE EXISTS (SELECT 1 FROM {S} b WHERE b.h = t.h)",
    "SELECT COUNT(*) AS k FROM t WHERE NOT EXISTS (SELECT 1 FROM {S} b WHERE b.h = t.h)",
    "SELECT COUNT(*) AS k FROM t SEMI JOIN {S} b ON b.h = t.h",
    "SELECT COUNT(*) AS k FROM t ANTI JOIN {S} b ON b.h = t.h",
    "SELECT COUNT(*) AS k FROM t JOIN {S} b ON b.h = t.h",
    "SELECT COUNT(*) AS k FROM t, {S} b WHERE b.h = t.h",
    "SELECT COUNT(*) AS k FROM t CROSS JOIN {S} b",
    "SELECT SUM(t.m) AS s FROM t JOIN {S} b ON b.h = t.h",
    "SELECT SUM(b.n) AS s FROM t JOIN {S} b ON b.h = t.h",
    "SELECT AVG(b.n) AS s FROM t JOIN {S} b ON b.h = t.h",
    "SELECT t.g, COUNT(*) AS k FROM t JOIN {S} b ON b.h = t.h GROUP BY t.g HAVING k > 1",
    "SELECT COUNT(*) AS k FROM t LEFT JOIN {S} b ON b.h = t.h WHERE b.h IS NULL",
    "SELECT SUM(b.n) AS k FROM t LEFT JOIN {S} b ON b.h = t.h",
    "SELECT COUNT(*) AS k FROM t WHERE h IN (SELECT h FROM t WHERE g = 'd' GROUP BY h)",
    "SELECT COUNT(*) AS k FROM t JOIN {S} b ON b.h = t.h JOIN {H} c ON c.h = t.h",
]
"""Rows of ``t`` beside groups of another table, or of other rows of it."""

OWN = [
    "SELECT COUNT(*) AS k FROM t WHERE h IN (SELECT h FROM {H})",
    "SELECT COUNT(*) AS k FROM t WHERE EXISTS (SELECT 1 FROM {H} b WHERE b.h = t.h)",
    "SELECT COUNT(*) AS k FROM t JOIN {H} b ON b.h = t.h",
    "SELECT AVG(b.n) AS s FROM t JOIN {H} b ON b.h = t.h WHERE t.g = 'a'",
    "SELECT COUNT(*) AS k FROM t LEFT JOIN {H} b ON b.h = t.h WHERE b.h IS NULL",
    "SELECT t.g, COUNT(*) AS k FROM t JOIN {H} b ON b.h = t.h GROUP BY t.g HAVING k > 1",
]
"""Rows beside counts of their own groups, which exist where a row is: nothing is asked."""

TABLES = {"{G}": ("g", "t", "g"), "{H}": ("h", "t", "h"), "{S}": ("s", "s", "h")}
"""The tables of groups: the beginning of their names, the table that is counted, and its key."""

WAYS = [
    ("(SELECT {k}, COUNT(*) AS n FROM {t} GROUP BY {k})", ""),
    ("(SELECT * FROM (SELECT {k}, COUNT(*) AS n FROM {t} GROUP BY {k}) AS i)", ""),
    ("{a}q", "{a}q AS (SELECT {k}, COUNT(*) AS n FROM {t} GROUP BY {k})"),
    (
        "{a}r",
        "{a}p AS (SELECT {k}, COUNT(*) AS n FROM {t} GROUP BY 1), "
        "{a}r AS (SELECT n, {k} FROM {a}p)",
    ),
    ("{a}v", ""),
    ("(SELECT {k}, n FROM {a}v)", ""),
]
"""Spellings of such a table, each with what WITH says of it."""


def views() -> dict[str, str]:
    """Views of the catalog, each of which is an operator by itself."""
    return {f"o{place}": written(each, (0, 0, 0)) for place, each in enumerate(OPERATORS + BESIDE)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    rows = "SELECT i // 4 AS who, ['a', 'b', 'c'][i % 3 + 1] AS g, i // 7 % 2 + 1 AS h, i % 64 AS m"
    tables: Tables = {
        "t": f"{rows} FROM range(400) r(i)",
        "s": "SELECT i // 3 AS whom, i % 2 + 2 AS h FROM range(300) r(i)",
        "w": ("x BIGINT, name VARCHAR", [(1, "one"), (2, "two"), (3, "three")]),
    }
    whole = CATALOG + "".join(f"[view.{k}]\nsql = {json.dumps(v)}\n" for k, v in views().items())
    with open_tables(tmp_path_factory.mktemp("absent"), whole, tables) as found, zero_noise():
        for name, sql in views().items():
            found[1].execute(f"CREATE VIEW {name} AS {sql}")
        found[1].execute(
            "CREATE VIEW firstv AS SELECT h, COUNT(*) AS n FROM t GROUP BY h ORDER BY h LIMIT 1"
        )
        for name, table, key in TABLES.values():
            groups = f"SELECT {key}, COUNT(*) AS n FROM {table} GROUP BY {key}"
            found[1].execute(f"CREATE VIEW {name}v AS {groups}")
        yield found


def written(operator: str, ways: tuple[int, int, int]) -> str:
    """An operator over tables that are spelled in some way."""
    body, named = operator, []
    for (name, (a, t, k)), way in zip(TABLES.items(), ways, strict=True):
        table, text = (part.format(a=a, t=t, k=k) for part in WAYS[way])
        if text and name in operator:
            named.append(text)
        body = body.replace(name, table)
        if table.startswith("("):  # a table in FROM of a SELECT needs a name
            body = body.replace(f"{table})", f"{table} AS q0)")
    if body.endswith(")") and body.rsplit("FROM ", 1)[-1].startswith("("):
        body += " AS q1"
    return f"WITH {', '.join(named)} {body}" if named else body


def settled(rows: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Rows as a multiset, numbers rounded."""
    texts = [
        tuple(
            str(v) if isinstance(v, str | bool | None) else f"{round(float(v), 2) + 0.0:.2f}"
            for v in row
        )
        for row in rows
    ]
    return sorted(texts)


def differ(world: World, sql: str) -> str | None:
    """Return the fault of the answer to a statement, None where it is DuckDB's."""
    connection, database = world
    known = settled(database.execute(sql).fetchall())
    found = settled(connection.execute(sql).fetchall())
    return None if found == known else f"{sql}: {found} and not {known}"


@pytest.mark.parametrize("operator", OPERATORS + BESIDE)
def test_existence_is_asked_of_the_count(world: World, operator: str) -> None:
    assert differ(world, written(operator, (0, 0, 0))) is None


@pytest.mark.parametrize("operator", OWN)
def test_own_groups_exist(world: World, operator: str) -> None:
    for way in range(len(WAYS)):
        sql = written(operator, (way, way, way))
        assert differ(world, sql) is None
        assert NOTE not in world[0].execute(sql).result.notes


@pytest.mark.parametrize("name", views())
def test_a_view_says_the_same_and_is_noted(world: World, name: str) -> None:
    assert differ(world, f"SELECT * FROM {name}") is None
    asked = NOTE in world[0].execute(views()[name]).result.notes
    assert (NOTE in world[0].execute(f"SELECT * FROM {name}").result.notes) is asked


def test_the_limit_of_a_view_is_below_the_top(world: World) -> None:
    assert differ(world, "SELECT SUM(n) AS s FROM firstv") is None


def test_spellings_of_a_table_say_the_same(world: World) -> None:
    draw = random.Random(3)
    for _ in range(effort(36)):
        ways = draw.randrange(6), draw.randrange(6), draw.randrange(6)
        sql = written(draw.choice(OPERATORS + BESIDE), ways)
        assert differ(world, sql) is None
