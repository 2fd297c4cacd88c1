"""Inlining: a statement over a CTE, a view or a sub-query compiles like the flat statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpsql.catalog import Table
from dpsql.catalog.read import read_catalog
from dpsql.errors import Error
from dpsql.sql.compiled import Compiled
from dpsql.sql.compose import compile_statement
from dpsql.sql.products import Compiler
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse

CATALOG = """
[budget]
epsilon = 1

[table.adult]
source = "adult.parquet"
privacy_unit = { column = "person", max_rows = 2 }

[table.adult.column]
age = { type = "integer", domain = [17, 90] }
sex = { type = "text", domain = ["F", "M"] }
hours = { type = "integer", domain = [1, 99] }
gain = { type = "number", bounds = [0, 100] }
note = { type = "text" }

[table.bands]
source = "bands.parquet"
public = true

[table.bands.column]
lo = { type = "integer" }
hi = { type = "integer" }

[view.working]
sql = "SELECT age // 10 AS band, sex, gain FROM adult WHERE hours > 30"

[view.older]
sql = "SELECT band + 1 AS next, sex AS s FROM working WHERE band > 3"

[view.circle]
sql = "SELECT * FROM circle"
"""
FLAT = "SELECT age // 10 AS band, COUNT(*) FROM adult WHERE hours > 30 GROUP BY age // 10"


def bands(table: Table) -> dict[str, tuple[str, Sequence[Any]]]:
    return {"lo": ("BIGINT", [20, 30]), "hi": ("BIGINT", [29, 39])}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    path: Path = tmp_path_factory.mktemp("inline") / "c.toml"
    path.write_text(CATALOG)
    compiler = Compiler(read_catalog(path))
    yield compiler
    compiler.evaluator.close()


def build(compiler: Compiler, sql: str) -> Compiled:
    return compile_statement(parse(split_statements(sql)[0]), compiler, bands)


def same(compiler: Compiler, one: str, two: str) -> None:
    left, right = build(compiler, one), build(compiler, two)
    assert left.outer is None
    assert right.outer is None
    queries = [replace(each.selects[0].query, text="") for each in (left, right)]
    shells = [query.shell for query in queries]
    assert shells[0] == shells[1]
    assert len(queries[0].keys) == len(queries[1].keys)
    answers = [each.selects[0].answers for each in (left, right)]
    for a, b in zip(*answers, strict=True):
        found = [
            [{n: f.key for n, f in term.factors.items()} for term in answer.terms]
            for answer in (a, b)
        ]
        assert found[0] == found[1]
        assert [axis.keys for axis in a.axes] == [axis.keys for axis in b.axes]


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (SELECT age // 10 AS band, sex FROM adult WHERE hours > 30)"
        " SELECT band, COUNT(*) FROM x GROUP BY band",
        "SELECT band, COUNT(*) FROM working GROUP BY band",
        "SELECT w.band, COUNT(*) FROM working AS w GROUP BY w.band",
        "SELECT b AS band, COUNT(*) FROM working AS w(b) GROUP BY b",
        "WITH x(band) AS (SELECT age // 10 FROM adult WHERE hours > 30)"
        " SELECT band, COUNT(*) FROM x GROUP BY 1",
        "SELECT age // 10 AS band, COUNT(*) FROM (SELECT * FROM adult) a WHERE hours > 30"
        " GROUP BY ALL",
        "WITH x AS (SELECT age, hours AS h FROM adult), y AS (SELECT age // 10 AS band, h FROM x)"
        " SELECT band, COUNT(*) FROM (SELECT band FROM y WHERE h > 30) z GROUP BY band",
        # columns that nothing uses do no harm
        "WITH x AS (SELECT age // 10 AS band, note || '!' AS n, gain FROM adult WHERE hours > 30)"
        " SELECT band, COUNT(*) FROM x GROUP BY band",
    ],
)
def test_it_compiles_like_the_flat_statement(compiler: Compiler, sql: str) -> None:
    same(compiler, sql, FLAT)


@pytest.mark.parametrize(
    ("sql", "flat"),
    [
        (
            "SELECT next, COUNT(*) AS n FROM older WHERE s = 'F' GROUP BY next ORDER BY n LIMIT 2",
            "SELECT (age // 10) + 1 AS next, COUNT(*) AS n FROM adult WHERE hours > 30 AND"
            " (age // 10) > 3 AND sex = 'F' GROUP BY (age // 10) + 1 ORDER BY COUNT(*) LIMIT 2",
        ),
        (
            "WITH adult AS (SELECT sex AS age, age AS sex FROM adult)"
            " SELECT age, COUNT(*) FROM adult WHERE sex > 40 GROUP BY age",
            "SELECT sex AS age, COUNT(*) FROM adult WHERE age > 40 GROUP BY adult.sex",
        ),
        (
            "SELECT lo, COUNT(*) FROM (SELECT age AS y FROM adult) q JOIN bands"
            " ON y BETWEEN lo AND hi GROUP BY lo",
            "SELECT lo, COUNT(*) FROM adult JOIN bands ON age BETWEEN lo AND hi GROUP BY lo",
        ),
        (
            "SELECT COUNT(*) FROM adult WHERE age IN (SELECT lo FROM bands)",
            "SELECT COUNT(*) FROM adult WHERE age IN (20, 30)",
        ),
        (
            "SELECT SUM(g), AVG(g) FROM (SELECT gain AS g FROM adult) q",
            "SELECT SUM(gain), AVG(gain) FROM adult",
        ),
        (
            "SELECT COUNT(DISTINCT person) FROM (SELECT person, age FROM adult WHERE age > 50) q",
            "SELECT COUNT(DISTINCT person) FROM adult WHERE age > 50",
        ),
    ],
)
def test_names_and_clauses_are_carried_over(compiler: Compiler, sql: str, flat: str) -> None:
    left, right = build(compiler, sql), build(compiler, flat)
    assert left.outer is None
    terms = [
        [[{n: f.key for n, f in t.factors.items()} for t in a.terms] for _, a in each.answers()]
        for each in (left, right)
    ]
    assert terms[0] == terms[1]
    shells = [each.selects[0].query.shell for each in (left, right)]
    assert [o.sql for o in shells[0].outputs] == [o.sql for o in shells[1].outputs]
    assert shells[0].tail == shells[1].tail


@pytest.mark.parametrize(
    ("sql", "code", "marked"),
    [
        ("SELECT COUNT(*) FROM (SELECT age FROM adult LIMIT 5) q", "E_LIMIT", "5"),
        ("SELECT COUNT(*) FROM (SELECT age FROM adult ORDER BY age LIMIT 5) q", "E_LIMIT", "5"),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT * FROM adult) q", "E_AGGREGATE", "*"),
        (
            "SELECT COUNT(*) FROM (SELECT row_number() OVER () AS r FROM adult) q",
            "E_WINDOW",
            "row_number",
        ),
        ("SELECT COUNT(*) FROM (SELECT age FROM adult USING SAMPLE 3) q", "E_SAMPLE", "3"),
        ("WITH x AS (SELECT age FROM adult TABLESAMPLE 10%) SELECT COUNT(*) FROM x",
         "E_SAMPLE", ""),
        ("WITH x AS (SELECT age FROM adult) SELECT sex, COUNT(*) FROM x GROUP BY sex",
         "E_UNKNOWN_COLUMN", "sex"),
        ("WITH x AS (SELECT aeg FROM adult) SELECT COUNT(*) FROM x", "E_UNKNOWN_COLUMN", "aeg"),
        ("WITH u AS (SELECT aeg FROM adult) SELECT COUNT(*) FROM adult", "E_UNKNOWN_COLUMN", "aeg"),
        ("WITH x AS (SELECT age FROM adult) SELECT COUNT(*) FROM x JOIN x AS y USING (age)",
         "E_JOIN", "x AS y"),
        ("WITH x AS (SELECT age FROM adult) SELECT COUNT(*) FROM x JOIN adult USING (age)",
         "E_JOIN", "adult"),
        ("WITH x AS (SELECT age FROM adult) SELECT * FROM x", "E_NO_AGGREGATE", ""),
        ("WITH RECURSIVE x AS (SELECT age FROM adult) SELECT COUNT(*) FROM x", "E_CTE", ""),
        ("WITH x AS (SELECT age FROM adult), x AS (SELECT sex FROM adult) SELECT COUNT(*) FROM x",
         "E_CTE", ""),
        ("SELECT COUNT(*) FROM circle", "E_CTE", "circle"),
        ("SELECT gap, COUNT(*) FROM working GROUP BY gap", "E_UNKNOWN_COLUMN", "gap"),
        ("SELECT gain, COUNT(*) FROM working GROUP BY gain", "E_DOMAIN", "working"),
        ("SELECT COUNT(*) FROM adult WHERE age = (SELECT lo FROM bands)", "E_SUBQUERY", "lo"),
        ("SELECT COUNT(*) FROM adult WHERE age > (SELECT MAX(lo) FROM band)",
         "E_UNKNOWN_TABLE", "band"),
        ("SELECT COUNT(*) FROM adult WHERE EXISTS (SELECT 1 FROM band)", "E_UNKNOWN_TABLE", "band"),
        ("SELECT COUNT(*) FROM adult WHERE age > (SELECT MAX(lo) FROM bands WHERE hi > age)",
         "E_SUBQUERY", "age"),
        ("SELECT MEDIAN(age) FROM adult WHERE age > (SELECT AVG(age) FROM adult)",
         "E_SUBQUERY", ""),
        ("SELECT COUNT(*) FROM adult WHERE age IN (SELECT age FROM adult)", "E_SUBQUERY", ""),
        ("SELECT COUNT(*) FROM bands LEFT JOIN (SELECT age FROM adult) q ON age = lo",
         "E_JOIN", ""),
        ("SELECT COUNT(*) FROM adult, LATERAL (SELECT 1) q", "E_JOIN", ""),
        ("SELECT COUNT(*) FROM (SELECT age FROM adult) AS q(a, b)", "E_STATEMENT", "q(a, b"),
        ("WITH x(a, b, c) AS (SELECT age, sex FROM adult) SELECT COUNT(*) FROM x",
         "E_STATEMENT", "x(a, b, c"),
        ("SELECT a FROM (SELECT COUNT(*) FROM adult) AS q(a, b)", "E_STATEMENT", "q(a, b"),
        ("SELECT COUNT(*) FROM (SELECT lo FROM bands) AS p(a, b) JOIN adult ON a = age",
         "E_STATEMENT", "p(a, b"),
        ("SELECT a FROM (VALUES (1), (2)) AS v(a, b), (SELECT COUNT(*) FROM adult) AS q",
         "E_STATEMENT", "v(a, b"),
    ],
)  # fmt: skip
def test_refusals_have_code_caret_and_hint(
    compiler: Compiler, sql: str, code: str, marked: str
) -> None:
    with pytest.raises(Error) as caught:
        build(compiler, sql)
    error = caught.value
    assert error.code == code, str(error)
    assert error.span is not None
    assert marked in error.span.text[error.span.start : error.span.end]
    assert error.hint


def test_names_of_names_do_not_grow_without_bound(compiler: Compiler) -> None:
    steps = ["x0 AS (SELECT age AS a FROM adult)"]
    steps += [f"x{k + 1} AS (SELECT a + a AS a FROM x{k})" for k in range(40)]
    with pytest.raises(Error) as caught:
        build(compiler, f"WITH {', '.join(steps)} SELECT COUNT(*) FROM x40 WHERE a > 3")
    assert caught.value.code == "E_TOO_COMPLEX"
