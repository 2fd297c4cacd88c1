"""A table with every kind of column, its declared view in DuckDB, and how answers are compared."""

from __future__ import annotations

import datetime as dt
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from hypothesis import strategies as st

import dpsql
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from dpsql.plan.target import find_views
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.support.statements import Statement
from tests.support.tables import BANDS, write_tables

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 7] }
b = { type = "text", domain = ["x", "y", "", "it's"], other = "rest", null = true }
c = { type = "boolean", domain = [false, true], null = true }
d = { type = "date", domain = ["2023-11-15", "2024-03-02"], by = "month", null = true }
e = { type = "integer", domain = [-2, 4], null = true }
n = { type = "number", bins = [-1.5, 0, 2, 10] }
w = { type = "number", bins = [-2, 0, 10], null = true }
m = { type = "number", bounds = [-5, 20], null = true }
q = { type = "integer", bounds = [0, 100], null = true }
r = { type = "number", bounds = [0, 2] }

[table.bands]
source = "bands.parquet"
public = true

[table.bands.column]
lo = { type = "integer" }
hi = { type = "integer" }
name = { type = "text" }
"""

VIEW = """
CREATE OR REPLACE VIEW t AS
SELECT a,
       CASE WHEN b IS NULL OR b IN ('x', 'y', '', 'it''s') THEN b ELSE 'rest' END AS b,
       c,
       CAST(date_trunc('month', d) AS DATE) AS d,
       e,
       CASE WHEN n < 0 THEN -1.5 WHEN n < 2 THEN 0.0 ELSE 2.0 END AS n,
       CASE WHEN NOT isnan(w) THEN w END AS w,
       CASE WHEN NOT isnan(m) THEN least(greatest(m, -5), 20) END AS m,
       CASE WHEN q IS NOT NULL THEN least(greatest(q, 0), 100) END AS q,
       least(greatest(r, 0), 2) AS r
FROM raw
"""

INSIDE = {
    "a": "a BETWEEN 0 AND 7",
    "d": "(d IS NULL OR d BETWEEN DATE '2023-11-01' AND DATE '2024-03-31')",
    "e": "(e IS NULL OR e BETWEEN -2 AND 4)",
    "n": "n BETWEEN -1.5 AND 10 AND NOT isnan(n)",
    "w": "(w IS NULL OR isnan(w) OR w BETWEEN -2 AND 10)",
    "r": "r IS NOT NULL AND NOT isnan(r)",
}
"""When a row of ``t`` is inside the view of a column; the others take every row."""

KINDS = (
    "a BIGINT, b VARCHAR, c BOOLEAN, d DATE, e BIGINT, n DOUBLE, w DOUBLE, m DOUBLE, q BIGINT,"
    " r DOUBLE"
)
_WILD = [math.nan, math.inf, -math.inf, None]
_DAYS = [dt.date(2023, 10, 31), dt.date(2023, 11, 2), dt.date(2024, 1, 31), dt.date(2024, 2, 29)]

VALUES: list[list[Any]] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 3, 3, -5, 8, 2**40, None],
    ["x", "y", "", "it's", "X", "rest", "zz", "x ", None],
    [True, False, None],
    [*_DAYS, dt.date(2024, 3, 31), dt.date(2024, 4, 1), None],
    [-2, 0, 1, 2, 4, 4, 5, None],
    [-1.5, -0.5, 0.0, 1.0, 2.0, 9.99, 10.0, 10.1, *_WILD],
    [-2.0, -0.25, 0.0, 3.7, 10.0, 11.0, *_WILD],
    [-7.0, -5.0, 0.0, 0.25, 3.5, 20.0, 25.0, *_WILD],
    [0, 1, 5, 50, 100, 101, -4, 2**40, None],
    [0.0, 0.1, 1.0, 1.99, 2.0, 7.0, -1.0, *_WILD],
]
"""What is drawn for every column: values, values outside, NULL, NaN and infinities."""

ROWS = st.lists(st.tuples(*map(st.sampled_from, VALUES)), max_size=60)


ROOT = Path(__file__).parents[2]
VISITS = """
[table.visits]
source = "visits.parquet"
privacy_unit = { column = "person_id", max_rows = 3 }

[table.visits.column]
ward = { type = "text", domain = ["A", "B", "C"] }
cost = { type = "number", bounds = [0, 100] }
notes = { type = "text" }
"""


@contextmanager
def open_world(
    folder: Path, rows: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[Connection, duckdb.DuckDBPyConnection]]:
    """A connection to ``t``, ``bands``, Adult and ``visits``, and DuckDB's views of them."""
    database = write_world(folder, rows)
    demo = ROOT / "demo_data"
    text = (demo / "adult.toml").read_text("utf-8")
    catalog = CATALOG + text[text.index("[table.adult]") :] + VISITS
    (folder / "t.toml").write_text(catalog, encoding="utf-8")
    shutil.copy(demo / "adult.parquet", folder)
    database.execute(f"CREATE VIEW adult AS FROM '{demo / 'adult.parquet'}'")
    database.execute(
        "CREATE TABLE visits AS SELECT 'p' || i // 2 AS person_id, ['A', 'B', 'C'][i % 3 + 1] AS"
        " ward, CAST(i % 50 AS DOUBLE) AS cost, 'x' AS notes FROM range(60) v(i)"
    )
    database.execute(f"COPY visits TO '{folder / 'visits.parquet'}'")
    with dpsql.connect(folder / "t.toml", epsilon=1) as connection:
        yield connection, database
    database.close()


