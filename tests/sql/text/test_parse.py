"""Splitting, limits, our own statements and parameters."""

from __future__ import annotations

import contextlib
import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from dpsql.errors import Error, ProgrammingError
from dpsql.interrupts import Cancellation
from dpsql.sql.text.clauses import read_truncation
from dpsql.sql.text.lexemes import (
    MAX_STATEMENTS,
    MAX_TEXT,
    lex,
    render_literal,
    split_script,
    split_statements,
)
from dpsql.sql.text.parameters import bind_parameters
from dpsql.sql.text.parse import Statement, parse


def parse_one(text: str) -> Statement:
    (fragment,) = split_statements(text)
    return parse(fragment)


@pytest.mark.parametrize(
    "place",
    [
        "{}",
        "({})",
        "WITH c AS ({}) SELECT COUNT(*) FROM c",
        "SELECT COUNT(*) FROM ({}) AS s",
        "SELECT COUNT(*) FROM t UNION ALL {}",
        "{} UNION ALL SELECT COUNT(*) FROM t",
        "SELECT COUNT(*) FROM t WHERE x IN ({})",
        "SELECT COUNT(*) FROM t WHERE x > ({})",
        "SELECT COUNT(*) FROM t WHERE NOT EXISTS (SELECT x FROM ({}) AS s)",
        "SELECT COUNT(*), ({}) FROM t",
    ],
)
def test_a_select_of_nothing_is_told_as_that_wherever_it_stands(place: str) -> None:
    ends = ("", "FROM t", "DISTINCT FROM t", "WHERE x > 1", "FROM t GROUP BY x", "HAVING x > 1")
    for end in ends:
        sql = place.format(f"SELECT {end}")
        with pytest.raises(ProgrammingError, match="nothing is selected") as told:
            parse_one(sql)
        assert told.value.code == "E_PARSE", sql
        assert told.value.hint


def test_split_keeps_quotes_and_comments_together() -> None:
    text = "SELECT ';', \";\" FROM t; -- a; b\n/* c; */ SHOW budget ; \n ;; SET epsilon = 1"
    assert [f.body for f in split_statements(text)] == [
        "SELECT ';', \";\" FROM t",
        "SHOW budget",
        "SET epsilon = 1",
    ]


@pytest.mark.parametrize("rest", ["SELECT 'a;", "SELECT 1", "SELECT 1 -- ;", 'SELECT ";'])
def test_the_unfinished_rest_is_returned(rest: str) -> None:
    complete, left = split_script("SHOW budget; " + rest)
    assert [f.body for f in complete] == ["SHOW budget"]
    assert left.strip() == rest


def test_a_blank_rest_is_nothing() -> None:
    assert split_script("SHOW budget; -- done\n")[1] == ""
    assert split_statements(" -- nothing\n") == []


@given(st.text(max_size=200))
def test_lexemes_cover_the_text(text: str) -> None:
    assert "".join(lexeme.text for lexeme in lex(text)) == text


@given(st.text(alphabet="ab';\"-/*\n ()", max_size=60))
def test_any_text_is_split_and_parsed_or_refused(text: str) -> None:
    for fragment in split_statements(text):
        with contextlib.suppress(Error):
            parse(fragment)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("SET epsilon = 0.5", "set", ("epsilon", "0.5")),
        ("set noise to 'gaussian'", "set", ("noise", "gaussian")),
        ("SET delta 1e-9", "set", ("delta", "1e-9")),
        ("SET epsilon = -1", "set", ("epsilon", "-1")),
        ("SHOW budget", "show", ("budget",)),
        ('DESCRIBE "Adult"', "describe", ("Adult",)),
        ("begin workload", "begin", ()),
        ("RUN WORKLOAD", "run", ()),
    ],
)
def test_own_statements(text: str, kind: str, words: tuple[str, ...]) -> None:
    statement = parse_one(text)
    assert (statement.kind, statement.words) == (kind, words)


def test_options_are_cut_out_and_positions_stay() -> None:
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=.5,\n noise='laplace') COUNT(*) FROM t"
    statement = parse_one("EXPLAIN " + text)
    assert statement.options == (("epsilon", ".5"), ("noise", "laplace"))
    assert statement.tree is not None
    assert statement.tree.find(exp.Table).this.meta["start"] == text.index("t", 70)  # type: ignore[union-attr]


def test_options_stand_in_the_final_select_after_common_tables() -> None:
    clause = "WITH DIFFERENTIAL_PRIVACY\n OPTIONS(clip = 'svt')"
    first = "WITH c AS (SELECT clip = 3 AS x FROM t), d AS (SELECT 1)\n SELECT "
    rest = " SUM(x) FROM c WHERE x IN (SELECT 2)"
    statement = parse_one("EXPLAIN " + first + clause + rest)
    assert statement.options == (("clip", "svt"),)
    blank = "".join("\n" if char == "\n" else " " for char in clause)
    assert statement.sql == first + blank + rest
    truncation = read_truncation(statement.fragment, statement.options)
    assert truncation is not None
    span = truncation.span
    assert span.text[span.start : span.end] == "clip = 'svt'"


