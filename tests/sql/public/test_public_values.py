"""Extremes of public columns: those of DuckDB where public rows decide them, refused elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.seam import zero_noise
from tests.support.tables import write_tables

CATALOG = """
[budget]
epsilon = 1000
[table.visits]
source = "visits.parquet"
privacy_unit = "row"
[table.visits.column]
ward = { type = "text", domain = ["eye", "ear", "lost"] }
[table.wards]
source = "wards.parquet"
public = true
[table.wards.column]
ward = { type = "text" }
floor = { type = "integer" }
beds = { type = "integer" }
"""
ROWS = {
    "visits": "SELECT unnest(['eye', 'eye', 'ear', 'lost']) AS ward",
    "wards": "SELECT * FROM (VALUES ('eye', 1, 30), ('ear', 1, 20), ('toe', 2, 9))"
    " AS w(ward, floor, beds)",
}
SOURCES = (
    "wards",
    "(SELECT * FROM wards WHERE beds > 1)",
    "(SELECT ward, floor, MAX(beds) AS beds FROM wards GROUP BY ward, floor)",
    "named",
)
WITH = "WITH named AS (SELECT beds, ward, floor FROM wards) "
KEPT = (
    "{s} w LEFT JOIN visits v ON v.ward = w.ward",
    "visits v RIGHT JOIN {s} w USING (ward)",
    "{s} w CROSS JOIN visits v",
)
GROUPED = (
    ("", ""),
    ("w.floor, MIN(w.beds + 1) AS lo, ", " GROUP BY w.floor HAVING MIN(w.beds + 1) > 2 ORDER BY 1"),
    ("floor % 2 AS k, ", " GROUP BY k ORDER BY k"),
)
DECIDED = (
    "SELECT v.ward, {a}(w.beds) AS b, COUNT(*) AS n FROM visits v JOIN {s} w ON v.ward = w.ward"
    " AND w.floor = 1 GROUP BY v.ward, w.floor ORDER BY 1",
    "SELECT ward, COUNT(*) AS n, {a}(floor + beds) AS b FROM visits v JOIN {s} w USING (ward)"
    " GROUP BY w.floor, ALL_KEYS ORDER BY 1",
    "SELECT v.ward AS k, {a}(w.beds), w.floor AS f, COUNT(*) AS n FROM visits v LEFT JOIN {s} w"
    " ON v.ward = w.ward GROUP BY k, f ORDER BY k",
    "SELECT {a}(w.beds) AS b, w.floor, w.ward, COUNT(*) AS n FROM visits v, {s} w"
    " WHERE v.ward = w.ward GROUP BY ALL ORDER BY w.ward",
    "SELECT MAX(w.beds), MIN(w.beds) AS b, COUNT(*) AS n FROM visits v CROSS JOIN {s} w",
    "SELECT {a}(w.beds) AS b, COUNT(v.ward) AS n FROM {s} w LEFT JOIN visits v ON v.ward = w.ward",
    "SELECT COUNT(v.ward) AS k, (SELECT COUNT(*) FROM visits) + {a}(beds) AS n FROM {s} w"
    " LEFT JOIN visits v ON v.ward = w.ward",
    "SELECT MAX(w.beds), MIN(beds + 1) AS b FROM {s} w LEFT JOIN visits v ON v.ward = w.ward",
)
BOTH = (
    "SELECT {a}(w.beds) AS b FROM {s} w FULL JOIN visits v ON v.ward = w.ward",
    "SELECT {a}(w.beds + 1) AS b FROM visits v FULL JOIN {s} w USING (ward) WHERE w.floor = 1",
    "SELECT {a}(w.beds) AS b FROM visits v FULL JOIN {s} w USING (ward) LEFT JOIN wards x"
    " ON x.ward = v.ward AND x.floor = 7",
)
"""Joins in which public rows stay, and private ones, too: extremes alone."""
WHOLE = [
    f"SELECT {keys}COUNT(v.ward) AS n, {{a}}(w.beds) AS b FROM {join}{where}{group}"
    for join in KEPT
    for where in ("", " WHERE w.floor = 1", " WHERE w.beds > 9 AND 1 < w.floor + 1")
    for keys, group in GROUPED
]
OPEN = (
    "SELECT {a}(w.beds) AS b, COUNT(*) AS n FROM visits v JOIN {s} w ON v.ward = w.ward",
    "SELECT w.floor, {a}(w.beds) AS b FROM visits v JOIN {s} w ON v.ward = w.ward GROUP BY w.floor",
    "SELECT w.ward, {a}(u.beds) AS b, COUNT(*) AS n FROM visits v LEFT JOIN {s} w"
    " ON v.ward = w.ward AND w.floor = 2 JOIN wards u ON u.ward = v.ward GROUP BY w.ward",
    "SELECT {a}(w.beds) AS b FROM visits v CROSS JOIN {s} w WHERE v.ward = w.ward",
    "SELECT {a}(w.beds) AS b, COUNT(v.ward) AS n FROM {s} w LEFT JOIN visits v ON v.ward = w.ward"
    " WHERE v.ward = 'eye' AND w.floor = 1",
    "SELECT w.floor, {a}(w.beds) AS b, COUNT(v.ward) AS n FROM visits v RIGHT JOIN {s} w"
    " USING (ward) WHERE v.ward <> 'eye' GROUP BY w.floor",
)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("public")
    write_tables(folder, CATALOG, ROWS).close()
    with zero_noise(), dpsql.connect(folder / "t.toml", epsilon=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        for name, rows in ROWS.items():
            made.execute(f"CREATE TABLE {name} AS {rows}")
        yield made


def spelled(form: str, source: str, called: str) -> str:
    sql = form.format(a=called, s=source).replace("ALL_KEYS", "ward")
    return (WITH if source == "named" else "") + sql


@pytest.mark.parametrize(
    ("form", "source"),
    [*product((*DECIDED, *BOTH), SOURCES), *zip(WHOLE, cycle(SOURCES), strict=False)],
)
def test_what_public_rows_decide_is_answered(
    connection: Connection, database: duckdb.DuckDBPyConnection, form: str, source: str
) -> None:
    sql = spelled(form, source, ("MAX", "MIN", "ANY_VALUE")[SOURCES.index(source) % 3])
    assert "synthetic" not in str(connection.explain(sql))
    found = connection.execute(sql)
    expected = database.execute(sql)
    assert [each[0] for each in found.description or ()] == [
        each[0] for each in expected.description
    ]
    rows = [row for row in found.fetchall() if row[-1] != 0]  # declared groups without rows
    assert rows == expected.fetchall()


SETS = ("ROLLUP (w.floor)", "CUBE (w.floor, w.ward)", "GROUPING SETS ((w.floor), ())")
UNANSWERED = [
    *((f"SELECT w.floor, {{a}}(w.beds), COUNT(v.ward) FROM {join} GROUP BY {sets}",
       "by several sets of keys") for join in KEPT[:2] for sets in SETS),
    *((f"SELECT {{a}}({of}) AS b FROM {{s}} w FULL JOIN visits v USING (ward){rest}",
       "rows of either side") for of, rest in
      (("ward", ""), ("v.ward", ""), ("w.beds", " GROUP BY w.floor"))),
    ("SELECT {a}(w.beds) AS b, COUNT(v.ward) AS n FROM {s} w FULL JOIN visits v USING (ward)",
     "rows of either side"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "reason"), UNANSWERED)
def test_what_is_refused_beside_has_a_reason_of_its_own(
    connection: Connection, form: str, reason: str
) -> None:
    with pytest.raises(dpsql.NotSupportedError, match=reason):
        connection.execute(spelled(form, "wards", "MAX"))


@pytest.mark.parametrize(("form", "called"), [*product(OPEN, ("MAX", "MIN", "ANY_VALUE"))])
def test_what_private_rows_decide_is_refused(
    connection: Connection, form: str, called: str
) -> None:
    with pytest.raises(dpsql.NotSupportedError) as caught:
        connection.execute(spelled(form, "wards", called))
    assert "one row decides it" in str(caught.value.hint)
