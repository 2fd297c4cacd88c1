"""Ctrl-C at any moment: nothing is charged, or what was charged is stored, or the loss is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

import dpsql
from benchmarks import interrupts
from benchmarks.interrupts import Interrupts
from dpsql.answer.store import StoreTable, SyntheticTables
from dpsql.dbapi.connection import Connection
from dpsql.engine import clip, engine, planner
from dpsql.files import exclusive
from dpsql.interrupts import AllowInterrupts, Cancellation, HoldInterrupts, InterruptWatch, check
from dpsql.plan import request
from dpsql.plan.plan import Part
from dpsql.privacy.budget import ledger
from dpsql.privacy.budget.ledger import Ledger
from dpsql.privacy.vault.sealed_errors import seal_errors
from dpsql.sealed import SealedConnection
from dpsql.ui.repl import run_prompt
from dpsql.ui.session import Session
from tests.support.effort import IS_LARGE, effort

LONG = "SELECT SUM(SQRT(i)) FROM range(20000000000) AS t(i)"
COUNT = effort(4)


def in_the_vault() -> object:
    return seal_errors(lambda: duckdb.connect(config={"threads": 1}).execute(LONG).fetchall())


def over_public_values() -> object:
    return SealedConnection().run(LONG)


@pytest.mark.parametrize("work", [in_the_vault, over_public_values])
def test_an_interrupt_within_duckdb_is_one(work: Callable[[], object]) -> None:
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            work()
    finally:
        timer.join()
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.fixture
def unsought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan without a search, which takes seconds for two kinds of statements."""
    for kind in ("select", "batch"):
        sql = f"SET mechanism = 'identity'; {interrupts.STATEMENTS[kind]}"
        monkeypatch.setitem(interrupts.STATEMENTS, kind, sql)


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unsought: None) -> Interrupts:
    """Statements over few rows, in catalogs of their own."""
    monkeypatch.setattr(interrupts, "ROWS", 500)
    monkeypatch.setenv("DPSQL_CACHE", "off")
    return Interrupts(tmp_path, seed=1)


# Python tells of one that comes to the end of a generator, swallows it, and ``check`` raises it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_random_moments(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if not IS_LARGE:
        request.getfixturevalue("unsought")
    monkeypatch.setattr(interrupts, "ROWS", 500)
    monkeypatch.setenv("XDG_STATE_HOME", "")  # put back what the run sets
    monkeypatch.setenv("DPSQL_CACHE", "")
    found = list(interrupts.run(COUNT))
    assert [each for each in found if each.wrong] == []
    assert len(found) == COUNT


STEPS = (
    (Ledger, "debit", "select"),
    (ledger, "issue", "batch"),
    (engine, "measure", "units"),
    (StoreTable, "add", "select"),
    (Ledger, "settle", "gaussian"),
    (StoreTable, "add", "threshold"),
    (clip, "answer_sum", "clip"),
    (SyntheticTables, "add", "synthetic"),
    (StoreTable, "add", "mwem"),
)
"""A function at every step from the debit to the end, and a statement that calls it."""


@contextmanager
def at(owner: Any, name: str, send: Callable[[], None], before: bool) -> Iterator[None]:
    """Send as a function is called, or as it returns."""
    real = getattr(owner, name)

    def interrupted(*given: Any, **named: Any) -> Any:
        if before:
            send()
        found = real(*given, **named)
        if not before:
            send()
        return found

    with mock.patch.object(owner, name, interrupted):
        yield


def interrupt_at(few: Interrupts, step: tuple[Any, str, str], before: bool) -> Any:
    """One interrupt, sent twice, as an impatient user would."""
    owner, name, kind = step
    sent: list[float] = []

    def send() -> None:
        sent.append(0.0)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    return few._interrupt(kind, at(owner, name, send, before), sent)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[1]}-{step[2]}")
def test_from_the_debit_to_the_release_an_interrupt_waits(
    few: Interrupts, step: tuple[Any, str, str], before: bool
) -> None:
    found = interrupt_at(few, step, before)
    assert (found.outcome, found.wrong) == ("stored", ())


