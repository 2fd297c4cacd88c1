"""Differential oracle for CTEs, views, sub-queries, joins and set operations, without noise.

Every group of the data has rows, so that answers equal DuckDB's own row by row.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 1000
delta = 1e-4

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 5] }
b = { type = "text", domain = ["x", "y"], null = true }
c = { type = "boolean", domain = [false, true] }
m = { type = "integer", bounds = [0, 8] }

[table.bands]
source = "bands.parquet"
public = true

[table.bands.column]
lo = { type = "integer" }
hi = { type = "integer" }
name = { type = "text" }

[view.old]
sql = "SELECT a // 2 AS pair, b, c AS flag, m FROM t WHERE a > 1"

[view.flags]
sql = "SELECT flag, COUNT(*) AS n FROM old GROUP BY flag"
"""
NOISES = ("laplace", "gaussian", "auto")
PER_A = "SELECT a, COUNT(*) AS n FROM t GROUP BY a"
PER_AC = "SELECT a, c, COUNT(*) AS n FROM t GROUP BY a, c"

STATEMENTS = [
    # inlined
    "WITH x AS (SELECT a // 2 AS g, b FROM t WHERE a > 2) SELECT g, COUNT(*) FROM x GROUP BY g",
    "SELECT k, COUNT(*) AS n FROM (SELECT a // 2 AS k, c FROM (SELECT a, c FROM t WHERE b = 'x') q"
    " WHERE a < 5) AS z WHERE k > 0 GROUP BY k ORDER BY n DESC, k",
    "SELECT p, COUNT(*) FROM (SELECT a, b FROM t) AS s(p, q) WHERE q = 'y' GROUP BY p",
    "SELECT pair, COUNT(*), SUM(m) FROM old GROUP BY pair",
    "SELECT OLD.Pair, COUNT(*) FROM old WHERE flag GROUP BY old.pair",
    "WITH x AS (SELECT * FROM t WHERE c) SELECT b, COUNT(*) FROM x GROUP BY b",
    "WITH x(g, h) AS (SELECT a, b FROM t) SELECT g, COUNT(h) FROM x GROUP BY g",
    "WITH x AS (SELECT a + 1 AS b, b AS a FROM t) SELECT b, COUNT(a) FROM x GROUP BY b ORDER BY b",
    "WITH x AS (SELECT a + 1 AS c FROM t) SELECT c AS a, COUNT(*) FROM x GROUP BY c"
    " ORDER BY a DESC",
    "WITH t AS (SELECT a FROM t WHERE c) SELECT COUNT(*) FROM t",
    "WITH x AS (SELECT a, m * 2 AS mm, b || '!' AS z FROM t) SELECT a, SUM(mm), AVG(mm) FROM x"
    " GROUP BY a",
    "WITH x AS (SELECT a FROM t), y AS (SELECT a + 1 AS a FROM x), z AS (SELECT a * 2 AS a FROM y)"
    " SELECT a, COUNT(*) FROM z GROUP BY a",
    "WITH x AS (SELECT CASE WHEN a < 2 THEN 'lo' ELSE 'hi' END AS g, c FROM t) SELECT g,"
    " COUNT(*) FILTER (WHERE c), COUNT(*) AS n FROM x GROUP BY g HAVING n > 1 ORDER BY n",
    "SELECT COUNT(*) FROM t WHERE a IN (SELECT lo FROM bands)",
    "SELECT COUNT(*) FROM t WHERE a NOT IN (SELECT lo FROM bands WHERE lo > 0)",
    "SELECT name, COUNT(*) FROM (SELECT a AS z FROM t WHERE c) q JOIN bands ON z BETWEEN lo AND hi"
    " GROUP BY name",
    "SELECT name, COUNT(*) FROM (SELECT a, name FROM t LEFT JOIN bands ON a = lo) q GROUP BY name",
    "SELECT AVG(v.y), STDDEV_POP(v.y) FROM t JOIN (VALUES (1, 70), (2, 900)) v(k, y) ON t.a = v.k",
    "SELECT name, COUNT(*) FROM bands JOIN (SELECT a, c FROM t) q ON q.a = bands.lo WHERE c"
    " GROUP BY name",
    "SELECT lo, COUNT(*) FROM t JOIN (SELECT lo, hi FROM bands WHERE lo > 0) b"
    " ON t.a BETWEEN b.lo AND b.hi GROUP BY lo",
    "SELECT pair, flag, COUNT(*) FROM old GROUP BY CUBE (pair, flag)",
    "SELECT COUNT(*) FROM (SELECT a FROM t ORDER BY b) q",
    "SELECT COUNT(*) FROM (t) q WHERE q.a = 1",
    "SELECT COUNT(*) FROM (SELECT a, b FROM t WHERE c) x WHERE x.a = 3 OR x.b = 'x'",
    "WITH x AS (SELECT a, c, name FROM t JOIN bands ON a = lo) SELECT x.name, v.y, COUNT(*) FROM x"
    " JOIN (VALUES (true, 'T'), (false, 'F')) v(f, y) ON x.c = v.f GROUP BY x.name, v.y",
    "WITH x AS (SELECT a AS lo, b FROM t) SELECT name, COUNT(*) FROM x JOIN bands USING (lo)"
    " GROUP BY name",
    "WITH x AS (SELECT a AS lo, b FROM t) SELECT lo, COUNT(*) FROM bands JOIN x USING (lo)"
    " GROUP BY lo",
    # the outer shell
    "SELECT * FROM flags",
    "SELECT flag, n * 2 FROM flags WHERE NOT flag",
    "SELECT COUNT(*) FROM t UNION ALL SELECT COUNT(*) FROM t",
    "SELECT b, COUNT(*) AS n FROM t GROUP BY b UNION ALL SELECT 'all', COUNT(*) FROM t",
    f"SELECT AVG(n), MAX(n), MIN(n), COUNT(*), MEDIAN(n), STDDEV(n) FROM ({PER_A}) q",
    f"WITH x AS ({PER_AC}) SELECT a, SUM(n) AS s FROM x GROUP BY a HAVING s > 3 ORDER BY s DESC, a"
    " LIMIT 3",
    f"WITH x AS ({PER_A}), y AS (SELECT a, COUNT(*) AS k FROM t WHERE c GROUP BY a)"
    " SELECT x.a, n, k, 1.0 * k / n AS share FROM x JOIN y ON x.a = y.a",
    f"WITH x AS ({PER_A}) SELECT * FROM x LEFT JOIN (SELECT a, COUNT(*) AS k FROM t WHERE a > 2"
    " GROUP BY a) y USING (a) ORDER BY a",
    f"WITH x AS ({PER_A}) SELECT a, n, k FROM x FULL JOIN (SELECT a + 2 AS a, COUNT(*) AS k FROM t"
    " GROUP BY 1) y USING (a) ORDER BY a",
    f"WITH x AS ({PER_A}) SELECT * FROM x RIGHT JOIN bands ON a = lo ORDER BY lo, hi",
    f"WITH x AS ({PER_A}) SELECT p.a, q.a, p.n + q.n FROM x p, x q WHERE p.a < q.a",
    "SELECT b, COUNT(*) AS n, COUNT(*) / (SELECT COUNT(*) FROM t) AS share FROM t GROUP BY b",
    f"WITH x AS ({PER_A}) SELECT a, n FROM x WHERE n > (SELECT AVG(n) FROM x)",
    f"WITH x AS ({PER_A}) SELECT a, n FROM x WHERE a IN (SELECT lo FROM bands)",
    f"WITH x AS ({PER_A}) SELECT a, n, a NOT IN (SELECT hi FROM bands) FROM x",
    f"WITH x AS ({PER_A}) SELECT a, EXISTS (SELECT 1 FROM bands WHERE lo = 8) AS e FROM x",
    f"SELECT name, n FROM ({PER_A}) q JOIN bands ON q.a = bands.lo",
    f"SELECT a, n, SUM(n) OVER (ORDER BY a) AS cum, rank() OVER (ORDER BY n DESC) AS r,"
    f" n - lag(n) OVER (ORDER BY a) AS step FROM ({PER_A}) q ORDER BY a",
    f"SELECT a, n FROM ({PER_A}) q QUALIFY row_number() OVER (ORDER BY n DESC, a) <= 2",
    f"SELECT c, SUM(n) AS s, SUM(SUM(n)) OVER (ORDER BY c) FROM ({PER_AC}) q GROUP BY c ORDER BY c",
    f"SELECT a FROM ({PER_A}) q WHERE n > 2 INTERSECT SELECT lo FROM bands",
    f"SELECT a FROM ({PER_A}) q EXCEPT SELECT lo FROM bands ORDER BY 1 DESC LIMIT 3",
    f"SELECT a FROM ({PER_A}) q UNION SELECT hi FROM bands",
    f"SELECT DISTINCT a // 2 AS h FROM ({PER_A}) q ORDER BY h DESC",
    "(SELECT b, COUNT(*) AS n FROM t GROUP BY b ORDER BY n LIMIT 2) UNION ALL"
    " (SELECT 'z', COUNT(*) FROM t WHERE c) ORDER BY n DESC",
    f"WITH x AS ({PER_A}) SELECT CASE WHEN a > 3 THEN 'big' ELSE 'small' END AS size,"
    " COUNT(*) AS k, SUM(n) FILTER (WHERE a > 2), COUNT(DISTINCT a // 2) FROM x"
    " GROUP BY size ORDER BY size",
    "SELECT (SELECT COUNT(*) FROM t WHERE c) AS yes, (SELECT COUNT(*) FROM t) AS whole",
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING COUNT(*) > (SELECT COUNT(*) / 8 FROM t)"
    " ORDER BY n DESC, a",
    "SELECT x.a, y, n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) x"
    " JOIN (VALUES (1, 'one'), (2, 'two')) v(i, y) ON x.a = v.i",
    f"WITH x AS ({PER_A}), y AS (SELECT SUM(n) AS s FROM x) SELECT a, n / s FROM x, y",
    f"WITH x AS ({PER_A}) SELECT a FROM x WHERE n > 0 ORDER BY n DESC, a LIMIT 2 OFFSET 1",
    f"SELECT q.* FROM ({PER_A}) q WHERE n BETWEEN 0 AND 1000",
    "SELECT pair, n, (SELECT SUM(n) FROM flags) AS s FROM"
    " (SELECT pair, COUNT(*) AS n FROM old GROUP BY pair) z",
]