def write_world(
    folder: Path, rows: Sequence[tuple[Any, ...]], catalog: str = CATALOG, kinds: str = KINDS
) -> duckdb.DuckDBPyConnection:
    """Write the sources and the catalog; return a database with the declared view."""
    database = write_tables(folder, catalog, {"t": (kinds, rows), "bands": BANDS})
    database.execute("ALTER TABLE t RENAME TO raw")
    declare_view(database, INSIDE)
    return database


def declare_view(
    database: duckdb.DuckDBPyConnection,
    columns: Iterable[str],
    unit: str | None = None,
    most: int = 1,
) -> None:
    """Let ``t`` be the declared view of some columns, with at most so many rows of a unit."""
    tests = [INSIDE[name] for name in columns if name in INSIDE]
    if unit is None:
        database.execute(f"{VIEW} WHERE {' AND '.join([*tests, 'TRUE'])}")
        return
    view = VIEW.replace("SELECT a,", f"SELECT {unit}, a,")
    kept = f"row_number() OVER (PARTITION BY {unit}) <= {most}"
    tests.append(f"{unit} IS NOT NULL")
    database.execute(f"{view} WHERE {' AND '.join(tests)} QUALIFY {kept}")


def mentioned(connection: Connection, *statements: str) -> tuple[str, ...]:
    """The columns of ``t`` that statements mention together."""
    parsed = [parse(split_statements(sql)[0]) for sql in statements]
    view = find_views(connection.engine.compile(parsed)).get("t")
    return () if view is None else view.columns


def compare(
    statement: Statement,
    result: Result,
    database: duckdb.DuckDBPyConnection,
    rows: int,
) -> None:
    """Every row of DuckDB's is there; what is there beside them counts nothing."""
    exact = statement.exact or statement.sql
    expected = [tuple(map(settle, row)) for row in database.execute(exact).fetchall()]
    found = [tuple(map(settle, row)) for row in result.rows]
    about = f"{statement.sql}\nfound    {found[:12]}\nexpected {expected[:12]}"
    if statement.ordered:
        assert len(found) == len(expected), about
        pairs = list(zip(found, expected, strict=True))
        for one, two in pairs:
            assert alike(statement, one, two, rows), about
        return
    keys = statement.keys
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in found:
        groups.setdefault(row[:keys], []).append(row)
    for row in expected:
        fitting = [r for r in groups.get(row[:keys], ()) if alike(statement, r, row, rows)]
        assert fitting, f"{row}\n{about}"
        groups[row[:keys]].remove(fitting[0])
    rest = [row for left in groups.values() for row in left]
    if "HAVING" in statement.sql:
        assert not rest, about
    for row in rest if statement.whole else ():
        for column in range(keys, len(row)):
            kind = statement.measured[column - keys].kind
            assert _is_nothing(row[column], None, kind), f"{row}\n{about}"


def alike(statement: Statement, one: tuple[Any, ...], two: tuple[Any, ...], rows: int) -> bool:
    """Whether two rows agree: keys exactly, numbers up to rounding."""
    keys = statement.keys
    if one[:keys] != two[:keys]:
        return False
    for column in range(keys, len(two)):
        left, right = one[column], two[column]
        if isinstance(left, tuple) and isinstance(right, tuple):
            if len(left) != len(right) or not all(map(_is_near, left, right)):
                return False
            continue
        if left is None or right is None or isinstance(left, str | dt.date):
            if not _is_nothing(left, right, statement.measured[column - keys].kind):
                return False
            continue
        error = statement.tolerance(rows, column) + 1e-7 * (1 + abs(right))
        kind = statement.measured[column - keys].kind
        if kind == "root":
            left, right = left * left, right * right
        if abs(left - right) > error:
            return False
    return True


def _is_near(one: Any, two: Any) -> bool:
    """Whether elements of lists agree."""
    numbers = isinstance(one, float) and isinstance(two, float)
    return math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-6) if numbers else one == two


def _is_nothing(found: Any, expected: Any, kind: str) -> bool:
    """Whether one is NULL as the other is; a sum of nothing may be 0, and a ratio anything."""
    if found == expected or (expected is None and kind != "sum"):
        return True
    if isinstance(found, tuple):
        return expected is None and not any(found)
    return None in (found, expected) and all(abs(v or 0) <= 1e-6 for v in (found, expected))


def settle(value: Any) -> Any:
    """Numbers as floats, times as days, lists as tuples; not a number is NULL."""
    if isinstance(value, list):
        return tuple(map(settle, value))
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    return None if math.isnan(value) else float(value) + 0.0