@pytest.mark.parametrize("step", STEPS[1:4], ids=lambda step: step[1])
def test_a_step_that_does_not_wait_is_found(
    few: Interrupts, step: tuple[Any, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.engine.charges.HoldInterrupts", nullcontext)
    assert interrupt_at(few, step, before=True).wrong


def test_a_release_that_is_not_stored_is_found(
    few: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreTable, "add", lambda *_: None)
    said, *_ = interrupt_at(few, (engine, "measure", "select"), before=False).wrong
    assert said == "entry 1 is released, its release stored: False"


@pytest.mark.parametrize("fault", [RuntimeError, SystemError, ZeroDivisionError])
def test_what_a_library_makes_of_an_interrupt_is_one(
    adult: Connection, fault: type[Exception]
) -> None:
    def library(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise fault from None

    with (
        mock.patch.object(planner, "make_plan", library),
        pytest.raises(dpsql.Interrupted) as found,
    ):
        adult.execute("SELECT COUNT(*) FROM adult WHERE age > 20")
    assert found.value.message == "interrupted: nothing was charged"
    with (
        mock.patch.object(planner, "make_plan", mock.Mock(side_effect=fault)),
        pytest.raises(dpsql.InternalError, match="E_UNEXPECTED"),
    ):
        adult.execute("SELECT COUNT(*) FROM adult WHERE age > 20")


def test_an_interrupt_that_a_library_swallows_comes_before_the_charge(adult: Connection) -> None:
    real = request.make_plan

    def library(*given: Any) -> Any:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return real(*given)

    with (
        mock.patch.object(planner, "make_plan", library),
        pytest.raises(dpsql.Interrupted) as found,
    ):
        adult.execute("SELECT COUNT(*) FROM adult WHERE age > 20")
    assert not found.value.charged
    assert adult.budget.entries == 0
    adult.execute("SELECT COUNT(*) FROM adult WHERE age > 20")


def test_an_interrupt_that_is_swallowed_after_the_charge_comes_late(adult: Connection) -> None:
    real, sql = Part.estimate, "SELECT COUNT(*) FROM adult WHERE age > 20"

    def library(*given: Any) -> Any:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return real(*given)

    with mock.patch.object(Part, "estimate", library), pytest.raises(dpsql.Interrupted) as found:
        adult.execute(sql)
    assert found.value.charged == 1
    assert not found.value.lost
    cost = adult.execute(sql).result.cost
    assert cost is not None
    assert cost.free


def test_sections_nest_and_give_the_handler_back() -> None:
    seen: list[object] = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("mine"))
    mine = signal.getsignal(signal.SIGINT)
    try:
        with InterruptWatch() as watch, HoldInterrupts():
            with HoldInterrupts():
                signal.raise_signal(signal.SIGINT)
            seen.append("inner")
            with AllowInterrupts():
                seen.append("allowed")
                signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            seen.append("end")
        assert signal.getsignal(signal.SIGINT) is mine
        assert not watch.interrupted, "a handler that raises nothing interrupts nothing"
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["inner", "mine", "allowed", "mine", "end", "mine"]


def test_a_signal_without_a_handler_is_left_alone() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with InterruptWatch(), HoldInterrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_has_nothing_to_hold() -> None:
    found: list[object] = []

    def work() -> None:
        with InterruptWatch() as watch, HoldInterrupts(), AllowInterrupts():
            check()
            found.append(watch.interrupted)
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False, signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize("section", [nullcontext, HoldInterrupts])
@pytest.mark.parametrize("pause", [0, 0.01, 0.2])
def test_a_thread_that_waits_for_a_lock_file_ends_when_asked(
    tmp_path: Path, section: Callable[[], Any], pause: float
) -> None:
    found: list[BaseException] = []
    wish = Cancellation()

    def work() -> None:
        try:
            with wish, section(), exclusive(tmp_path / "lock"):
                pass
        except BaseException as error:
            found.append(error)

    with exclusive(tmp_path / "lock"):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(pause)
        assert thread.is_alive()
        wish.ask()
        thread.join(30)
        assert [type(error) for error in found] == [KeyboardInterrupt]
    assert not wish.holding


def test_an_interrupt_of_another_statement_is_not_this_one() -> None:
    with suppress(KeyboardInterrupt), InterruptWatch():
        signal.raise_signal(signal.SIGINT)
    with InterruptWatch() as watch:
        check()
        assert not watch.interrupted


SLOW = """
import signal, sys
from dpsql.engine import planner
from dpsql.privacy.budget.ledger import Ledger
where, signals = sys.argv.pop(1), int(sys.argv.pop(1))
owner, name = (planner, "make_plan") if where == "plan" else (Ledger, "settle")
real = getattr(owner, name)
def interrupted(*given):
    signal.raise_signal(signals)
    return real(*given)
setattr(owner, name, interrupted)
from dpsql.__main__ import main
main()
"""
COSTS = {
    "plan": "interrupted: nothing was charged",
    "settle": "interrupted: epsilon 1 was charged and what it paid for is stored: ask again, free",
}


@pytest.mark.parametrize("where", COSTS)
@pytest.mark.parametrize("how", ["run", "-c"])
def test_the_command_says_what_was_charged(demo: Path, where: str, how: str) -> None:
    sql = "SELECT COUNT(*) FROM adult WHERE age > 20"
    (demo / "q.sql").write_text(sql)
    given = (
        ["run", "q.sql", "--catalog", "adult.toml"] if how == "run" else ["adult.toml", how, sql]
    )
    command = [sys.executable, "-c", SLOW, where, str(int(signal.SIGINT)), *given, "-e", "1"]
    done = subprocess.run(command, cwd=demo, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.strip().splitlines()[-1] == COSTS[where]
    assert done.stdout == ""


def test_a_request_to_terminate_waits_too(demo: Path) -> None:
    sql = "SELECT COUNT(*) FROM adult WHERE age > 20"
    number = str(int(signal.SIGTERM))
    command = [sys.executable, "-c", SLOW, "settle", number, "adult.toml", "-c", sql, "-e", "1"]
    done = subprocess.run(command, cwd=demo, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        assert connection.entries()[-1].state == "released"
        assert connection.execute(sql).result.cost.free  # type: ignore[union-attr]


def test_the_prompt_says_it_and_goes_on(
    adult: Connection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT COUNT(*) AS n FROM adult WHERE age > 20;"
    texts, real, calls = iter([sql, sql]), request.make_plan, iter([True, False])

    def planned(*given: Any) -> Any:
        if next(calls, False):
            signal.raise_signal(signal.SIGINT)
        return real(*given)

    def read(_: Session) -> str:
        found = next(texts, None)
        if found is None:
            raise EOFError
        return found

    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("dpsql.ui.repl.read_plainly", read)
    monkeypatch.setattr(planner, "make_plan", planned)
    assert run_prompt(Session(adult, "adult", "csv", bail=False)) == 0
    said = capsys.readouterr()
    assert said.err.count("interrupted: nothing was charged") == 1
    assert said.out.startswith("n\n")
    assert adult.budget.entries == 1
