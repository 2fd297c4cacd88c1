"""Statements of known parts mean what they mean when the parser and the binder read them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dpsql.catalog import Catalog
from dpsql.catalog.read import read_catalog
from dpsql.errors import Error, ProgrammingError
from dpsql.sql import compose
from dpsql.sql.bind import no_public_rows
from dpsql.sql.compiled import Compiled
from dpsql.sql.compose import compile_statement
from dpsql.sql.products import Compiler
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from dpsql.sql.text.prepared_statements import MOST_TESTS, split_at_conditions
from tests.support.effort import effort

COUNT = effort(120)
CATALOG = """
[budget]
epsilon = 1

[table.t]
source = "t.parquet"
privacy_unit = { column = "person", max_rows = 2 }

[table.t.column]
age = { type = "integer", domain = [17, 90] }
sex = { type = "text", domain = ["F", "M", "it's"], null = true }
hours = { type = "number", domain = [0, 100], bins = 10 }
seen = { type = "date", by = "month", domain = ["2024-01-01", "2024-12-31"] }
gain = { type = "number", bounds = [0, 100] }
"""
ZEROS = ("0e0", "(-0e0)", "0e0", "-0e0")
FRAMES = (
    ("SELECT COUNT(*) FROM t", ""),
    ("select count(*) as n, SUM(gain), AVG(gain) from t", ""),
    ("SELECT sex, COUNT(*) FROM t", " GROUP BY sex"),
    ("SELECT age AS hours, COUNT(*) AS age FROM t", " GROUP BY age ORDER BY age"),
    ("SELECT COUNT(*) FILTER (WHERE sex IS NULL) FROM t", ""),
    ("SELECT COUNT(DISTINCT person) FROM t AS x", ""),
    ("SELECT MEDIAN(age) FROM x.t", ""),
    ("SELECT SUM(age) FROM (SELECT age, sex FROM t) AS t", ""),
    ("SELECT sex, SUM(COUNT(*)) OVER (ORDER BY sex) FROM t", "\nGROUP BY sex"),
)
TESTS = (
    *("age = {n}", "age>={n}", "age BETWEEN {n} AND {m}", "age\tIN ({n}, {m},17)", "AGE <> -{n}"),
    *("sex = 'F'", "sex != 'it''s'", "sex NOT IN ('M')", "sex IS NOT NULL", "sex is null"),
    *("hours >= {n}0", "hours < 50", "hours = 'x'", "seen = '2024-03-01'", "seen < '2024-0{k}-01'"),
    *("gain > 3", "nowhere = 1", "person = 3", "person IS NOT NULL", "age IN ()", "age = {n}.5"),
    *(
        "t.age = {n}",
        "x.age = {n}",
        "(age = {n})",
        "age + 1 = {n}",
        "sex LIKE 'F%'",
        "NOT sex = 'F'",
    ),
    *("age = {n} OR sex = 'F'", "age = hours", "seen = DATE '2024-03-01'", "seen < CURRENT_DATE"),
    *("case = 1", "sex = ''", "sex = 'M' -- F", "age = 1 WHERE age = 2", "age = 1_0", "age = 1e1"),
    *(
        "CAST(sex AS INTEGER) = {n}",
        "age > sqrt(age - 20)",
        "age = 99",
        "age=99",
        "1 < hours + age",
    ),
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    path: Path = tmp_path_factory.mktemp("parts") / "c.toml"
    path.write_text(CATALOG)
    return read_catalog(path)


@pytest.fixture(name="pair")
def compilers(catalog: Catalog) -> Iterator[tuple[Compiler, Compiler]]:
    pair = Compiler(catalog), Compiler(catalog)
    yield pair
    for each in pair:
        each.evaluator.close()


def drawn(rng: random.Random) -> str:
    """A statement, of a frame and of tests that are often the first ones: many come again."""
    before, after = FRAMES[int(len(FRAMES) * rng.random() ** 3)]
    values = {"n": rng.choice((17, 30)), "m": 40, "k": rng.choice("37")}
    chosen = [TESTS[int(len(TESTS) * rng.random() ** 3)] for _ in range(rng.choice((1, 1, 2)))]
    tests = rng.choice((" AND ", " and ")).join(chosen).format(**values)
    return f"{before} WHERE {tests}{after}"


def outcome(compiler: Compiler, sql: str, *, recalls: bool) -> object:
    """What a statement is compiled to, or how it is refused, caret included."""
    try:
        statement = parse(split_statements(sql)[0], compiler.parts if recalls else None)
        return told(compile_statement(statement, compiler, no_public_rows))
    except Error as error:
        span = error.span
        place = span and (span.text, span.start, span.end)
        return error.code, error.message, error.hint, place


def told(compiled: Compiled) -> object:
    selects = [
        (each.query, each.types, each.kinds, each.decided, each.key_columns())
        for each in compiled.selects
    ]
    answers = [
        [(term.scale, [(name, f.key) for name, f in term.factors.items()]) for term in answer.terms]
        for _, answer in compiled.answers()
    ]
    return compiled.text, selects, answers, compiled.outer


def test_known_parts_mean_what_the_parser_and_the_binder_read(
    pair: tuple[Compiler, Compiler],
) -> None:
    rng, recall = random.Random(COUNT), compose.recalled
    recalled: list[Compiled] = []

    def noted(*asked: Any) -> Compiled | None:
        found = recall(*asked)
        recalled.extend([] if found is None else [found])
        return found

    with mock.patch.object(compose, "recalled", noted):
        for _ in range(COUNT):
            sql = drawn(rng)
            pair[1].known.clear()  # what was bound in another text says where it stands there
            assert outcome(pair[0], sql, recalls=True) == outcome(pair[1], sql, recalls=False), sql
    assert len(recalled) > 20
    assert len({each.text for each in recalled}) > 10


@pytest.mark.parametrize(
    "test", ["CAST(sex AS INTEGER) = 1", "sqrt(age - 40) > 1", "age > length(sex) / sqrt(age - 40)"]
)
def test_carets_are_where_it_stands_now(pair: tuple[Compiler, Compiler], test: str) -> None:
    for before in ("SELECT COUNT(*) FROM t WHERE ", "SELECT SUM(age) FROM t WHERE age > 20 AND "):
        with pytest.raises(ProgrammingError, match="E_DOMAIN_EVAL") as caught:
            read(before + test, pair[0])
        span = caught.value.span
        assert span is not None
        assert span.text == before + test
        assert span.start >= len(before)


def test_words_are_those_of_the_statement_itself(pair: tuple[Compiler, Compiler]) -> None:
    for test in ("age = 99", "age=99", "age  =  99"):
        (said,) = read(f"SELECT COUNT(*) FROM t WHERE {test}", pair[0]).selects[0].decided
        assert said.startswith(" ".join(test.split()))


def test_zeros_of_both_signs_are_told_apart(pair: tuple[Compiler, Compiler]) -> None:
    form = "SELECT COUNT(*) FROM t WHERE concat(age * {}, sex) = '-0.0F'"
    counts = [len(read(form.format(zero), pair[0]).selects[0].answers[0].terms) for zero in ZEROS]
    assert counts == [0, 1, 0, 1]


def read(sql: str, compiler: Compiler) -> Compiled:
    statement = parse(split_statements(sql)[0], compiler.parts)
    return compile_statement(statement, compiler, no_public_rows)


@pytest.mark.parametrize(
    ("sql", "tests"),
    [
        ("SELECT a FROM t WHERE a=1", ("a=1",)),
        (
            "SELECT a FROM t WHERE a BETWEEN 1 AND 2 AND b = 'x AND y'",
            ("a BETWEEN 1 AND 2", "b = 'x AND y'"),
        ),
        ("SELECT a FROM t WHERE a = 1 OR b = 2", None),
        ("SELECT a FROM t WHERE a = 1 AND NOT b = 2", None),
        ("SELECT a FROM t WHERE a = 1;", None),
        ("SELECT 'WHERE a = 1' FROM t WHERE a = 1", None),
        ("SELECT a /* WHERE */ FROM t WHERE a = 1", None),
        ("SELECT a FROM t WHERE a = 1 GROUP BY ALL", ("a = 1",)),
        ("EXPLAIN SELECT a FROM t WHERE a = 1", None),
        ("SELECT a FROM t WHERE a = 1\x0bAND b = 2", None),
        ("SELECT a FROM t WHERE " + " AND ".join(["a = 1"] * MOST_TESTS), ("a = 1",) * MOST_TESTS),
        ("SELECT a FROM t WHERE " + " AND ".join(["a = 1"] * (MOST_TESTS + 1)), None),
        ("SELECT a FROM t WHERE a = '" + "x" * 5000 + "'", None),
    ],
)
def test_only_what_is_plain_is_cut_up(sql: str, tests: Sequence[str] | None) -> None:
    found = split_at_conditions(sql)
    assert (None if found is None else found.tests) == tests
