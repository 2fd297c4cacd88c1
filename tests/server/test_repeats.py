"""Repetitions that are not worked out again: the same answer, and only as long as it is."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.answer.result import Result
from dpsql.dbapi import repetitions
from dpsql.dbapi.connection import Connection, raise_budget
from dpsql.dbapi.site import Site, open_site
from dpsql.errors import LedgerError, ProgrammingError
from dpsql.server.analyst_session import AnalystSession

COUNT = "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind"


@pytest.fixture
def site(catalog: Path) -> Iterator[Site]:
    found = open_site(catalog)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that were worked out."""
    found: list[str] = []
    execute = Connection.execute

    def watch(self: Connection, sql: str) -> object:
        found.append(sql)
        return execute(self, sql)

    monkeypatch.setattr(Connection, "execute", watch)
    return found


def ask(caller: AnalystSession, sql: str) -> Result:
    (found,) = caller.run(sql, False)
    return found


@pytest.fixture
def ana(site: Site) -> Iterator[AnalystSession]:
    caller = AnalystSession(site, "ana")
    ask(caller, "SET epsilon = 0.01")
    yield caller
    caller.close()


def test_what_is_free_is_worked_out_once(
    site: Site, ana: AnalystSession, executed: list[str]
) -> None:
    paid, free = ask(ana, COUNT), ask(ana, COUNT)
    assert paid.cost is not None
    assert not paid.cost.free
    assert free.cost is not None
    assert free.cost.free
    worked = len(executed)
    assert ask(ana, COUNT) is free
    other = AnalystSession(site, "ana")
    ask(other, "SET epsilon = 0.01")
    assert ask(other, COUNT) is free
    assert executed[worked:] == ["SET epsilon = 0.01"]
    assert free.rows == paid.rows
    other.close()


def test_whatever_it_follows_from_makes_it_another(
    site: Site, ana: AnalystSession, executed: list[str], catalog: Path
) -> None:
    def is_worked_out(caller: AnalystSession = ana, sql: str = COUNT) -> bool:
        before = len(executed)
        ask(caller, sql)
        return len(executed) > before

    ask(ana, COUNT)
    ask(ana, COUNT)
    assert not is_worked_out()
    assert is_worked_out(sql=COUNT + " ORDER BY 1")
    bo = AnalystSession(site, "bo")
    ask(bo, "SET epsilon = 0.01")
    assert is_worked_out(bo)
    ask(ana, "SET reuse = 'always'")
    assert is_worked_out()
    assert not is_worked_out()
    ask(ana, "SET fresh = on")
    assert is_worked_out()
    assert is_worked_out()  # and paid for, every time
    ask(ana, "SET fresh = off")
    assert is_worked_out()  # what was stored meanwhile may answer it better
    data = catalog.with_name("t.parquet")
    os.utime(data, (1, 1))
    site.engine.reopen()
    assert is_worked_out()
    bo.close()


def test_what_is_no_answer_is_worked_out_every_time(
    ana: AnalystSession, executed: list[str]
) -> None:
    for sql in ("SHOW budget", f"EXPLAIN {COUNT}", "SHOW noise", "BEGIN WORKLOAD", COUNT):
        executed.clear()
        for _ in range(3):
            with contextlib.suppress(ProgrammingError):  # it is open
                ask(ana, sql)
        assert len(executed) == 3, sql


def test_every_setting_and_the_day_are_part_of_it(
    site: Site, ana: AnalystSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = ana.connection
    found = {site.repeats.key(connection, COUNT)}
    values = {"epsilon": "0.5", "noise": "gaussian", "reuse": "always", "fresh": "on"}
    for name, value in values.items():
        connection.set(name, value)
        found.add(site.repeats.key(connection, COUNT))
    monkeypatch.setattr("dpsql.dbapi.repetitions.today", lambda: dt.date(2031, 1, 1))
    found.add(site.repeats.key(connection, COUNT))
    assert len(found) == 6


def test_a_ledger_that_is_gone_or_damaged_answers_nothing(
    site: Site, ana: AnalystSession, catalog: Path
) -> None:
    for _ in range(3):
        ask(ana, COUNT)
    ledger = catalog.with_suffix(".ledger")
    ledger.rename(catalog.with_suffix(".gone"))
    with pytest.raises(LedgerError):
        ask(ana, COUNT)
    catalog.with_suffix(".gone").rename(ledger)
    assert ask(ana, COUNT).cost is not None
    for path in site.repeats._ledger:
        before = path.read_bytes()
        path.write_bytes(bytes(len(before)))
        with pytest.raises(LedgerError):
            ask(ana, COUNT)
        path.write_bytes(before)
        assert ask(ana, COUNT).cost is not None


def test_whoever_asks_has_the_budget_of_by_then(
    site: Site, ana: AnalystSession, catalog: Path
) -> None:
    before = ana.repeats
    raise_budget(catalog, Fraction(200))
    assert len(ask(ana, "SELECT kind, COUNT(*) FROM t WHERE size = 7 GROUP BY kind").rows) == 3
    assert ana.connection.budget.total_epsilon == 200
    assert ana.repeats is not before
    assert ana.repeats is site.repeats


def test_what_is_kept_is_bounded_by_its_numbers(
    site: Site, ana: AnalystSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand large answers would fill the memory of a server."""
    monkeypatch.setattr(repetitions, "MOST_NUMBERS_KEPT", 20)
    for _ in range(2):
        for number in range(12):
            ask(ana, f"{COUNT} -- {number}")
    kept = site.repeats._kept
    sizes = [len(each.rows) * len(each.columns) for each in kept.values()]
    assert 0 < sum(sizes) == site.repeats._numbers <= 20
    assert len(kept) < 12
