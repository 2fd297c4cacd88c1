"""State that outlives a statement: what was asked before changes no answer but by what it costs."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.answer.accuracy import TIE, ComparedErrors
from dpsql.dbapi.connection import Connection, Cursor, Result
from dpsql.engine.engine import Engine
from dpsql.plan.request import make_plan
from tests.support.effort import IS_LARGE, effort
from tests.support.oracle import (
    INSIDE,
    ROWS,
    VALUES,
    compare,
    declare_view,
    mentioned,
    write_world,
)
from tests.support.seam import zero_noise
from tests.support.sequences import Step, pairs, sequences, twins
from tests.support.statements import Statement

pytestmark = pytest.mark.slow

SEQUENCES = effort(2)
PAIRS = effort(20)
OUTCOMES = ("free", "measured", "measured though determined")
REFUSED = {"E_TOO_LARGE", "E_PREDICATE"}

MEANS = "SELECT AVG(age) AS mean, COUNT(*) AS n FROM adult"
COUNTED = "SELECT COUNT(*) AS n, AVG(age) AS mean FROM adult"
BY_SEX = "COUNT(*) FILTER (WHERE sex = '{}') AS {}"
PAIR = f"SELECT {BY_SEX.format('Male', 'm')}, {BY_SEX.format('Female', 'f')} FROM adult"
SWAPPED = f"SELECT {BY_SEX.format('Female', 'f')}, {BY_SEX.format('Male', 'm')} FROM adult"
MEDIANS = "SELECT MEDIAN(age) AS x, MEDIAN(hours_per_week) AS y FROM adult"
EXCHANGED = "SELECT MEDIAN(hours_per_week) AS x, MEDIAN(age) AS y FROM adult"


@pytest.mark.parametrize(
    ("before", "asked"), [(MEANS, COUNTED), (COUNTED, MEANS), (SWAPPED, PAIR), (MEDIANS, EXCHANGED)]
)
@pytest.mark.parametrize("fresh", ["off", "on"])
@pytest.mark.parametrize("ask", ["explain", "execute"])
def test_the_same_content_in_another_order(
    demo: Path, before: str, asked: str, fresh: str, ask: str
) -> None:
    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW adult AS FROM '{demo / 'adult.parquet'}'")
        expected = database.execute(asked).fetchone()
    with zero_noise(), dpsql.connect(demo / "adult.toml", epsilon=0.5) as connection:
        connection.execute(f"SET fresh = {fresh}")
        getattr(connection, ask)(before)
        assert connection.execute(asked).fetchone() == pytest.approx(expected, rel=1e-6)


class Session:
    """Two connections to one catalog, and a third to a catalog of its own that reuses nothing.

    Answers without noise are compared with DuckDB's, standard errors with those of the third.
    """

    def __init__(self, folder: Path, rows: list[tuple[Any, ...]], complete: bool = False) -> None:
        self.rows = len(rows)
        self.seen: Counter[str] = Counter()
        (folder / "own").mkdir()
        self.complete = complete
        self.database = write_world(folder / "own", rows)
        catalog = folder / "own" / "t.toml"
        unit = 'privacy_unit = "row"'
        text = catalog.read_text("utf-8").replace(
            unit, f"{unit}\ncomplete = true" * complete or unit
        )
        catalog.write_text(text, "utf-8")
        shutil.copytree(folder / "own", folder / "other")
        self.path = folder / "own" / "t.toml"
        self.connections = [self._connect(self.path) for _ in range(2)]
        self.other = self._connect(folder / "other" / "t.toml")

    def _connect(self, path: Path) -> Connection:
        connection = dpsql.connect(path, epsilon=1, delta=1e-9)
        connection.execute("SET mechanism = identity")
        return connection

    def close(self) -> None:
        for each in (*self.connections, self.other):
            each.close()
        self.database.close()

    def do(self, step: Step) -> None:
        """Do one step, and check whatever comes of it."""
        connection = self.connections[step.who]
        sql = [each.sql for each in step.statements]
        match step.kind:
            case "set":
                connection.execute(f"SET {step.setting}")
            case "restart":
                terms = connection.terms
                connection.close()
                self.connections[step.who] = connection = self._connect(self.path)
                connection.terms = terms
            case "explain":
                before = connection.budget.entries
                _accepted(lambda: connection.explain(sql[0]))
                assert connection.budget.entries == before
            case "foretell":
                self._foretell(connection, sql[0])
            case "ask":
                self._check(connection, step, lambda c: c.execute(sql[0]))
            case "script":
                self._check(connection, step, lambda c: c.executescript(";".join(sql)))
            case "workload":
                self._check(connection, step, lambda c: _collected(c, sql))

    def _foretell(self, connection: Connection, sql: str) -> None:
        """EXPLAIN says what the same statement costs right after."""
        before = connection.budget.entries
        forecast = _accepted(lambda: connection.explain(sql))
        if forecast is not None and sql.count("SELECT") == 1:
            result = connection.execute(sql).result
            paid = connection.budget.entries > before
            assert forecast.free != paid, f"{sql}\n{forecast}\n{result.notes}"

    def _check(
        self, connection: Connection, step: Step, ask: Callable[[Connection], Cursor]
    ) -> None:
        cursor = _accepted(lambda: ask(connection))
        if cursor is None:
            connection.rollback()
            return
        found = _results(cursor)
        sql = [each.sql for each in step.statements]
        declare_view(self.database, INSIDE if self.complete else mentioned(connection, *sql))
        self.other.terms = connection.terms.with_text("reuse", "never")
        anew = _results(ask(self.other))
        for statement, result, new in zip(step.statements, found, anew, strict=True):
            compare(statement, result, self.database, self.rows)
            self.seen[_outcome(result)] += 1
            if connection.terms.reuse != "always":
                _check_errors(statement, result, new)


def _outcome(result: Result) -> str:
    if result.cost is None or result.cost.free:
        return "free"
    determined = any("SET reuse = always" in note for note in result.notes)
    return "measured though determined" if determined else "measured"


def _check_errors(statement: Statement, result: Result, new: Result) -> None:
    """No standard error is above that of a new measurement; what was paid for is one."""
    about = f"{statement.sql}\n{result.stddev}\n{new.stddev}\n{result.cost} {result.notes}"
    for left, right in zip(result.stddev, new.stddev, strict=True):
        assert (left is None) == (right is None), about
        one, two = (
            sorted(each for each in side or () if each is not None) for side in (left, right)
        )
        assert len(one) == len(two), about
        for a, b in zip(one, two, strict=True):
            assert a <= b * (1 + TIE) + 1e-12, about
            if result.cost is not None and not result.cost.free:
                assert a == pytest.approx(b, rel=1e-6), about


def _results(cursor: Cursor) -> list[Result]:
    found = [cursor.result]
    while cursor.nextset():
        found.append(cursor.result)
    return found


def _collected(connection: Connection, sql: list[str]) -> Cursor:
    connection.execute("BEGIN WORKLOAD")
    for each in sql:
        connection.execute(each)
    return connection.execute("RUN WORKLOAD")


def _accepted(work: Callable[[], Any]) -> Any:
    """What comes of some work; None where it is refused for its size."""
    try:
        return work()
    except dpsql.Error as error:
        if error.code not in REFUSED:
            raise AssertionError(str(error)) from error
        return None


def run(rows: list[tuple[Any, ...]], steps: list[Step]) -> None:
    """Run a sequence from its beginning."""
    with tempfile.TemporaryDirectory() as folder, zero_noise(), ExitStack() as stack:
        session = Session(Path(folder), rows)
        stack.callback(session.close)
        for step in steps:
            session.do(step)


def searched(examples: int, derandomize: bool = True) -> Any:
    """A search for a sequence that fails."""
    return _settings(examples, derandomize)(given(rows=ROWS, steps=sequences())(run))


def _settings(examples: int, derandomize: bool) -> Any:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=derandomize,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def test_no_sequence_of_statements_spoils_an_answer() -> None:
    searched(SEQUENCES, not IS_LARGE)()


def ask_many(
    requests: st.SearchStrategy[list[Step]], tables: int, each: int, derandomize: bool = True
) -> Counter[str]:
    """Ask random groups of requests, ``each`` of a table; return how often what came of them."""
    seen: Counter[str] = Counter()

    def ask(rows: list[tuple[Any, ...]], wanted: list[list[Step]]) -> None:
        with tempfile.TemporaryDirectory() as folder, zero_noise(), ExitStack() as stack:
            session = Session(Path(folder), rows, complete=True)
            stack.callback(session.close)
            for step in (step for group in wanted for step in group):
                session.do(step)
            seen.update(session.seen)

    table = st.lists(st.tuples(*map(st.sampled_from, VALUES)), min_size=20, max_size=40)
    search = given(rows=table, wanted=st.lists(requests, min_size=each, max_size=each))
    _settings(tables, derandomize)(search(ask))()
    return seen


def test_requests_that_are_alike_are_told_apart() -> None:
    ask_many(twins(), SEQUENCES, 2, not IS_LARGE)


def test_no_free_answer_is_less_accurate_than_a_new_one() -> None:
    seen = ask_many(pairs(), PAIRS // 10, 10, not IS_LARGE)
    print(f"{PAIRS} pairs of requests, none with an error above that of a new one:", dict(seen))
    assert all(seen[outcome] > PAIRS // 20 for outcome in OUTCOMES), seen


@contextmanager
def a_plan_kept_for_the_same_content() -> Iterator[None]:
    """The fault that was: readings, which are by place, kept under content in any order."""
    kept: dict[str, Any] = {}

    def plan(self: Engine, request: Any) -> Any:
        return kept.setdefault(request.fingerprint(), make_plan(request))

    with mock.patch.object(Engine, "plan", plan):
        yield


@contextmanager
def any_release_that_determines() -> Iterator[None]:
    """The fault that was: whatever an earlier release determines is answered from it."""
    with (
        mock.patch.object(ComparedErrors, "is_no_worse", True),
        mock.patch("dpsql.answer.accuracy.shown_ratio", return_value=0.0),
    ):
        yield


@contextmanager
def forms_kept_by_length() -> Iterator[None]:
    """Compiled statements remembered by the length of their text."""

    class Short(dict[Any, Any]):
        def __contains__(self, key: object) -> bool:
            return super().__contains__(self._cut(key))

        def __getitem__(self, key: object) -> Any:
            return super().__getitem__(self._cut(key))

        def __setitem__(self, key: object, value: Any) -> None:
            super().__setitem__(self._cut(key), value)

        @staticmethod
        def _cut(key: Any) -> Any:
            return len(key[0]), key[1]

    before = Engine.__init__

    def start(self: Engine, *arguments: Any) -> None:
        before(self, *arguments)
        self._compiled = Short()

    with mock.patch.object(Engine, "__init__", start):
        yield


@contextmanager
def requests_kept_by_number() -> Iterator[None]:
    """Requests remembered by the number of their statements, not by which these are."""

    def numbered(*_: object) -> int:
        return 0

    with mock.patch("dpsql.engine.planner.id", numbered, create=True):
        yield


@pytest.mark.parametrize(
    ("fault", "requests"),
    [
        (a_plan_kept_for_the_same_content, twins()),
        (forms_kept_by_length, twins()),
        (requests_kept_by_number, twins()),
        (any_release_that_determines, pairs()),
    ],
)
def test_planted_faults_are_found(fault: Callable[[], Any], requests: Any) -> None:
    with fault(), pytest.raises(AssertionError):
        ask_many(requests, 20, 2)
