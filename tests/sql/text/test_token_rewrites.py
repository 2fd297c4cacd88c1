"""What the parser is given besides: functions of others, sets that compare, what follows PIVOT."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import duckdb
import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.errors import Error
from dpsql.sql.dialects.dialect_signatures import MARK, SHARED
from dpsql.sql.text.lexemes import lex, split_statements
from dpsql.sql.text.parse import parse
from dpsql.sql.text.token_rewrites import TooManyArgumentsError, parse_tokens
from tests.support.forked import world
from tests.support.grammar import read_cases

OTHERS = (*SHARED, "cube", "rollup", "grouping sets", "pivot", "), select")
"""Words of statements that are not parsed as they are."""


def outcome(parse: Callable[[str], Sequence[exp.Expr | None]], sql: str) -> list[str]:
    """The trees, or what is wrong."""
    try:
        return [repr(tree) for tree in parse(sql)]
    except (ParseError, TooManyArgumentsError) as error:
        return [str(error)]


def plain(sql: str) -> list[exp.Expr | None]:
    return list(sqlglot.parse(sql, read="duckdb"))


def test_all_other_statements_are_parsed_as_they_are() -> None:
    texts = [case.sql for case in read_cases("accepted.sql")]
    known = [sql for sql in texts if sql.lower().startswith(("select", "with", "from", "("))]
    found = [sql for sql in known if not any(word in sql.lower() for word in OTHERS)]
    assert len(found) > 150
    for sql in found:
        as_read = outcome(parse_tokens, sql)
        # what dpsql takes out before, the parser leaves out
        cut = "=>" in sql or "OPTIONS" in sql
        assert as_read == outcome(plain, sql) or (cut and "takes at most" in as_read[0]), sql


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("CUBE (a > 1, b)", ["a > 1", "b"]),
        ("ROLLUP ((a, b), a IN (1, 2))", ["(a, b)", "a IN (1, 2)"]),
        ("GROUPING SETS (a > 1, (b > 2, a), (), CUBE (a < b, b))", None),
        ("CUBE (f(a, [1, 2]) = {'x': 1}, (a > 1))", ["F(a, [1, 2]) = {'x': 1}", "a > 1"]),
        ("CUBE (a)", ["a"]),
    ],
)
def test_elements_of_sets_may_compare(written: str, keys: list[str] | None) -> None:
    (tree,) = parse_tokens(f"SELECT COUNT(*) FROM t GROUP BY {written}")
    assert tree is not None
    sets = list(tree.find_all(exp.Cube, exp.Rollup, exp.GroupingSets))
    if keys is not None:
        assert [each.sql("duckdb") for each in sets[0].expressions] == keys
    else:
        assert [len(each.expressions) for each in sets] == [4, 2]


@pytest.mark.parametrize("before", ["", "WITH c AS (SELECT a FROM t LIMIT 1) "])
def test_a_statement_may_begin_with_pivot(before: str) -> None:
    (tree,) = parse_tokens(f"{before}PIVOT t ON a USING SUM(b) GROUP BY c ORDER BY c LIMIT 3")
    assert isinstance(tree, exp.Select)
    assert tree.args["order"] is not None
    assert tree.args["limit"] is not None
    assert (tree.args.get("with_") is None) == (not before)
    assert isinstance(tree.args["from_"].this.this, exp.Pivot)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t PIVOT (SUM(b) FOR a IN (1, 2)) ORDER BY 1",
        "SELECT decode, t.date_trunc, \"date_diff\"('day', a, b) FROM t",
    ],
)
def test_what_is_only_named_so_stays(sql: str) -> None:
    assert [repr(tree) for tree in parse_tokens(sql)] == [repr(tree) for tree in plain(sql)]


@pytest.mark.parametrize(
    "sql", ["SELECT date_trunc(d, MONTH) FROM t", "SELECT x, DECODE(a, 1, 2) FROM t"]
)
def test_functions_of_others_stand_where_they_are_written(sql: str) -> None:
    (tree,) = parse_tokens(sql)
    assert tree is not None
    found = tree.find(exp.Anonymous)
    assert found is not None
    name = str(found.this).removesuffix(MARK)
    assert found.meta["start"] == sql.lower().index(name)


@pytest.mark.parametrize(
    ("sql", "at"),
    [
        ("PIVOT t ON a USING SUM(b) ORDER BY c c c", "c c"),
        ("SELECT 1 FROM t GROUP BY CUBE (a > 1 2, b)", "2, b"),
        ("SELECT 1 FROM t GROUP BY CUBE (a > 1, b", "> 1, b"),
        ("SELECT 1 FROM t GROUP BY CUBE (a > , b)", "> , b"),
    ],
)
def test_mistakes_are_told_where_they_are(sql: str, at: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_tokens(sql)
    (place, *_) = caught.value.errors
    assert sql.rindex(at) <= place["col"] <= len(sql)


LARGE = {"between", "interval"}
"""Words that stand for more than a column in some places of DuckDB's own SQL."""
NAMED = (
    "SELECT {0}, t.{0} AS {0}, SUM(CASE WHEN {0} = 1 THEN {0} ELSE 0 END), AVG({0} + 1) FROM t "
    "WHERE NOT {0} > 1 AND {0} IN (0, 1) AND t.{0} BETWEEN 0 AND 2 GROUP BY {0} ORDER BY {0}"
)