def test_explain_marks_a_select_and_keeps_positions() -> None:
    statement = parse_one("EXPLAIN SELECT COUNT(*) FROM t")
    assert statement.kind == "select"
    assert statement.explain
    assert statement.fragment.body == "SELECT COUNT(*) FROM t"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELEC COUNT(*) FROM t", "E_STATEMENT"),
        ("SELECT COUNT(* FROM t", "E_PARSE"),
        ("SELECT COUNT(*) FROM t WHERE", "E_PARSE"),
        ("SELECT COUNT(*) FROM t WHERE a = 'b", "E_PARSE"),
        ("SELECT COUNT(*) FROM t WHERE a = $$b$$", "E_PARSE"),
        ("SELECT COUNT(*) FROM t WHERE a = 'A\0B'", "E_CONTROL_CHAR"),
        ("SELECT COUNT(*) FROM t WHERE a = '\x1b[31m'", "E_CONTROL_CHAR"),
        ("SELECT COUNT(*) FROM t WHERE a > " + "(" * 2000 + "1" + ")" * 2000, "E_TOO_COMPLEX"),
        ("SELECT COUNT(*) FROM t WHERE " + "NOT " * 300 + "a = 1", "E_TOO_COMPLEX"),
        ("SELECT COUNT(*) FROM t WHERE " + " OR ".join(["a = 1"] * 900), "E_TOO_COMPLEX"),
        ("SELECT COUNT(*) FROM t WHERE a IN (" + ",".join(["1"] * 5000) + ")", "E_TOO_LARGE"),
        ("SELECT COUNT(*) FROM t WHERE a > " + "9" * 5000, "E_LITERAL"),
        ("SELECT COUNT(*) FROM t WHERE a > 1e400", "E_LITERAL"),
        ("SELECT COUNT(*) FROM t WHERE a = '" + "x" * 5000 + "'", "E_LITERAL"),
        ("SELECT COUNT(*) FROM t -- " + "x" * MAX_TEXT + "\n WHERE a = 1", "E_TOO_LARGE"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1,) 1", "E_PARSE"),
        ("SET epsilom = 1", "E_SETTING"),
        ("SET enable_external_access=true", "E_SETTING"),
        ("SET epsilon", "E_SETTING"),
        ("SHOW tabels", "E_SETTING"),
        ("SHOW", "E_SETTING"),
        ("EXPLAIN ANALYZE SELECT COUNT(*) FROM t", "E_STATEMENT"),
        ("EXPLAIN EXPLAIN SELECT 1", "E_STATEMENT"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilom=1) COUNT(*) FROM t", "E_SETTING"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, epsilon=2) 1", "E_SETTING"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon) COUNT(*) FROM t", "E_PARSE"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1 COUNT FROM t", "E_PARSE"),
        ("SELECT COUNT(*) FROM t OPTIONS (epsilon = 1)", "E_PARSE"),
        ("ATTACH 'other.db' AS y", "E_STATEMENT"),
        ("INSTALL httpfs", "E_STATEMENT"),
        ("PRAGMA database_list", "E_STATEMENT"),
        ("SUMMARIZE adult", "E_STATEMENT"),
        ("CREATE TABLE x AS SELECT * FROM adult", "E_STATEMENT"),
        ("INSERT INTO adult VALUES (1)", "E_STATEMENT"),
        ("DROP TABLE adult", "E_STATEMENT"),
        ("COPY adult TO 'x.csv'", "E_STATEMENT"),
        ("CALL pragma_version()", "E_STATEMENT"),
    ],
)
def test_refusals_have_codes(text: str, code: str) -> None:
    with pytest.raises(Error) as caught:
        parse_one(text)
    assert caught.value.code == code


def test_a_caret_points_into_the_script() -> None:
    text = "SHOW budget;\n  SELECT COUNT(*) FROM t WHERE (a = 1;\n"
    with pytest.raises(Error) as caught:
        parse(split_statements(text)[1])
    assert caught.value.span is not None
    assert caught.value.span.position()[0] == 2
    assert "line 2:" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (3, "3"),
        (-3, "(-3)"),
        (2.5, "2.5"),
        (Decimal("1.50"), "1.50"),
        (-2.5, "(-2.5)"),
        (Decimal("-0.5"), "(-0.5)"),
        ("it's", "'it''s'"),
        (dt.date(2024, 2, 29), "DATE '2024-02-29'"),
    ],
)
def test_parameters_become_literals(value: object, text: str) -> None:
    assert render_literal(value) == text


def test_marks_inside_quotes_are_text() -> None:
    assert bind_parameters("a = ? -- ?\n AND b = '?'", [1]) == "a = 1 -- ?\n AND b = '?'"


@pytest.mark.parametrize("values", [[], [1, 2], [object()], [float("nan")]])
def test_wrong_parameters_are_refused(values: list[object]) -> None:
    with pytest.raises(Error, match=r"\?|parameter"):
        bind_parameters("a = ?", values)


def test_a_script_of_very_many_statements_is_refused_before_it_is_split() -> None:
    few, many = ("SELECT 1;" * n for n in (MAX_STATEMENTS, 20 * MAX_STATEMENTS))
    assert len(split_statements(few)) == MAX_STATEMENTS
    with pytest.raises(ProgrammingError) as caught:
        split_statements(many)
    assert caught.value.code == "E_TOO_LARGE"
    assert caught.value.span is not None
    assert caught.value.span.end <= 9 * (MAX_STATEMENTS + 1)


def test_a_script_that_is_split_looks_whether_it_is_to_end() -> None:
    wish = Cancellation()
    wish.ask()
    with wish, pytest.raises(KeyboardInterrupt):
        split_statements("SELECT 1;" * 9)
