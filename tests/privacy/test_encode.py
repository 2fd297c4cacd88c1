"""Cells of whole numbers and of days, against what the declaration says of one value at a time."""

from __future__ import annotations

import datetime as dt
import random
from bisect import bisect_right
from collections.abc import Callable

import numpy as np
import pytest

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import IntegerRange, Periods, Values
from dpsql.privacy.vault.codes.encode import NEAR, count_ticks, encode
from dpsql.privacy.vault.data_engine import Values64

CellOf = Callable[[int], int | None]
ENDS = (-(1 << 63), 1 - (1 << 63), -1, 0, 1, (1 << 63) - 1)


@pytest.mark.parametrize("seed", range(20))
def test_cells_are_those_of_the_declaration(seed: int) -> None:
    draw = random.Random(seed)
    column, cell_of, marks = draw_column(draw)
    near = [mark + step for mark in marks for step in (-1, 0, 1)]
    stored = [*ENDS, *near, *(draw.randint(min(marks) - 9, max(marks) + 9) for _ in range(300))]
    missing = np.array([draw.random() < 0.1 for _ in stored])
    unknown = ~missing & np.array([draw.random() < 0.1 for _ in stored])
    codes = encode(column, Values64(np.array(stored, dtype=np.int64), missing, unknown))
    outside = column.size
    null = outside - 1 if column.null else outside
    other = outside if column.other is None else outside - 1 - column.null
    for value, is_missing, is_unknown, code in zip(stored, missing, unknown, codes, strict=True):
        cell = None if is_unknown else cell_of(value)
        assert code == (null if is_missing else other if cell is None else cell)


def draw_column(draw: random.Random) -> tuple[Column, CellOf, list[int]]:
    """A column, the cell of every number that has one, and numbers near which it may go wrong."""
    low, null = draw.choice((0, -5, 100, -(2**53), 2**53 - 300)), draw.random() < 0.5
    kind = draw.choice(("range", "list", "days", "clock"))
    if kind == "range":
        size = draw.choice((1, 255, 256, 300))
        cells = {low + i: i for i in range(size)}
        other = draw.choice((None, "other"))
        column = Column("a", "integer", IntegerRange(low, low + size - 1), other=other, null=null)
        return column, cells.get, [low, low + size - 1]
    if kind == "list":
        span = draw.choice((9, NEAR, NEAR + 1, 10 * NEAR))
        listed = draw.sample(range(low, low + span), 8)
        marks = [low, low + span - 1]
        listed = [*dict.fromkeys([*listed, *marks])]
        draw.shuffle(listed)
        column = Column("a", "integer", Values(tuple(listed)), null=null)
        return column, {value: i for i, value in enumerate(listed)}.get, marks
    start = dt.date(draw.randint(1900, 2100), draw.randint(1, 12), 1)
    unit, count = draw.choice(("day", "week", "month", "quarter", "year")), draw.randint(1, 20)
    if kind == "days":
        periods = Periods(start, unit, count)
        begins = [count_ticks(periods.begin(k)) for k in range(count + 1)]
        cells = {day: k for k in range(count) for day in range(begins[k], begins[k + 1])}
        return Column("a", "date", periods, null=null), cells.get, begins
    clock = Periods(dt.datetime(start.year, start.month, 1), unit, count)
    begins = [count_ticks(clock.begin(k)) for k in range(count + 1)]

    def period_of(tick: int) -> int | None:
        return bisect_right(begins, tick) - 1 if begins[0] <= tick < begins[-1] else None

    return Column("a", "timestamp", clock, null=null), period_of, begins