def write_world(folder: Path) -> duckdb.DuckDBPyConnection:
    rng = random.Random(11)
    cells = list(itertools.product(range(6), ("x", "y", None), (False, True)))
    rows = [(*cell, rng.randrange(9)) for cell in cells for _ in range(rng.randrange(1, 9))]
    database = duckdb.connect()
    database.execute("CREATE TABLE t (a BIGINT, b VARCHAR, c BOOLEAN, m BIGINT)")
    database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    database.execute("CREATE TABLE bands (lo BIGINT, hi BIGINT, name VARCHAR)")
    bands = [(0, 1, "low"), (2, 5, "mid"), (2, 9, "wide"), (8, 9, "none")]
    database.executemany("INSERT INTO bands VALUES (?, ?, ?)", bands)
    for name in ("t", "bands"):
        database.execute(f"COPY {name} TO '{folder / name}.parquet'")
    database.execute("CREATE VIEW old AS SELECT a // 2 AS pair, b, c AS flag, m FROM t WHERE a > 1")
    database.execute("CREATE VIEW flags AS SELECT flag, COUNT(*) AS n FROM old GROUP BY flag")
    (folder / "t.toml").write_text(CATALOG)
    return database


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Connection, duckdb.DuckDBPyConnection]]:
    folder = tmp_path_factory.mktemp("shapes")
    database = write_world(folder)
    with (
        pytest.MonkeyPatch.context() as patch,
        zero_noise(),
        dpsql.connect(folder / "t.toml", epsilon=1) as connection,
    ):
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield connection, database


