"""Hostile and malformed SQL: the stated outcome, and no data, ledger or charge in a refusal."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.world import BOOK, ROOT, ROWS, Case, cases, ledger_state, refusal, watching

pytestmark = pytest.mark.usefixtures("one_reader")

SQL = cases("sql")
SHELL = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"


@pytest.mark.parametrize("case", SQL, ids=lambda case: case.id)
def test_the_outcome_is_the_stated_one(connection: Connection, case: Case) -> None:
    before, entries = ledger_state(connection), len(connection.entries())
    outcome, _, code = case.expected.partition(":")
    with watching() as watch:
        if outcome == "reject_static" or case.until:
            error = refusal(lambda: connection.execute(case.sql))
            assert case.until or error.code == code, str(error)
        elif outcome == "accept_static":
            result = connection.execute(case.sql).result
            assert result.cost is None
            assert all(not errors or not any(errors) for errors in result.stddev)
        else:
            assert outcome == "accept_dp"
            result = connection.execute(case.sql).result
            assert result.cost is not None
            assert not result.cost.free
            assert len(connection.entries()) == entries + 1
            assert watch.counted
            return
        assert watch.opened == watch.loaded == len(watch.counted) == 0
    assert ledger_state(connection) == before


@pytest.mark.parametrize(
    "sql",
    [
        "EXPLAIN SELECT COUNT(*) FROM adult",
        "SHOW budget",
        "SHOW tables",
        "DESCRIBE adult",
        "SET epsilon = 0.5",
    ],
)
def test_public_statements_touch_no_data(connection: Connection, sql: str) -> None:
    before = ledger_state(connection)
    with watching() as watch:
        connection.execute(sql)
        assert watch.opened == watch.loaded == len(watch.counted) == 0
    assert ledger_state(connection) == before


def test_answers_are_those_of_the_statement(connection: Connection) -> None:
    """Post-processing is applied, not dropped: each of these once was, here or elsewhere."""
    one = connection.execute(SHELL + " OFFSET 1").fetchall()
    assert [row[0] for row in one] == ["Male"]
    cast = connection.execute("SELECT CAST(COUNT(*) AS TINYINT) FROM adult").result
    assert cast.rows == ((None,),)
    roots = connection.execute("SELECT SQRT(COUNT(*) - 1e9), LN(COUNT(*) - 1e9) FROM adult").result
    assert roots.rows == ((None, None),)
    young = connection.execute("SELECT COUNT(*) FILTER (WHERE age < 30) FROM adult").fetchone()
    assert young is not None
    assert young[0] < ROWS / 2 + 40
    late = connection.execute("SELECT COUNT(*) FROM adult LIMIT 1 OFFSET 3").fetchall()
    assert late == []


def test_counts_are_never_clamped(world: Path) -> None:
    """B180: at a small epsilon answers exceed the number of rows, and are negative."""
    with dpsql.connect(world, epsilon=0.001) as connection:
        connection.execute("SET fresh = on")
        rows = [connection.execute("SELECT COUNT(*) FROM adult").fetchone() for _ in range(50)]
    counts = [row[0] for row in rows if row is not None]
    assert max(counts) > ROWS
    assert min(counts) < 0


def test_every_declared_group_is_returned_in_order(connection: Connection) -> None:
    """B075: empty groups and the NULL cell are there."""
    rows = connection.execute("SELECT workclass, COUNT(*) FROM adult GROUP BY workclass").fetchall()
    declared = BOOK["table"]["adult"]["columns"]["workclass"]["domain"]
    assert [row[0] for row in rows] == [*declared, None]


def test_case_folding_leads_to_one_ledger(connection: Connection) -> None:
    """B045: ADULT and adult are one table."""
    first = connection.execute("SELECT COUNT(*) FROM ADULT WHERE AGE > 30").fetchall()
    again = connection.execute("select count(*) from adult where age > 30").result
    assert again.cost is not None
    assert again.cost.free
    assert list(again.rows) == first


def test_a_script_with_a_refused_statement_runs_nothing(connection: Connection) -> None:
    """B034, P009: every statement is checked before any of them runs."""
    before = ledger_state(connection)
    count = "SELECT COUNT(*) FROM adult"
    for last, code in [
        ("DROP TABLE adult", "E_STATEMENT"),
        ("DESCRIBE nowhere", "E_UNKNOWN_TABLE"),
        ("EXPLAIN SELECT COUNT(*) FROM nowhere", "E_UNKNOWN_TABLE"),
        ("SELECT LOWER(COUNT(*)) FROM adult", "E_DOMAIN_EVAL"),
        ("RUN WORKLOAD", "E_STATEMENT"),
        ("SET noise = 'white'", "E_SETTING"),
    ]:
        script = f"{count}; {last}"
        with watching() as watch:
            assert refusal(partial(connection.executescript, script)).code == code
            assert not watch.opened
    assert ledger_state(connection) == before


def test_an_open_workload_collects_scripts_too(connection: Connection) -> None:
    connection.executescript("BEGIN WORKLOAD; SELECT COUNT(*) FROM adult")
    assert connection.workload == 1
    assert refusal(lambda: connection.executescript("BEGIN WORKLOAD")).code == "E_STATEMENT"
    connection.executescript("SELECT sex, COUNT(*) FROM adult GROUP BY sex;")
    assert connection.workload == 2
    assert connection.budget.entries == 0
    cursor = connection.executescript("SELECT COUNT(*) FROM visits; RUN WORKLOAD")
    assert connection.workload is None
    assert connection.budget.entries == 1
    assert sum(1 for _ in iter(cursor.nextset, None)) == 3


def test_every_code_is_in_the_list() -> None:
    """Codes are part of the interface."""
    texts = (path.read_text("utf-8") for path in (ROOT / "dpsql").rglob("*.py"))
    raised = {code for text in texts for code in re.findall(r"\"(E_[A-Z_]+)\"", text)}
    assert raised <= set(BOOK["codes"]), sorted(raised - set(BOOK["codes"]))


def test_every_case_has_a_test() -> None:
    """The kinds other than sql name their cases in docstrings or parameters."""
    places = [Path(__file__).parent, Path(__file__).parents[1] / "oracle"]
    paths = [path for place in places for path in place.glob("test_*.py")]
    texts = "".join(path.read_text("utf-8") for path in paths)
    missing = [c["id"] for c in BOOK["cases"] if c["kind"] != "sql" and c["id"] not in texts]
    assert not [id for id in missing if not _waits(id)], missing


def _waits(id: str) -> bool:
    return any(case["id"] == id and "until" in case for case in BOOK["cases"])


def test_arithmetic_of_extreme_numbers_ends_in_a_number_or_null(adult: Connection) -> None:
    random = Random(20261122)
    leaves = ("COUNT(*)", "CAST(COUNT(*) AS BIGINT)", "9000000000000000000", "4000000000", "0.1")

    def tree(depth: int) -> str:
        if depth == 0 or random.random() < 0.2:
            return random.choice(leaves)
        return f"({tree(depth - 1)} {random.choice('+-**/')} {tree(depth - 1)})"

    answered = 0
    for _ in range(60):
        sql = f"SELECT CAST(COUNT(*) AS BIGINT) * {tree(3)} AS x, {tree(4)} AS y FROM adult"
        try:
            row = adult.execute(sql).fetchall()[0]
        except dpsql.ProgrammingError:
            continue  # a constant that is no number: public, told before anything is charged
        answered += 1
        assert all(v is None or isinstance(v, int | float | Decimal) for v in row), sql
    assert answered > 40