def is_read(sql: str) -> bool:
    """True where DuckDB parses a statement."""
    try:
        return bool(duckdb.extract_statements(sql))
    except duckdb.ParserException:
        return False


def test_columns_may_have_the_names_that_duckdb_lets_them_have() -> None:
    with duckdb.connect() as database:
        listed = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'reserved'"
        words = sorted({"if", *(word for (word,) in database.execute(listed).fetchall())} - LARGE)
    named = [word for word in words if is_read(NAMED.format(word))]
    assert len(named) > 300
    for word in named:
        (tree,) = parse_tokens(NAMED.format(word))
        assert tree is not None
        found = [each.name for each in tree.find_all(exp.Column)]
        assert found == [word] * 10, word


CHANGED = (
    "SELECT COUNT(*), [1, 2, 3][1:2] FROM t WHERE sex IN ('f', 'm') AND age = (3) GROUP BY age",
    "SELECT SUM(n) OVER (PARTITION BY sex ORDER BY age), COALESCE(n, 2) AS k"
    " FROM (SELECT age, sex, COUNT(*) AS n FROM t GROUP BY age, sex) AS q",
    "WITH c(x, y) AS (SELECT age, sex FROM t) SELECT SUM(CASE WHEN x = 1 THEN x END) AS s FROM c"
    " GROUP BY y ORDER BY s, y",
    "SELECT COUNT(DISTINCT who), ABS(d) AS e FROM t JOIN (VALUES (1, 2), (3, 4)) AS v(a, d)"
    " ON age = a GROUP BY ALL LIMIT 3",
)
PLACES = ("query_location", "query_location_length")
ADDED = (",", ":", "-", "(", ")", "1")


def changed(sql: str) -> Iterator[str]:
    """The text with a word less, or with one more, at every place."""
    words = [each.text for each in lex(sql) if each.kind != "space"]
    for place in range(1, len(words) + 1):
        yield " ".join([*words[: place - 1], *words[place:]])
        for each in ADDED:
            yield " ".join([*words[:place], each, *words[place:]])


def meant(database: duckdb.DuckDBPyConnection, sql: str) -> object:
    """The tree of a statement as DuckDB reads it, without places; None where it reads none."""

    def plain(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: plain(each) for key, each in node.items() if key not in PLACES}
        return [plain(each) for each in node] if isinstance(node, list) else node

    ((text,),) = database.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchall()
    found = json.loads(text)
    return None if found["error"] else plain(found["statements"])


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with dpsql.connect(world(tmp_path_factory.mktemp("read"), "t"), epsilon=1) as opened:
        yield opened


@pytest.mark.parametrize("sql", CHANGED)
def test_nothing_is_left_out_of_what_is_read(connection: Connection, sql: str) -> None:
    """A comma or a colon too many is read as DuckDB reads it, or refused."""
    read = 0
    with duckdb.connect() as database:
        for text in {sql, *changed(sql)}:
            with suppress(Error, TypeError):
                (fragment,) = split_statements(text)
                connection.engine.compile([parse(fragment)])
                (tree,) = parse_tokens(text)
                assert tree is not None
                expected = meant(database, text)
                assert expected is not None, text
                assert meant(database, tree.sql("duckdb")) == expected, text
                read += 1
    assert read > 5
