"""PostgreSQL's meaning of statements on the wire: rows, names and types as PostgreSQL has them."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from sqlglot import ParseError, exp, parse_one

import dpsql
from dpsql.dialect import meaning, types
from dpsql.logical.functions import names as functions
from dpsql.server.messages import BINARY, TEXT
from dpsql.server.users import Users
from dpsql.server.values import POSTGRES, decode, number_text
from tests.support import postgres
from tests.support.common_sql import EMPTY, KINDS, TABLES, draw, write_common
from tests.support.effort import effort, first_seed
from tests.support.seam import zero_noise
from tests.support.served import PASSWORD, Client, names, served

Both = tuple[psycopg.Connection[Any], psycopg.Connection[Any]]
Answer = tuple[list[tuple[str, int]], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Both]:
    """Connections to dpsql and to PostgreSQL, over tables of the same rows."""
    folder = tmp_path_factory.mktemp("dialect")
    catalog = write_common(folder)
    Users(folder / "common.users").put("ana", PASSWORD, new=True)
    with pytest.MonkeyPatch.context() as patch, postgres.server(postgres.short_folder()) as real:
        for name in ("STATE", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(folder / name))
        for table, query in TABLES.items():
            columns = dict(each.strip().split(" ", 1) for each in KINDS[table].split(","))
            rows = duckdb.execute(query).fetchall()
            real.store(
                table, {name: f"{kind}{_collation(kind)}" for name, kind in columns.items()}, rows
            )
        with zero_noise(), served(catalog) as server:
            where = (
                f"host=127.0.0.1 port={server.port} user=ana password={PASSWORD!r} dbname=common"
            )
            with (
                psycopg.connect(where, autocommit=True) as ours,
                psycopg.connect(real.address, autocommit=True) as theirs,
            ):
                theirs.execute("SET timezone = 'UTC'")
                ours.execute("SET epsilon = 10")
                ours.execute("SET mechanism = identity")  # how it is measured is not asked about
                yield ours, theirs


def test_doubles_are_written_as_postgresql_writes_them(both: Both) -> None:
    draws = random.Random(29)
    edges = [sign * 10.0**power for power in range(-20, 25) for sign in (1, -1)]
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, *edges]
    values += [math.nextafter(each, math.inf) for each in edges]
    values += [draws.uniform(-1, 1) * 10.0 ** draws.randint(-7, 18) for _ in range(2000)]
    values += [float(draws.randrange(10 ** draws.randint(1, 18))) for _ in range(500)]
    values += struct.unpack("500d", draws.randbytes(4000))
    texts = both[1].execute("SELECT unnest(%s::float8[])::text", [values]).fetchall()
    for value, (text,) in zip(values, texts, strict=True):
        ours = number_text(value)
        # A decimal number halfway between two doubles, as 1e23 is, reads as the even one: Python
        # writes it for that one, PostgreSQL does not.
        is_halfway = 2**53 < abs(value) < 1e25 and len(ours) < len(text)
        assert ours == text or (is_halfway and float(ours) == float(text)), value


RETURNED = """
SELECT proname, min(typname), min(pronargs - pronargdefaults) FROM pg_proc
JOIN pg_type t ON t.oid = prorettype
WHERE pronamespace = 'pg_catalog'::regnamespace AND NOT proretset
GROUP BY proname HAVING count(DISTINCT typname) = 1 AND min(typname) NOT LIKE 'any%'
"""
OTHERWISE = {"char": "a type of its own", "date_add": "of dates, too", "regexp_like": "a predicate"}
"""Functions of another type here, by the reason."""


def called(name: str, count: int) -> exp.Expr | None:
    """Parse a call with as few arguments as the parser takes."""
    for more in range(3):
        try:
            return parse_one(f"{name}({', '.join('x' * (count + more))})", read="postgres")
        except ParseError:
            continue
    return None


def test_functions_of_one_type_have_it(both: Both) -> None:
    """Every name of the table of functions that PostgreSQL has, by its own catalog."""
    found = {name: (kind, count) for name, kind, count in both[1].execute(RETURNED)}
    asked = found.keys() & set(functions("rows", "groups", "windows")) - OTHERWISE.keys()
    trees = {name: called(name, found[name][1]) for name in asked}
    told = {name: types.result(tree, []) for name, tree in trees.items() if tree is not None}
    assert len(told) > 50
    assert told == {name: found[name][0] for name in told}


def test_types_by_name_are_of_functions_without_a_class() -> None:
    for name in types.NAMED:
        assert isinstance(parse_one(f"{name}(x)", read="postgres"), exp.Anonymous), name


def _collation(kind: str) -> str:
    return ' COLLATE "C"' if kind == "text" else ""


def ask(connection: psycopg.Connection[Any], sql: str) -> Answer:
    found = connection.execute(sql.encode())
    assert found.description is not None
    return [(each.name, each.type_code) for each in found.description], found.fetchall()


def settled(value: Any) -> Any:
    if isinstance(value, list):
        return [settled(each) for each in value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return float(value)


def alike(one: Any, two: Any) -> bool:
    one, two = settled(one), settled(two)
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-4)
    if two is None and isinstance(one, float):
        return abs(one) < 1e-4  # whether a sum is of any row is not told: it is 0
    return type(one) is type(two) and bool(one == two)


def differ(ours: Answer, theirs: Answer) -> bool:
    same = [
        len(one) == len(two) and all(map(alike, one, two))
        for one, two in zip(ours[1], theirs[1], strict=False)
    ]
    return ours[0] != theirs[0] or len(ours[1]) != len(theirs[1]) or not all(same)


def refused_or_wrong(both: Both, count: int, seed: int) -> tuple[int, list[str], list[str]]:
    """Return how many statements both answered, those dpsql refused, and those that differ."""
    ours, theirs = both
    rng = random.Random(seed)
    refused: list[str] = []
    wrong: list[str] = []
    answered = 0
    while answered + len(refused) < count:
        sql = draw(rng)
        try:
            expected = ask(theirs, sql)
        except psycopg.Error:
            continue  # PostgreSQL itself refuses it
        try:
            found = ask(ours, sql)
        except psycopg.Error as error:
            refused.append(f"{sql}\n  {error}")
            continue
        answered += 1
        if differ(found, expected):
            told = (
                f"{name} {head} {rows[:6]}"
                for name, (head, rows) in (("dpsql", found), ("PostgreSQL", expected))
            )
            wrong.append("\n  ".join((sql, *told)))
    return answered, refused, wrong


def test_statements_of_both_have_the_same_rows_names_and_types(both: Both) -> None:
    answered, refused, wrong = refused_or_wrong(both, effort(40), first_seed(7))
    assert not wrong, "\n".join(wrong)
    assert len(refused) < answered / 10, "\n".join(refused)


@pytest.mark.parametrize("rule", [exp.Div, exp.Cast, exp.SimilarTo, exp.Format, exp.Like])
def test_a_meaning_that_is_left_out_is_found(
    both: Both, monkeypatch: pytest.MonkeyPatch, rule: type[exp.Expr]
) -> None:
    ours, theirs = both
    statements: dict[type[exp.Expr], str] = {
        exp.Div: "select a / 3, count(*) + 0 from p group by 1 having count(*) > 0 order by 1",
        exp.Cast: "select (a / 4.0)::int, 1 + count(*) from p group by 1 order by 1",
        exp.SimilarTo: "select count(*) * 1 from p where g similar to '_|it%'",
        exp.Format: "select count(*) - 2 from p where format('%2$s %1$s', g, a) = '3 x'",
        exp.Like: "select count(*) - 1 from p where g like 'it\\''%'",
    }
    sql = statements[rule]
    assert not differ(ask(ours, sql), ask(theirs, sql))
    monkeypatch.delitem(meaning._RULES, rule)
    sql = sql.replace("select", "select  ")
    try:
        assert differ(ask(ours, sql), ask(theirs, sql))
    except psycopg.Error:
        ours.rollback()


@pytest.mark.parametrize("binary", [False, True])
def test_a_list_is_a_parameter(both: Both, binary: bool) -> None:
    sql = "select g, count(*) from p where a = any(%s) and g <> all(%s) group by g order by g"
    found = []
    for connection in both:
        with connection.cursor(binary=binary) as cursor:
            cursor.execute(sql, ([1, 2, 3], ["x", "it's"]))
            found.append(cursor.fetchall())
            mark = "%b" if binary else "%s"
            cursor.execute(f"select count(*) from p where a = any({mark})".encode(), ([],))
            found[-1] += cursor.fetchall()
    assert [settled(list(each)) for each in found[0]] == [settled(list(e)) for e in found[1]]


def test_a_list_is_a_parameter_whose_type_the_server_says(both: Both) -> None:
    with Client(both[0].info.port) as client:
        client.start(database="common")
        client.parse("select count(*) from p where a = any($1) limit $2")
        client.describe()
        found = client.sync()
    assert struct.unpack("!H2I", found[1][1]) == (2, 1016, 20)
    assert names(found) == [("count", 20)]


def test_the_dialect_is_the_sessions(both: Both) -> None:
    ours, _ = both
    sql = "select 7 / 2 as x, count(*) from p where a < 3 group by x"
    assert ask(ours, sql)[1][0][0] == 3
    ours.execute("SET dialect = 'duckdb'")
    assert ask(ours, sql)[0][1] == ("count(*)", 20)
    assert ask(ours, sql)[1][0][0] == 3.5
    ours.execute("RESET dialect")
    assert ask(ours, sql)[1][0][0] == 3


def test_what_has_no_row_is_described_as_it_is_answered(both: Both) -> None:
    ours, _ = both
    before = ours.execute("SHOW budget").fetchall()
    with Client(ours.info.port) as client:
        client.start(database="common")
        for statement in EMPTY:
            client.parse(statement)
            client.describe()
            assert ask(ours, statement) == (names(client.sync()), [])
    assert ours.execute("SHOW budget").fetchall() == before


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("select a / 3, count(*) from p where frob = 1 group by 1", "frob"),
        ("select a::int, count(*) from p where a % 3 = 1 and p.frob = 'x' group by 1", "p.frob"),
        ("select count(*) from p where g similar to 'x|y' and m > 3", "m"),
        ("select format('%s', a), median(frobs) from p group by 1", "frobs"),
    ],
)
def test_errors_stand_where_they_are_written(both: Both, sql: str, where: str) -> None:
    with pytest.raises(psycopg.Error) as error:
        ask(both[0], sql)
    assert sql[int(error.value.diag.statement_position or 0) - 1 :].startswith(where)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select strip_accents(g) / 2, count(*) from p group by 1", "integers are divided"),
        ("select n::text, count(*) from p group by 1", "digits"),
        ("select count(*) from p where g similar to upper(g)", "this pattern"),
        ("select format('%I', g), count(*) from p group by 1", "FORMAT"),
        ("select count(*) from p where a = any(w)", "this list"),
    ],
)
def test_what_means_something_else_is_never_taken_for_it(both: Both, sql: str, said: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedFunction, match=said):
        ask(both[0], sql)


def test_integers_are_told_alike_in_either_dialect(tmp_path: Path) -> None:
    with dpsql.connect(write_common(tmp_path), epsilon=1, analyst="ana") as connection:
        sql = "SELECT COUNT(*) / 3.0 AS part, COUNT(*) AS n, COUNT(DISTINCT a) AS m FROM p"
        plain = connection.execute(sql).result
        connection.set("dialect", "postgres")
        found = connection.execute(sql).result
    assert found.types == ("number", "integer", "integer")
    assert found.typed == ("numeric", "int8", "int8")
    assert plain.types == found.types
    assert plain.rows[0][1:] == found.rows[0][1:]
    assert plain.stddev == found.stddev
    assert all(isinstance(value, int) for value in found.rows[0][1:])


@pytest.mark.parametrize(
    ("value", "oid"),
    [("0", b"\0\0\0\0\0\0\0\0"), ("-12.5", None), ("10000", None), ("0.00012", None)],
)
def test_a_numeric_in_binary_is_read_back(value: str, oid: bytes | None) -> None:
    packed = POSTGRES["numeric"].binary(Decimal(value))
    assert decode(packed, 1700, BINARY) == Decimal(value)
    assert oid in (None, packed)


@pytest.mark.parametrize("values", [[], ["a", None, 'b "c"', "{d,e}", "\\\\", "NULL", " f"]])
def test_an_array_is_read_back(values: list[str | None]) -> None:
    kind = POSTGRES["text[]"]
    assert decode(kind.text(values).encode(), kind.oid, TEXT) == values
    assert decode(kind.binary(values), kind.oid, BINARY) == values
