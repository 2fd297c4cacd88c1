"""Groups that no row is in: each operator over a table with one, beside DuckDB, which has none."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.sql.absent import NOTE
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

WAYS = [
    ("(SELECT {k}, COUNT(*) AS n FROM t GROUP BY {k})", ""),
    ("(SELECT * FROM (SELECT {k}, COUNT(*) AS n FROM t GROUP BY {k}) AS i)", ""),
    ("{k}q", "{k}q AS (SELECT {k}, COUNT(*) AS n FROM t GROUP BY {k})"),
    (
        "{k}r",
        "{k}p AS (SELECT {k}, COUNT(*) AS n FROM t GROUP BY 1), {k}r AS (SELECT n, {k} FROM {k}p)",
    ),
    ("{k}v", ""),
    ("(SELECT {k}, n FROM {k}v)", ""),
]
"""Spellings of such a table, each with what WITH says of it."""
NEAR = [each for each in OPERATORS if "EXISTS" not in each and "SEMI" not in each]
NEAR = [each for each in NEAR if "ANTI" not in each]
"""Those that are read in every spelling."""


def views() -> dict[str, str]:
    """Views of the catalog, each of which is an operator by itself."""
    return {f"o{number}": written(each, (0, 0)) for number, each in enumerate(NEAR)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    rows = "SELECT i // 4 AS who, ['a', 'b', 'c'][i % 3 + 1] AS g, i // 7 % 2 + 1 AS h, i % 64 AS m"
    tables: Tables = {
        "t": f"{rows} FROM range(400) r(i)",
        "w": ("x BIGINT, name VARCHAR", [(1, "one"), (2, "two"), (3, "three")]),
    }
    whole = CATALOG + "".join(f"[view.{k}]\nsql = {json.dumps(v)}\n" for k, v in views().items())
    with open_tables(tmp_path_factory.mktemp("absent"), whole, tables) as found, zero_noise():
        for name, sql in views().items():
            found[1].execute(f"CREATE VIEW {name} AS {sql}")
        found[1].execute(
            "CREATE VIEW firstv AS SELECT h, COUNT(*) AS n FROM t GROUP BY h ORDER BY h LIMIT 1"
        )
        for name in ("g", "h"):
            found[1].execute(
                f"CREATE VIEW {name}v AS SELECT {name}, COUNT(*) AS n FROM t GROUP BY {name}"
            )
        yield found


def written(operator: str, ways: tuple[int, int]) -> str:
    """An operator over tables that are spelled in some way."""
    (one, first), (two, second) = (
        tuple(text.format(k=key) for text in WAYS[way]) for way, key in zip(ways, "gh", strict=True)
    )
    named = ", ".join(
        text for text, name in ((first, "{G}"), (second, "{H}")) if text and name in operator
    )
    body = operator.replace("{G}", one).replace("{H}", two)
    for table in (one, two):  # a table in FROM of a SELECT needs a name where it is a sub-query
        body = body.replace(f"{table})", f"{table} AS q0)") if table.startswith("(") else body
    if body.endswith(")") and body.rsplit("FROM ", 1)[-1].startswith("("):
        body += " AS q1"
    return f"WITH {named} {body}" if named else body


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


@pytest.mark.parametrize("operator", OPERATORS)
def test_existence_is_asked_of_the_count(world: World, operator: str) -> None:
    assert differ(world, written(operator, (0, 0))) is None


@pytest.mark.parametrize("name", views())
def test_a_view_says_the_same_and_is_noted(world: World, name: str) -> None:
    assert differ(world, f"SELECT * FROM {name}") is None
    asked = NOTE in world[0].execute(views()[name]).result.notes
    assert (NOTE in world[0].execute(f"SELECT * FROM {name}").result.notes) is asked


def test_the_limit_of_a_view_is_below_the_top(world: World) -> None:
    assert differ(world, "SELECT SUM(n) AS s FROM firstv") is None


def test_spellings_of_a_table_say_the_same(world: World) -> None:
    draw = random.Random(3)
    for _ in range(effort(24)):
        sql = written(draw.choice(NEAR), (draw.randrange(6), draw.randrange(6)))
        assert differ(world, sql) is None
