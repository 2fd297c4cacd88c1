"""What never counts, and what the declared domains decide by themselves, is said with each answer.

Both are functions of the SQL and the catalog alone.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.answer.result import Result
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import Connection
from dpsql.sql.bind import bind
from dpsql.sql.products import Compiler
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from dpsql.ui.cli import run_command_line
from dpsql.ui.session import Session
from tests.support.tables import write_tables
from tests.support.visits import CATALOG, TABLES

WHOLE = (
    "visits: at most 4 rows of each patient_id count, none without one; rows with undeclared "
    "severity or day, or without kind or cost are left out"
)
STANDING = WHOLE.replace("count,", "count, among those that conditions on day admit,")
NOWHERE = "severity = 9 holds for no declared value of severity (1 to 5): 0 by declaration"


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    write_tables(tmp_path, CATALOG, TABLES).close()
    return tmp_path / "t.toml"


@pytest.fixture
def connection(catalog: Path) -> Iterator[Connection]:
    with dpsql.connect(catalog, epsilon=1) as opened:
        yield opened


def ask(connection: Connection, sql: str) -> Result:
    return connection.execute(sql).result


def test_an_answer_says_what_is_left_out(connection: Connection) -> None:
    result = ask(connection, "SELECT ward, severity, kind, SUM(cost) FROM visits "
                             "WHERE day IS NOT NULL GROUP BY ALL")  # fmt: skip
    assert result.standing == (STANDING,)
    assert result.notes[-1] == STANDING
    assert STANDING in result._repr_html_()


def test_nothing_is_said_where_every_row_counts(connection: Connection) -> None:
    assert ask(connection, "SELECT ward, COUNT(*) FROM plain GROUP BY ward").notes == ()
    assert ask(connection, "DESCRIBE plain").notes == ()


def test_forecasts_and_descriptions_say_it(connection: Connection) -> None:
    sql = "SELECT kind, SUM(cost) FROM visits WHERE severity > 2 AND day IS NOT NULL GROUP BY kind"
    both = STANDING.replace("conditions on day", "conditions on severity and day")
    assert f"left out    {both}" in connection.explain(sql).lines()
    (described,) = ask(connection, "DESCRIBE visits").notes
    everything = WHOLE.replace("severity or day", "severity, age or day")
    assert described == f"{everything} where these columns are mentioned"
    clip = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(clip = 'svt') SUM(cost) FROM visits"
    said = next(s for s in ask(connection, clip).standing)
    assert "or without" in said or "rows without" in said
    assert f"left out    {said}" in connection.explain(clip).lines()


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("severity = 9", NOWHERE),
        ("severity > 2 * (2 + 1)", "severity > 2 * (2 + 1) holds for no declared value"),
        ("severity = 1 AND severity = 2", "severity = 1 and severity = 2 holds for no declared"),
        ("severity IN (1, 9)", "9 is no declared value of severity (1 to 5)"),
        ("severity <> -1", "-1 is no declared value of severity (1 to 5)"),
        ("day >= '2030-01-01'", "holds for no declared value of day (366 days from 2024-01-01"),
        ("day = DATE '2023-12-31'", "holds for no declared value of day"),
        ("severity > 5 + month(day)", "severity > 5 + month(day) holds for no declared values"),
    ],
)
def test_what_a_domain_decides_is_said(connection: Connection, condition: str, said: str) -> None:
    for sql in (
        f"SELECT COUNT(*) FROM visits WHERE {condition}",
        f"SELECT COUNT(*) FILTER (WHERE {condition}), COUNT(*) FROM visits",
        f"SELECT COUNT_IF({condition}) FROM visits",
    ):
        assert any(said in note for note in ask(connection, sql).notes), sql
        lines = connection.explain(sql).lines()
        assert any(line.startswith("declared    ") and said in line for line in lines), sql


@pytest.mark.parametrize("aggregate", ["AVG(severity)", "SUM(severity)", "COUNT(severity)"])
def test_only_what_is_written_is_said_to_hold_nowhere(
    connection: Connection, aggregate: str
) -> None:
    where = "severity > 4 AND severity < 9 AND severity < 4"
    notes = ask(connection, f"SELECT {aggregate} FROM visits WHERE {where}").notes
    said = [note.split(" holds for")[0] for note in notes if "holds for no declared" in note]
    assert said == ["severity > 4 and severity < 4"]


@pytest.mark.parametrize("condition", ["severity = 5", "day = '2024-02-29'", "kind = 'other'"])
def test_nothing_is_said_of_declared_values(connection: Connection, condition: str) -> None:
    result = ask(connection, f"SELECT COUNT(*) FROM visits WHERE {condition}")
    assert result.notes == result.standing


NUMBER = st.integers(-3, 9)
TEST = st.one_of(
    st.builds("severity {} {}".format, st.sampled_from(["=", "<", ">=", "<>"]), NUMBER),
    st.builds("severity BETWEEN {} AND {}".format, NUMBER, NUMBER),
    st.builds("severity IN ({}, {})".format, NUMBER, NUMBER),
    st.builds("severity % 3 = {}".format, NUMBER),
    st.builds("(severity = {} OR day < '2024-0{}-01')".format, NUMBER, st.integers(1, 9)),
    st.builds("day > DATE '20{}-12-30'".format, st.integers(22, 26)),
    st.builds("(severity > {} AND day IS NULL OR severity = {})".format, NUMBER, NUMBER),
)


@settings(max_examples=150, deadline=None, database=None)
@given(tests=st.lists(TEST, min_size=1, max_size=3))
@pytest.mark.slow
def test_no_answer_is_nothing_by_declaration_without_a_word(
    compiler: Compiler, tests: list[str]
) -> None:
    """Whatever the conditions, 0 ± 0 comes with a reason, and a reason only where it is true."""
    select = compiled(compiler, f"SELECT COUNT(*) FROM visits WHERE {' AND '.join(tests)}")
    nothing = not any(answer.whole for answer in select.answers)
    reasons = [said for said in select.decided if "0 by declaration" in said]
    if nothing and len(tests) == 1:
        assert reasons, tests
    assert nothing or not reasons, tests


def compiled(compiler: Compiler, sql: str) -> Any:
    (fragment,) = split_statements(sql)
    tree = parse(fragment).tree
    assert tree is not None
    return compiler.compile(bind(tree, fragment, compiler.catalog))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    path = tmp_path_factory.mktemp("notes") / "visits.toml"
    path.write_text(CATALOG, encoding="utf-8")
    found = Compiler(read_catalog(path))
    yield found
    found.evaluator.close()


def test_the_prompt_tells_what_stands_once(
    connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session(connection, "visits", "csv")
    found = []
    for sql in ("SELECT SUM(cost) FROM visits", "SELECT SUM(cost) + 1 FROM visits"):
        session.run_statement(sql)
        found.append(capsys.readouterr().err)
    assert "note: visits: at most 4 rows of each patient_id count" in found[0]
    assert "at most 4 rows" not in found[1]
    for _ in range(2):
        session.run_statement("SELECT COUNT(*) FROM visits WHERE severity = 9")
        assert f"note: {NOWHERE}" in capsys.readouterr().err


def test_a_batch_and_its_report_say_it(catalog: Path, tmp_path: Path) -> None:
    workload = tmp_path / "w.sql"
    workload.write_text(
        "SELECT severity, kind, SUM(cost) FROM visits WHERE day IS NOT NULL GROUP BY ALL;\n"
        "SELECT COUNT(*) AS n FROM visits WHERE severity = 9;\n"
    )
    out, page = tmp_path / "out", tmp_path / "page.html"
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        given = ["run", str(workload), "--catalog", str(catalog), "-e", "1"]
        status = run_command_line([*given, "--out", str(out), "--report", str(page)])
    assert status == 0
    assert told.getvalue().count(f"note: {STANDING}") == 1
    facts = json.loads((out / "summary.json").read_text("utf-8"))
    assert [STANDING in each["notes"] for each in facts["statements"]] == [True, True]
    assert NOWHERE in facts["statements"][1]["notes"]
    summary = (out / "summary.md").read_text("utf-8")
    assert f"- {STANDING}\n" in summary
    assert f"- {NOWHERE} (002)\n" in summary
    assert STANDING in page.read_text("utf-8")
