"""CURRENT_DATE is a literal of the day: free again on that day, another request on the next."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

import dpsql
from dpsql.sql.text import current_date
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse, parse_view
from tests.support.oracle import write_world

ASKED = "SELECT COUNT(*) AS k FROM t WHERE d < date_trunc('month', CURRENT_DATE)"


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> dt.date:
    day = dt.date(2024, 1, 31)
    monkeypatch.setattr(current_date, "today", lambda: day)
    return day


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("SELECT d < CURRENT_DATE", "SELECT d < DATE '2024-01-31'"),
        ("SELECT d < current_date()", "SELECT d < DATE '2024-01-31'"),
        ("SELECT today() - 1, d", "SELECT DATE '2024-01-31' - 1, d"),
        ("SELECT 'current_date', \"current_date\"", None),
        ("SELECT t.current_date, today FROM t", None),
    ],
)
def test_the_day_is_written_out(on: dt.date, written: str, meant: str | None) -> None:
    assert parse(split_statements(written)[0]).fragment.body == (meant or written)


def test_statements_around_it_keep_their_places(on: dt.date) -> None:
    first, second = split_statements("SELECT current_date; SELECT CURRENT_DATE, x")
    assert parse(first).fragment.body == "SELECT DATE '2024-01-31'"
    assert parse(second).fragment.body == "SELECT DATE '2024-01-31', x"


def test_a_view_is_the_same_every_day(on: dt.date) -> None:
    with pytest.raises(dpsql.ProgrammingError) as caught:
        parse_view("SELECT a FROM t WHERE d < CURRENT_DATE")
    assert caught.value.code == "E_NONDETERMINISTIC"


def test_another_day_is_another_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_world(tmp_path, []).close()
    with dpsql.connect(tmp_path / "t.toml", epsilon=1) as connection:
        free = []
        for month in (1, 1, 2, 1):
            monkeypatch.setattr(current_date, "today", lambda month=month: dt.date(2024, month, 15))
            cost = connection.execute(ASKED).result.cost
            assert cost is not None
            free.append(cost.free)
    assert free == [False, True, False, True]
    monkeypatch.setattr(current_date, "today", lambda: dt.date(2024, 1, 15))
    with dpsql.connect(tmp_path / "t.toml", epsilon=1) as connection:
        cost = connection.execute(ASKED).result.cost
        assert cost is not None
        assert cost.free
