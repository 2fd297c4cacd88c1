"""Every function in every signature, of extreme values: answered or refused, never a defect.

Functions are those that DuckDB lists and those that PostgreSQL lists, with their types, and those
that the parser knows of either, with up to four arguments of any type. PostgreSQL's are in
``functions_of_postgresql.txt``: the functions and operators of ``pg_proc`` and ``pg_operator`` of
PostgreSQL 16.2 that statements can call, one a line, each with the kinds of its arguments.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from sqlglot.dialects import DuckDB, Postgres

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.effort import effort, first_seed
from tests.support.oracle import VALUES, open_world

STATEMENTS = effort(150)
SEED = first_seed(8)

NUMBERS = ("0", "1", "-1", "2.5", "1e-300", "-1e-300", "1e300", "9" * 38, "0.1", "NULL")
EXTREMES: dict[str, tuple[str, ...]] = {
    "number": (*NUMBERS, "1e400", "'NaN'::DOUBLE", "'inf'::DOUBLE", "9223372036854775807"),
    "text": ("''", "'x'", "'%'", "'\\'", "'(['", f"'{'x' * 4000}'", "'é\u0301'", "NULL"),
    "date": (
        *("DATE '2024-02-29'", "DATE '0001-01-01'", "DATE '9999-12-31'", "DATE 'infinity'"),
        *("TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '294247-01-10 04:00:54'", "NULL"),
        *("INTERVAL 1 DAY", "INTERVAL 9999999 YEAR", "DATE '9999-99-99'"),
    ),
    "truth": ("TRUE", "FALSE", "NULL"),
    "list": ("[]", "[1, 5]", "[NULL]", "['x']", "ARRAY[1]", "[[1]]", "ARRAY[]::INTEGER[]"),
    "other": (
        *("'{}'::JSON", "'[1, 2'::jsonb", "'[1,5)'::int4range", "POINT '(1,2)'", "'1.2.3.4'::inet"),
        *("'\\x00'::bytea", "B'101'", "X'1F'", "ROW(1, 'x')", "'$.a'::jsonpath", "'x'::tsquery"),
        *("'00000000-0000-0000-0000-000000000000'::UUID", "{'a': 1}", "MAP {'a': 1}", "t"),
    ),
}
COLUMNS = {"number": ("a", "e", "m"), "text": ("b",), "date": ("d",), "truth": ("c",)}
PLACES = (
    "SELECT SUM({}) FROM t",
    "SELECT SUM(m * {}) FROM t",
    "SELECT AVG({}) FROM t",
    "SELECT COUNT(*) FROM t WHERE {}",
    "SELECT COUNT(*) FROM t WHERE {} = 1",
    "SELECT {}, COUNT(*) FROM t GROUP BY 1",
    "SELECT MEDIAN({}) FROM t",
    "SELECT VAR_POP({}) FROM t",
    "SELECT COUNT(DISTINCT {}) FROM t",
    "SELECT a, COUNT(*) FROM t GROUP BY a HAVING {} > 0",
    "SELECT {} FROM t",
    "SELECT {} OVER (ORDER BY a) FROM t GROUP BY a",
)
OPERATORS = ("{} + {}", "{} - {}", "{} * {}", "{} / {}", "{} // {}", "{} % {}", "{} ** {}", "-{}")
CASTS = ("CAST({} AS DOUBLE)", "CAST({} AS INTEGER)", "TRY_CAST({} AS DATE)", "{}::DECIMAL(38, 37)")
AGGREGATES = (
    "SUM",
    "AVG",
    "COUNT",
    "VAR_POP",
    "STDDEV",
    "MEDIAN",
    "MODE",
    "MIN",
    "ENTROPY",
    "CORR",
)
TAILS = (
    *(f"{{}}, contribution_bounds_per_{each} => ({{}}, {{}}))" for each in ("group", "row")),
    "{}, 0.5, contribution_bounds_per_row => ({}, {}))",
    "DISTINCT {}, contribution_bounds_per_group => ({}, {}))",
    *("{}, report_format => 'JSON')", "*, report_format => 'JSON')", "{} ORDER BY {})"),
    *("{}) FILTER (WHERE {})", "{}) WITHIN GROUP (ORDER BY {})", "DISTINCT {}, {})"),
    *("{}).x", "{})[{}]", "COLUMNS({}))", "({}, {}))"),
    "{}) OVER (PARTITION BY {} ORDER BY {} ROWS BETWEEN {} PRECEDING AND {} FOLLOWING)",
    "{}) OVER (ORDER BY {} RANGE {} PRECEDING EXCLUDE TIES)",
)
"""Texts that follow the name of an aggregate in forms that no list of functions has."""

Signature = tuple[str, tuple[str, ...]]
"""How a function is written, with places for its arguments, and the kinds of these."""


def kind_of(type_name: str) -> str:
    """The kind of values of a type of DuckDB."""
    name = type_name.upper()
    if name.endswith("]"):
        return "list"
    if name.startswith(("VARCHAR", "BLOB", "BIT", "JSON")):
        return "text"
    if name.startswith(("DATE", "TIME", "INTERVAL")):
        return "date"
    return {"BOOLEAN": "truth", "ANY": "any"}.get(name, "number")


def signatures() -> list[Signature]:
    """Every function in every form."""
    found: dict[Signature, None] = {}
    catalogue = (
        "SELECT DISTINCT function_name, parameter_types FROM duckdb_functions()"
        " WHERE function_type IN ('scalar', 'aggregate', 'macro') ORDER BY ALL"
    )
    with closing(duckdb.connect()) as database:
        for name, types in database.execute(catalogue).fetchall():
            if str(name).isidentifier() and not str(name).startswith("__"):
                of = tuple(kind_of(str(each or "ANY")) for each in types)
                found[written(name, len(of)), of] = None
    listed = Path(__file__).with_name("functions_of_postgresql.txt").read_text("ascii")
    for name, *kinds in map(str.split, listed.splitlines()):
        found[written(name, len(kinds)), tuple(kinds)] = None
    for dialect in (DuckDB, Postgres):
        for name in sorted(dialect.Parser.FUNCTIONS):
            for count in range(5):
                found[written(name, count), ("any",) * count] = None
    for operator in (*OPERATORS, *CASTS):
        found[operator, ("any",) * operator.count("{}")] = None
    return list(found)


def forms() -> list[Signature]:
    """Every aggregate with all that may stand within it or behind it."""
    written = [f"{name}({tail}" for name in AGGREGATES for tail in TAILS]
    written += [f"{name}({tail})" for name in ("DP_STDDEV", "DP_REPORT") for tail in written[::7]]
    return [(each, ("any",) * each.count("{}")) for each in written]


def written(name: str, count: int) -> str:
    """A call with so many places, or an operator between them."""
    if not name.isidentifier():
        return f"{{}} {name} {{}}" if count == 2 else f"{name} {{}}"
    return f"{name}({', '.join(['{}'] * count)})"


def argument(kind: str, rng: random.Random, inner: int) -> str:
    """A column, an extreme value, or an aggregate of a column."""
    kind = rng.choice(list(EXTREMES)) if kind == "any" or rng.random() < 0.1 else kind
    if kind in COLUMNS and rng.random() < 0.45:
        column = rng.choice(COLUMNS[kind])
        return rng.choice(("SUM({})", "COUNT({})", "COUNT(*)")).format(column) if inner else column
    return rng.choice(EXTREMES[kind])


def statement(signature: Signature, rng: random.Random) -> str:
    """A statement with one call."""
    form, kinds = signature
    place = rng.choice(PLACES)
    inner = int(place in PLACES[-3:])
    return place.format(form.format(*(argument(kind, rng, inner) for kind in kinds)))


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    rng = random.Random(11)
    rows = [tuple(rng.choice(values) for values in VALUES) for _ in range(40)]
    with open_world(tmp_path_factory.mktemp("signatures"), rows) as (opened, _):
        opened.execute("SET mechanism = 'identity'")
        yield opened


def defect(connection: Connection, sql: str) -> str:
    """What is told of a defect that a statement shows; nothing where it is answered or refused."""
    try:
        connection.explain(sql)
    except dpsql.InternalError as error:
        return f"{sql}\n{error}"
    except dpsql.Error as error:
        return "" if str(error) else sql
    return ""


def test_no_function_of_extreme_values_shows_a_defect(connection: Connection) -> None:
    rng = random.Random(SEED)
    known = signatures()
    asked = (statement(rng.choice(known), rng) for _ in range(STATEMENTS))
    assert not [found for sql in asked if (found := defect(connection, sql))]


def test_no_form_of_an_aggregate_shows_a_defect(connection: Connection) -> None:
    rng = random.Random(SEED + 1)
    known = forms()
    asked = (statement(rng.choice(known), rng) for _ in range(STATEMENTS))
    assert not [found for sql in asked if (found := defect(connection, sql))]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT width_bucket(a, [1, 5]), COUNT(*) FROM t GROUP BY 1",
        "SELECT SUM(a * 1e-300) FROM t",
        "SELECT SUM(a * 1e-90 * 1e-90) FROM t",
        "SELECT SUM(m * 1e300) FROM t",
        "SELECT AVG(a * 1e-300), VAR_POP(m * 1e200) FROM t",
        "SELECT REGEXP_REPLACE(COUNT(a), COUNT(*)) FROM t",
        "SELECT COUNT(*) FROM t WHERE DP_STDDEV(ENTROPY(COLUMNS([]))) = 1",
        "SELECT VAR_POP(OPEN_J_S_O_N(ROW(1, 'x'), NULL, b)) FROM t",
        "SELECT [].x, COUNT(*) FROM t",
        "SELECT SUM(1, contribution_bounds_per_group => (0, 1)) FROM t",
        "SELECT VAR_POP('x', contribution_bounds_per_row => (0, 1)) FROM t",
    ],
)
def test_extreme_factors_are_answered_or_refused(connection: Connection, sql: str) -> None:
    assert not defect(connection, sql)
