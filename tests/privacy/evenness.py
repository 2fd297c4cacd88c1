"""Which rows of a unit stay: every row is as likely as any other, over salts."""

from __future__ import annotations

import datetime as dt
import math
import random
from fractions import Fraction

import numpy as np

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import Bins, IntegerRange, Periods
from dpsql.privacy.vault.codes.spill import SpillRoom
from dpsql.privacy.vault.unit.rows import Rows, line_up
from dpsql.privacy.vault.unit.unit_numbers import Digest, UnitNumbers

SALTS = 200
PEOPLE = 80
MONTHS = 12
ALARM = 6
"""Standard deviations that a share may be off: once in 500 million."""
COLUMNS = {
    "ward": Column("ward", "integer", IntegerRange(0, 11)),
    "hired": Column("hired", "date", Periods(dt.date(2024, 1, 1), "month", MONTHS)),
    "cost": Column("cost", "number", Bins((Fraction(0), Fraction(5)))),
    "paid": Column("paid", "number", None, (Fraction(0), Fraction(30))),
}


def even_choice() -> None:
    """Keep one row of three, told apart by one column, of people who have the same three.

    Under 200 salts every one of the three must be kept as often.
    """
    for column in COLUMNS:
        _check(column)


def _check(column: str) -> None:
    values = np.array([i * 3 % MONTHS + np.arange(3) for i in range(PEOPLE)]).ravel()
    values = values * (1_000_003 if column == "cost" else 1)
    names = np.repeat(np.array([f"person {i}" for i in range(PEOPLE)], dtype=object), 3)
    plain = np.zeros(len(names), dtype=np.uint32)
    codes, places, numbers = (
        dict.fromkeys(("ward", "hired", "cost"), plain),
        {"cost": plain},
        {"paid": plain.astype(np.float64)},
    )
    if column in places:
        places[column] = values.astype(np.uint32)
    elif column in numbers:
        numbers[column] = values.astype(np.float64)
    else:
        codes[column] = values.astype(np.uint32)
    who = UnitNumbers(SpillRoom())
    who.add(names, np.ones(len(names), dtype=bool))
    owners = who.owners()
    rows = Rows(len(names), codes, places, numbers, owners)
    table = Table("t", "t", Unit("who", 1), COLUMNS)
    kept = np.zeros(len(names))
    for i in range(SALTS):
        queue = line_up(rows, table, Digest(random.Random(i).randbytes(16).hex()))
        assert queue is not None
        kept += queue.bound(np.ones(len(names), dtype=bool))
    assert kept.sum() == PEOPLE * SALTS
    for value in np.unique(values):
        trials = SALTS * int((values == value).sum())
        spread = math.sqrt(trials * (1 / 3) * (2 / 3))
        assert abs(kept[values == value].sum() - trials / 3) < ALARM * spread, (column, value)