@pytest.mark.parametrize("sql", STATEMENTS)
def test_shapes_equal_the_databases_own(
    world: tuple[Connection, duckdb.DuckDBPyConnection], sql: str
) -> None:
    connection, database = world
    noise = NOISES[STATEMENTS.index(sql) % len(NOISES)]
    result = connection.execute(sql, noise=noise, delta=1e-9).result
    found = [tuple(map(settle, row)) for row in result.rows]
    expected = [tuple(map(settle, row)) for row in database.execute(sql).fetchall()]
    if "ORDER BY" not in sql.rpartition(")")[2]:
        found, expected = sorted(found, key=repr), sorted(expected, key=repr)
    assert found == expected


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "auto"])
def test_a_joint_workload_gives_the_same_answers(tmp_path: Path, noise: str) -> None:
    database = write_world(tmp_path)
    chosen = STATEMENTS[::6]
    with zero_noise(), dpsql.connect(tmp_path / "t.toml", epsilon=1, delta=1e-9) as connection:
        connection.execute(f"SET noise = {noise}")
        cursor = connection.executescript(";\n".join(chosen))
        for sql in chosen:
            found = sorted((tuple(map(settle, row)) for row in cursor.result.rows), key=repr)
            rows = database.execute(sql).fetchall()
            assert found == sorted((tuple(map(settle, row)) for row in rows), key=repr), sql
            cursor.nextset()
        assert connection.budget.entries == 1


def settle(value: Any) -> Any:
    if value is None or isinstance(value, bool | str | dt.date):
        return value
    return round(float(value), 4) + 0.0
