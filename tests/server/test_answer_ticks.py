"""Answers at ticks: what comes, and what ends it, comes at a multiple of the period."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dpsql.dbapi.site import open_site
from dpsql.errors import ProgrammingError, UsageError
from dpsql.interrupts import Cancellation
from dpsql.server.analyst_session import AnalystSession
from dpsql.server.answer_ticks import Ticks

PERIOD = 0.25


def test_answers_refusals_and_forecasts_wait_for_a_tick(catalog: Path) -> None:
    waited: list[float] = []

    class Watched(Ticks):
        def wait(self) -> None:
            waited.append(self.left())
            super().wait()

    site = open_site(catalog)
    caller = AnalystSession(site, "ana", Watched(PERIOD))
    try:
        caller.run("SET epsilon = 0.01", False)
        caller.run("SELECT COUNT(*) FROM t", False)
        with pytest.raises(ProgrammingError):
            caller.run("SELECT nope FROM t", False)
        caller.within(lambda: caller.connection.explain("SELECT COUNT(*) FROM t"))
        assert len(waited) == 4
        assert all(0 <= each <= PERIOD for each in waited)
        before = time.monotonic()
        caller.within(lambda: None)
        assert time.monotonic() - before >= waited[-1] > 0
    finally:
        caller.close()
        site.close()


def test_what_ends_a_statement_ends_it_at_a_tick(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []

    class Impatient(threading.Timer):
        """Notes how long it is to wait, and does not."""

        def __init__(self, interval: float, function: Callable[[], None]) -> None:
            delays.append(interval)
            super().__init__(0, function)

    def endless(wish: Cancellation) -> None:
        caller.cancel()
        while True:
            wish.check()
            time.sleep(0.001)

    site = open_site(catalog)
    caller = AnalystSession(site, "ana", Ticks(PERIOD, lambda: 10.01))
    monkeypatch.setattr("threading.Timer", Impatient)
    try:
        for limit in (0, 7, 245):
            wish = Cancellation()
            with pytest.raises(KeyboardInterrupt):
                caller.within(partial(endless, wish), limit, wish)
        assert set(np.round(delays, 9)) == {0.24, 0.49}
    finally:
        site.close()


def test_without_a_period_nothing_waits() -> None:
    done: list[int] = []
    Ticks().wait()
    Ticks().later(lambda: done.append(1))
    assert done == [1]
    assert Ticks().left() == 0


@pytest.mark.parametrize("text", ["", "0s", "1", "1h", "-1s", "11s", "99999999ms", "1.5s"])
def test_periods_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--tick"):
        Ticks.parse(text)
