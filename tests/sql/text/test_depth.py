"""Nesting near the limits, of all kinds, wherever it is asked from: answered, or told why not."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from sqlglot import Parser
from sqlglot.dialects.duckdb import DuckDB

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.errors import ProgrammingError
from dpsql.sql.text.depth import MAX_DEPTH, MAX_TREE_DEPTH, SURE_DEPTH
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import MAX_NODES, TYPES, parse
from tests.support.effort import effort
from tests.support.forked import world

T = TypeVar("T")

NESTS: dict[str, tuple[str, str, str, int]] = {
    "parentheses in WHERE": ("SELECT COUNT(*) FROM t WHERE @", "(@)", "age = 1", 1),
    "parentheses of an item": ("SELECT @ FROM t", "(@)", "COUNT(*)", 1),
    "conditions": ("SELECT COUNT(*) FROM t WHERE @", "(age = 2 OR @)", "age = 1", 1),
    "NOT and parentheses": ("SELECT COUNT(*) FROM t WHERE @", "NOT (@)", "age = 1", 2),
    "signs and parentheses": ("SELECT SUM(@) FROM t", "-(@)", "age", 2),
    "signs": ("SELECT COUNT(*) FROM t WHERE age = @", "- @", "1", 1),
    "NOT": ("SELECT COUNT(*) FROM t WHERE @", "NOT @", "age = 1", 1),
    "sums": ("SELECT SUM(@) FROM t", "(1 + @)", "age", 1),
    "functions": ("SELECT SUM(@) FROM t", "ABS(@)", "age", 1),
    "functions of answers": ("SELECT @ FROM t", "COALESCE(@, 0)", "COUNT(*)", 1),
    "CASE": ("SELECT SUM(@) FROM t", "CASE WHEN age = 1 THEN 1 ELSE @ END", "2", 1),
    "CASE in WHEN": (
        "SELECT COUNT(*) FROM t WHERE @",
        "CASE WHEN @ THEN TRUE ELSE FALSE END",
        "age = 1",
        1,
    ),
    "sub-queries": ("SELECT COUNT(*) FROM @", "(SELECT age FROM @) AS q", "t", 1),
    "sub-queries in IN": (
        "SELECT COUNT(*) FROM t WHERE @",
        "who IN (SELECT who FROM t WHERE @)",
        "age = 1",
        1,
    ),
    "scalar sub-queries": ("SELECT @", "(SELECT @)", "COUNT(*) FROM t", 1),
    "lambdas": ("SELECT COUNT(*) FROM t WHERE @ = 1", "list_transform([1], x -> @)", "1", 1),
    "intervals": ("SELECT COUNT(*) FROM t WHERE age = @", "INTERVAL @", "'1' DAY", 1),
}
CHAINS = {
    "AND": ("SELECT COUNT(*) FROM t WHERE age = 1", " AND age <> 2"),
    "OR": ("SELECT COUNT(*) FROM t WHERE age = 1", " OR age = 2"),
    "+": ("SELECT SUM(age", " + 1"),
    "*": ("SELECT SUM(age", " * 1"),
    "+ of answers": ("SELECT COUNT(*)", " + 1"),
    "||": ("SELECT COUNT(*) FROM t WHERE sex = ''", " || 'f'"),
    "::": ("SELECT SUM(age", "::INTEGER"),
}
VALUES = [
    *[("(@)", 1), ("(1 + @)", 1), ("ABS(@)", 1), ("-(@)", 2), ("COALESCE(@, 0)", 1)],
    *[("CASE WHEN a = 1 THEN @ ELSE 0 END", 1), ("CAST(@ AS INTEGER)", 1), ("(SELECT @)", 1)],
    *[("CASE WHEN NOT (@ = 1) THEN 1 ELSE 0 END", 3), ("SUM(@) OVER ()", 1)],
]


def nested(kind: str, levels: int) -> str:
    """A statement of so many levels of one kind."""
    around, wrapped, text, each = NESTS[kind]
    for _ in range(levels // each):
        text = wrapped.replace("@", text)
    return around.replace("@", text)


def chained(kind: str, length: int) -> str:
    start, link = CHAINS[kind]
    text = start + link * length
    text += ")" * (text.count("(") - text.count(")"))
    return text if " FROM t" in text else text + " FROM t"


def from_below(work: Callable[[], T], frames: int = 600) -> T:
    """What work returns so many frames down."""
    return from_below(work, frames - 1) if frames else work()


def in_thread(work: Callable[[], T]) -> T:
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def told(work: Callable[[], object]) -> str:
    """The code of what is wrong; empty where nothing is."""
    try:
        work()
    except dpsql.Error as error:
        code, text = error.code, str(error)
    else:
        return ""
    limits = (f"{SURE_DEPTH} levels", f"nested over {MAX_DEPTH} deep")
    assert code != "E_INTERNAL", text
    assert code != "E_TOO_COMPLEX" or any(each in text for each in limits), text
    return str(code)


def here(work: Callable[[], T]) -> T:
    """What work returns."""
    return work()


PLACES = [here, from_below, in_thread]


def parsed(sql: str) -> str:
    return told(lambda: parse(split_statements(sql)[0]))


def asked(connection: Connection, sql: str) -> str:
    return told(lambda: connection.execute(sql).fetchall())


@pytest.mark.parametrize("kind", NESTS)
def test_so_many_levels_of_every_kind_are_parsed_wherever_it_is_asked_from(kind: str) -> None:
    around, _, text, _ = NESTS[kind]
    own = (around + text).count("(")
    sql = nested(kind, SURE_DEPTH - own)
    assert [place(partial(parsed, sql)) for place in PLACES] == ["", "", ""]


def test_levels_of_mixed_kinds_are_parsed_wherever_it_is_asked_from() -> None:
    chance = random.Random(3)
    for number in range(60):
        text, left = "a", SURE_DEPTH - 1
        while left:
            wrapped, levels = chance.choice([each for each in VALUES if each[1] <= left])
            text, left = wrapped.replace("@", text), left - levels
        sql = f"SELECT SUM({text}) FROM t"
        assert PLACES[number % 3](partial(parsed, sql)) == "", sql


@pytest.mark.parametrize("kind", NESTS)
def test_more_levels_are_parsed_or_refused_by_the_limit(kind: str) -> None:
    for levels in (40, 44, 45, 49, 50, 51, 60, 400):
        sql = nested(kind, levels)
        assert {place(partial(parsed, sql)) for place in PLACES} in (
            {""},
            {"E_TOO_COMPLEX"},
        )


@pytest.mark.parametrize("kind", NESTS)
def test_what_is_asked_is_answered_or_refused(tmp_path: Path, kind: str) -> None:
    with dpsql.connect(world(tmp_path, "t"), epsilon=0.001) as connection:
        for levels in (12, 28, 45):
            sql = nested(kind, levels)
            for place in PLACES:
                code = place(partial(asked, connection, sql))
                assert code in ("", "E_TOO_COMPLEX", "E_FUNCTION", "E_DOMAIN_EVAL")


@pytest.mark.parametrize("kind", CHAINS)
def test_chains_are_answered_or_refused(tmp_path: Path, kind: str) -> None:
    with dpsql.connect(world(tmp_path, "t"), epsilon=0.001) as connection:
        for length, wanted in ((100, {""}), (MAX_TREE_DEPTH - 10, {""}), (1000, {"E_TOO_COMPLEX"})):
            sql = chained(kind, length)
            for place in PLACES:
                code = place(partial(asked, connection, sql))
                assert code in (wanted | {"E_TOO_COMPLEX"} if place is from_below else wanted)


def test_what_is_wrong_deep_inside_is_told_as_it_is() -> None:
    sql = "SELECT COUNT(*) FROM t WHERE " + "(" * 29 + "a = = 1" + ")" * 29
    found = set()
    for place in (here, from_below):
        with pytest.raises(ProgrammingError, match="E_PARSE") as caught:
            place(lambda: parse(split_statements(sql)[0]))
        found.add(str(caught.value))
    assert len(found) == 1


OPENINGS = effort(30)
CALLED = sorted({*DuckDB.Parser.FUNCTIONS, *DuckDB.Parser.FUNCTION_PARSERS, *TYPES})
READ = 40 * MAX_NODES
"""Steps by which the parser may go on in a statement of so few tokens: they are read once or so."""


class TooMuchError(Exception):
    """Raised by a parser that goes on."""


def test_nothing_that_opens_is_read_again_for_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, advance = [0], Parser._advance

    def counted(parser: Parser, times: int = 1) -> None:
        steps[0] += 1
        if steps[0] > READ:
            raise TooMuchError
        advance(parser, times)

    monkeypatch.setattr(Parser, "_advance", counted)
    draw = random.Random(20)
    forms = [f"{name}{opening}" for name in CALLED for opening in ("(@)", "[@]", "(@, 1)", "<@>")]
    forms += [f"{name}(@)" for name in ("char varying", "double precision", '"DATE"', "x -> f", "")]
    tried = forms if len(forms) < OPENINGS else [*draw.sample(forms, OPENINGS), *forms[-5:]]
    for form in [*tried, "DATE(@)", "CHAR(@)", "ARRAY[@]", "STRUCT(@)", "ROW(@)"]:
        for text in ("SELECT @ FROM t", "SELECT COUNT(*) FROM t WHERE x::@ = 1"):
            for _ in range(MAX_DEPTH - 5):
                text = text.replace("@", form)
            steps[0] = 0
            with suppress(dpsql.Error):
                parse(split_statements(text.replace("@", "x"))[0])


@pytest.mark.parametrize("form", ["DATE(@)", "CHAR(@)", "ARRAY[@]", "char varying(@)", "STRUCT(@)"])
def test_names_of_types_are_read_some_levels_deep(form: str) -> None:
    def text(levels: int) -> str:
        sql = "SELECT @ FROM t"
        for _ in range(levels):
            sql = sql.replace("@", form)
        return sql.replace("@", "x")

    assert parse(split_statements(text(8))[0]).tree is not None
    with pytest.raises(ProgrammingError, match="read twice") as caught:
        parse(split_statements(text(20))[0])
    assert caught.value.code == "E_TOO_COMPLEX"
    assert caught.value.hint


def test_a_long_statement_within_a_type_is_read() -> None:
    wide = f"SELECT COUNT(*) FROM t WHERE a IN ({', '.join(['CHAR(1)'] * 900)})"
    assert parse(split_statements(wide)[0]).tree is not None
