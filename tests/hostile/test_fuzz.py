"""Random SQL, options, parameters and catalogs: an answer or a typed error, and no lost charge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import Connection
from tests.support.effort import effort
from tests.support.world import BOOK, cases

pytestmark = pytest.mark.usefixtures("one_reader")

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-9

[table.t]
source = "t.csv"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 7] }
b = { type = "text", domain = ["x", "y", "it's"], other = true, null = true }
c = { type = "boolean", domain = [false, true], null = true }
d = { type = "date", domain = ["2023-11-15", "2024-03-02"], by = "month" }
n = { type = "number", bins = [-1.5, 0, 2, 10] }
m = { type = "number", bounds = [0, 10] }
"""
VOCABULARY = """
SELECT COUNT(*) COUNT SUM AVG FROM t WHERE a b c d n m x GROUP BY HAVING ORDER LIMIT OFFSET AND OR
NOT IN BETWEEN LIKE ILIKE ESCAPE IS NULL TRUE FALSE CASE WHEN THEN ELSE END CAST TRY_CAST AS INT
DATE TIMESTAMP INTERVAL VARCHAR DECIMAL(3,1) DISTINCT FILTER OVER PARTITION UNION ALL EXCEPT WITH
RECURSIVE VALUES JOIN ON USING SAMPLE TABLESAMPLE QUALIFY WINDOW LATERAL UNNEST PIVOT ROLLUP CUBE
GROUPING SETS EXISTS ANY EXPLAIN SET SHOW DESCRIBE BEGIN WORKLOAD RUN epsilon delta noise budget
ASC DESC NULLS FIRST LAST COLLATE EXTRACT year month date_trunc lower upper length substr replace
regexp_matches coalesce nullif greatest sqrt ln pow abs round floor concat DP_STDDEV random now
( ) ( ) ( ) , , . ; = <> < <= > >= + - * / // % || :: -> @ & | << >> ^ [ ] { } ? ! # \\ ' " -- /*
*/ 0 1 2 7 1.5 1e3 1e400 .5 0x1F 1_000 99999999999999999999 'x' 'y' 'it''s' '' '2024-01-01'
"t" "A" "a""b" a.b t.a main.t k0 a0 c0_0 cells d0 v i z \u00e9 \u0131 \U0001f600
"""
WORDS = VOCABULARY.split()
STATEMENTS = [
    "SELECT b, COUNT(*) AS k FROM t WHERE a > 2 AND b <> 'x' GROUP BY b HAVING COUNT(*) > 3",
    "SELECT a // 3 AS g, 100.0 * COUNT(*) FILTER (WHERE c) / COUNT(*) FROM t GROUP BY g ORDER BY 2",
    "SELECT date_trunc('quarter', d) AS q, COUNT(*), DP_STDDEV(COUNT(*)) FROM t GROUP BY q LIMIT 2",
    "SELECT CASE WHEN a < 2 THEN 'low' ELSE 'hi' END AS z, SUM(CASE WHEN c THEN 1 ELSE 0 END) "
    "FROM t WHERE n < 2 OR n >= 2 GROUP BY 1",
    "SELECT COUNT(*) FROM t WHERE a BETWEEN 1 AND 3 AND b IN ('x', 'y') AND d >= DATE '2024-01-01'",
    *(case.sql for case in cases("sql") if len(case.sql) < 200),
]
EXAMPLES = effort(30)
BUSY = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=EXAMPLES)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """One connection for a whole run of examples."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "t.csv").write_text("a,b,c,d,n,m\n1,x,true,2024-01-01,1,5\n")
    (folder / "t.toml").write_text(CATALOG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        opened = dpsql.connect(folder / "t.toml", epsilon=0.001)
    with opened:
        yield opened


def attempt(connection: Connection, action: Callable[[], object]) -> None:
    """Run an action that must answer, or refuse by a typed error and charge nothing."""
    before = connection.budget.entries
    try:
        action()
    except dpsql.Error as error:
        known = error.code in BOOK["codes"]
        text = str(error)
        kept = connection.budget.entries == before
    else:
        return
    assert known, text
    assert kept, text
    assert "Traceback" not in text
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)


def ask(connection: Connection, sql: str) -> None:
    """Every way to hand over SQL."""
    attempt(connection, lambda: connection.execute(sql))
    attempt(connection, lambda: connection.executescript(sql))
    attempt(connection, lambda: connection.explain(sql))
    connection.rollback()
    connection.execute("SET epsilon = 0.001")


token_sequences = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)


@st.composite
def edited_statements(draw: st.DrawFn) -> str:
    """A statement with a few words replaced, dropped, doubled or inserted."""
    words = draw(st.sampled_from(STATEMENTS)).replace("(", " ( ").replace(")", " ) ").split(" ")
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(words) - 1)))
        fresh = draw(st.lists(st.sampled_from(WORDS), max_size=2))
        words[place : place + draw(st.integers(0, 2))] = fresh
    return " ".join(words)


@BUSY
@given(st.one_of(st.text(max_size=200), st.binary(max_size=200).map(lambda b: b.decode("latin-1"))))
def test_any_text(connection: Connection, sql: str) -> None:
    ask(connection, sql)


@BUSY
@given(token_sequences.map(lambda text: f"SELECT {text}"))
def test_any_sequence_of_tokens(connection: Connection, sql: str) -> None:
    ask(connection, sql)


@BUSY
@given(edited_statements())
def test_edited_statements(connection: Connection, sql: str) -> None:
    ask(connection, sql)


@BUSY
@given(token_sequences)
def test_any_condition_and_any_key(connection: Connection, text: str) -> None:
    ask(connection, f"SELECT COUNT(*) FROM t WHERE {text}")
    ask(connection, f"SELECT {text}, COUNT(*) FROM t GROUP BY 1")
    ask(connection, f"SELECT a, COUNT(*) AS k FROM t GROUP BY a HAVING {text}")


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.fractions(),
    st.complex_numbers(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.dates(),
    st.datetimes(),
    st.times(),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@BUSY
@given(st.lists(values, max_size=3) | values)
def test_any_parameters(connection: Connection, parameters: Any) -> None:
    for condition in ("a > ?", "b = ? OR b = ?"):
        sql = f"SELECT COUNT(*) FROM t WHERE {condition}"
        attempt(connection, partial(connection.execute, sql, parameters))


@BUSY
@given(st.sampled_from(["epsilon", "delta", "noise"]), values)
def test_any_option(connection: Connection, name: str, value: Any) -> None:
    sql = "SELECT COUNT(*) FROM t WHERE a > 200"
    attempt(connection, lambda: connection.execute(sql, **{name: value}))
    attempt(connection, lambda: connection.set(name, value))
    connection.execute("SET epsilon = 0.001")
    attempt(connection, lambda: connection.execute(f"SET {name} = {value}"))


SCALARS = """
true false 0 1 -1 2.5 9007199254740993 1e-400 1e400 inf nan "" "a" " a" "other" "row" "integer"
"number" "text" "date" "boolean" "2024-01-01" "9999-12-31" "month" 2024-01-01 07:32:00 "t.csv"
"~x/y" "\\u0000" "\\u001b" 1e99999999999999999999 0x1F
"""
toml_values = st.recursive(
    st.sampled_from(SCALARS.split()),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(
            st.sampled_from(["column", "max_rows", "type", "x"]), inner, max_size=2
        ).map(lambda items: "{ " + ", ".join(f"{k} = {v}" for k, v in items.items()) + " }")
    ),
    max_leaves=5,
)
KEYS = ["type", "domain", "domain_file", "bins", "bounds", "by", "other", "null", "typ"]
facts = st.dictionaries(st.sampled_from(KEYS), toml_values, max_size=4)


def load(folder: Path, text: bytes) -> None:
    """Loading gives a catalog or a CatalogError that can be shown."""
    path = folder / "c.toml"
    path.write_bytes(text)
    try:
        catalog = read_catalog(path)
    except dpsql.CatalogError as error:
        known, shown = error.code in BOOK["codes"], str(error)
    else:
        assert len(catalog.policy_hash()) == 64
        for table in catalog.tables.values():
            assert all(len(each.cells) == each.size for each in table.columns.values())
        return
    assert known
    assert all(line.isprintable() for line in shown.split("\n")), ascii(shown)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("catalogs")


@BUSY
@given(facts, st.sampled_from(["integer", "number", "text", "date", "boolean"]))
def test_any_column(folder: Path, given_facts: dict[str, str], kind: str) -> None:
    every = {"type": f'"{kind}"', **given_facts}
    inline = ", ".join(f"{key} = {value}" for key, value in every.items())
    head = CATALOG.partition("a = {")[0]
    load(folder, f"{head}a = {{ {inline} }}\n".encode())


@BUSY
@given(st.lists(st.text(max_size=5), min_size=1, max_size=3), toml_values)
def test_any_analysts(folder: Path, names: list[str], value: str) -> None:
    sections = [f"[analyst.{json.dumps(name)}]\nepsilon = {value}\n" for name in names]
    load(folder, f"{CATALOG}\n{''.join(sections)}".encode())
    load(folder, f"{CATALOG}\n[analyst]\n{json.dumps(names[0])} = {value}\n".encode())


@BUSY
@given(st.data())
def test_any_edited_catalog(folder: Path, data: st.DataObject) -> None:
    lines = CATALOG.split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        key = lines[place].partition("=")[0]
        new = data.draw(st.one_of(toml_values.map(partial("{}= {}".format, key)), st.just("")))
        lines[place] = new
    load(folder, "\n".join(lines).encode())


@BUSY
@given(st.binary(max_size=100) | st.text(max_size=100).map(lambda t: t.encode("utf-8", "replace")))
def test_any_bytes_as_a_catalog(folder: Path, text: bytes) -> None:
    load(folder, text)
    load(folder, CATALOG.encode() + text)
