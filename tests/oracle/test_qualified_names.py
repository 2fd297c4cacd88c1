"""Names with a schema and names in quotes: what DuckDB takes them for, dpsql takes them for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

ODD = ["a", "Hours per week", "SELECT", "a.b", 'naïve "x"', "main"]
CATALOG = (
    '[budget]\nepsilon = 100000\n[table.t]\nsource = "t.parquet"\nprivacy_unit = "row"\n'
    "[table.t.column]\n"
    + "".join(f"'{name}' = {{ type = \"integer\", domain = [0, {k + 1}] }}\n"
              for k, name in enumerate(ODD))
    + '[table."sales.orders"]\nsource = "orders.parquet"\nprivacy_unit = "row"\n'
    '[table."sales.orders".column]\nk = { type = "integer", domain = [0, 3] }\n'
    '[view.v]\nsql = "SELECT a, main FROM main.t WHERE a > 0"\n'
)  # fmt: skip


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


DATA: Tables = {
    "t": "SELECT "
    + ", ".join(f"(i * {k + 3} % {k + 2})::INT AS {quoted(n)}" for k, n in enumerate(ODD))
    + " FROM range(600) r(i)",
    "orders": "SELECT i % 4 AS k FROM range(50) r(i)",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("qualified")
    with zero_noise(), open_tables(folder, CATALOG, DATA) as (connection, database):
        database.execute("CREATE VIEW v AS SELECT a, main FROM main.t WHERE a > 0")
        database.execute("CREATE SCHEMA sales")
        database.execute("CREATE TABLE sales.orders AS FROM main.orders")
        yield connection, database


def statement(rng: random.Random) -> str:
    table, columns = rng.choice([("t", ODD), ("T", ODD), ('"t"', ODD), ("v", ["a", "main"])])
    schema = rng.choice(["", "main.", "MAIN.", '"main".'])
    alias = rng.choice(["", "", ' AS "odd one"', " AS x"])
    known = alias.removeprefix(" AS ") or rng.choice([table, schema + table])
    name = quoted(rng.choice(columns))
    name = rng.choice([name, name.upper() if name.isascii() else name, f"{known}.{name}"])
    test = rng.choice(["", f" WHERE {known}.{quoted(columns[0])} > 0"])
    shown = rng.choice(["", ' AS "k.1"'])
    source = f"FROM {schema}{table}{alias}{test}"
    if rng.random() < 0.2:
        inner = f"SELECT {name} AS k, COUNT(*) AS n {source} GROUP BY ALL HAVING COUNT(*) > 0"
        return f"WITH t AS ({inner}) SELECT k, SUM(n) AS s FROM t GROUP BY k ORDER BY k"
    return (
        f"SELECT {name}{shown}, COUNT(*) AS n {source} GROUP BY ALL HAVING COUNT(*) > 0 ORDER BY 1"
    )


def test_names_mean_what_they_mean_to_duckdb(world: World) -> None:
    connection, database = world
    rng = random.Random(5)
    for _ in range(60):
        sql = statement(rng)
        found = database.execute(sql)
        names, rows = [column[0] for column in found.description or ()], found.fetchall()
        cursor = connection.execute(sql)
        shown = [column[0] for column in cursor.description or ()]
        assert list(map(str.casefold, shown)) == list(map(str.casefold, names)), sql
        assert cursor.fetchall() == rows, sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM public.t",
        "SELECT COUNT(*) FROM memory.main.t",
        "SELECT public.t.a, COUNT(*) FROM t GROUP BY public.t.a",
        "SELECT k, COUNT(*) FROM sales.orders GROUP BY k",
        "SELECT orders.k, COUNT(*) FROM Sales.Orders GROUP BY orders.k",
        "SELECT sales.orders.k, COUNT(*) FROM sales.orders GROUP BY 1",
    ],
)
def test_a_catalog_has_the_names_of_a_schema_and_of_its_file(world: World, sql: str) -> None:
    connection, database = world
    plain = sql.replace("memory.main", "main").replace("public.", "main.")
    expected = sorted(database.execute(plain).fetchall())
    found = connection.execute(sql.replace("memory.", "t.")).fetchall()
    assert sorted(found) == expected


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("SELECT COUNT(*) FROM other.t", "other.t"),
        ("SELECT COUNT(*) FROM x.main.t", "x.main.t"),
        ("SELECT COUNT(*) FROM information_schema.tables", "information_schema.tables"),
        ("WITH x AS (SELECT COUNT(*) AS n FROM t) SELECT n FROM main.x", "main.x"),
        ("SELECT COUNT(*) FROM main.orders", "main.orders"),
    ],
)
def test_other_schemas_are_refused(world: World, sql: str, place: str) -> None:
    with pytest.raises(dpsql.ProgrammingError) as caught:
        world[0].execute(sql)
    error = caught.value
    assert error.code == "E_UNKNOWN_TABLE"
    assert error.span is not None
    assert error.span.text[error.span.start : error.span.end] == place


def test_describe_takes_them_too(world: World) -> None:
    connection, _ = world
    rows = connection.execute("DESCRIBE t").fetchall()
    for name in ("main.t", "public.T", "t.main.t", '"main"."t"'):
        assert connection.execute(f"DESCRIBE {name}").fetchall() == rows
    assert len(connection.execute("DESCRIBE sales.orders").fetchall()) == 1
    for wrong in ("DESCRIBE other.t", "DESCRIBE main.", "DESCRIBE main t"):
        with pytest.raises(dpsql.Error):
            connection.execute(wrong)


def test_scripts_and_creations_take_them(tmp_path: Path) -> None:
    with open_tables(tmp_path, CATALOG, DATA) as (connection, _):
        cursor = connection.executescript(
            "SET epsilon = 1; SELECT COUNT(*) FROM main.t; SELECT main.v.a, COUNT(*) FROM main.v"
            " GROUP BY 1"
        )
        assert cursor.nextset()
