"""Conformance of a data engine to its promises: for the tests of whoever writes one.

Guarantee of an engine that keeps its promises: the rows of a table are those of its parts, one by
one, whatever they hold; and nothing but the schema says how a table is described.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import Bins, IntegerRange, Periods, Spans, Times, Values
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.data_engine import (
    VERSION,
    Batch,
    DataEngine,
    Form,
    RequestedColumn,
    StoredTable,
)
from dpsql.privacy.vault.servers.counter import as_counting
from dpsql.privacy.vault.stored_rows import read_rows
from dpsql.privacy.vault.unit.rows import tally, view
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import AnyResolution, Nodes, cells_of

Row = tuple[object, object]
Write = Callable[[str, Sequence[Row]], str]
"""A family and rows of two columns ``v`` and ``u`` of it to the source of a new table of them."""

HOSTILE: Mapping[str, Sequence[object]] = {
    "integer": [None, 0, 1, -1, 7, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1],
    "float": [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 0.5, 2.5, 1e300, -1e300, 5e-324],
    "text": [None, "", "a", "A", "a ", " a", "\u00e9", "e\u0301", "'", '"', "?", "1", "nan"],
    "date": [None, dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date.max],
    "decimal": [None, *map(Decimal, ("0.00", "1.25", "-1.25", "0.30", "9999999.99", "-0.01"))],
    "boolean": [None, True, False],
    "timestamp": [
        *(None, dt.datetime.min, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        *(dt.datetime(2024, 2, 29, 12), dt.datetime(2024, 2, 29, 12, 0, 0, 1), dt.datetime.max),
    ],
    "time": [None, dt.time.min, dt.time(8, 30), dt.time(12, 0, 0, 1), dt.time.max],
}
FORMS: Mapping[str, Sequence[Form]] = {
    "integer": ("whole", "number"),
    "float": ("number",),
    "text": ("place",),
    "date": ("day", "clock"),
    "decimal": ("number",),
    "boolean": ("boolean",),
    "timestamp": ("clock", "day"),
    "time": ("time",),
}
COUNTED: Mapping[str, Sequence[Column]] = {
    "integer": (
        Column("v", "integer", IntegerRange(0, 7), None, True, 9),
        Column("v", "number", None, (Fraction(0), Fraction(10))),
    ),
    "float": (
        Column("v", "number", Bins((Fraction(0), Fraction(1), Fraction(10))), None, True),
        Column("v", "number", None, (Fraction(-1), Fraction(10))),
    ),
    "text": (Column("v", "text", Values(("A", "a ", "1", "'")), None, True, "Z"),),
    "date": (Column("v", "date", Periods(dt.date(2024, 1, 1), "day", 60), None, True),),
    "decimal": (Column("v", "number", None, (Fraction(0), Fraction(10))),),
    "boolean": (Column("v", "boolean", Values((True, False)), None, True),),
    "timestamp": (
        Column("v", "timestamp", Spans(dt.datetime(2024, 1, 1), "day", 90, 1, "UTC"), None, True),
    ),
    "time": (Column("v", "time", Times(dt.datetime(1970, 1, 1), "hour", 24, 1), None, True),),
}
"""Columns by which rows of a family are counted where they are."""
KEY = "00" * 16
TEXTS = ("A", "\u00e9", "a ", "1")


def find_faults(
    engine: DataEngine, write: Write, more: Mapping[str, Sequence[object]] | None = None
) -> list[str]:
    """Return the promises that an engine does not keep on tables of hostile values; none is good.

    One that counts where its rows are has to count what it streams, of rows and of units.

    ``write`` makes a new table at every call, with the engine's own store. ``more`` are values that
    the store can hold in a column of a family besides, such as text in a column of numbers; give
    an empty list for a family that it cannot hold at all.
    """
    faults = [] if engine.version == VERSION else [f"it is not of version {VERSION}"]
    for family, forms in FORMS.items():
        extra = (more or {}).get(family)
        if extra is None or extra:
            values = [*HOSTILE[family], *(extra or ())]
            untyped = engine.open(_table(write(family, []))).untyped
            asked = [form for form in forms if not (untyped and form == "whole")]
            for form in asked:
                faults += [
                    f"{family}, {form}: {each}"
                    for each in _try(engine, write, family, form, values)
                ]
            faults += count_faults(engine, write, family, values)
    return faults


def _try(
    engine: DataEngine, write: Write, family: str, form: Form, values: Sequence[object]
) -> Iterator[str]:
    rows = [*zip(values, [*values[1:], values[0]], strict=True), (values[1], values[1])]
    asked = RequestedColumn("v", form, TEXTS if form == "place" else ())
    whole = write(family, rows)
    parted = [write(family, part) for part in ([], rows[::2], rows[1::2], *([row] for row in rows))]
    tables = [engine.open(_table(each)) for each in (whole, *parted)]
    schemas, told = {each.columns for each in tables}, "text" if tables[0].untyped else family
    if schemas != {(("v", told), ("u", told))}:
        yield f"columns are told as {schemas}, by what they hold or as of other families"
    try:
        found, nothing, *parts = [Counter(rows_told(each, asked, "u")) for each in tables]
        bare, owned = rows_told(tables[0], asked, None), rows_told(tables[0], asked, "u")
        missing = [
            is_missing for texts in tables[0].texts("v") for is_missing in _masked(texts, family)
        ]
    except Exception as failure:
        yield f"a stored value makes it fail: {failure!r}"
        return
    if nothing or found.total() != len(rows):
        yield "a table has another number of rows than were written"
    if found != sum(parts[:2], Counter()) or found != sum(parts[2:], Counter()):
        yield "the rows of a table are not those of its parts"
    if bare != [(*told, repr(None)) for *told, _ in owned]:
        yield "the values of a row, or its place, are others where its unit is asked for"
    if missing != [is_missing for _, is_missing, *_ in bare]:
        yield "its texts are missing elsewhere, or in another order"
    try:
        engine.open(_table(f"{whole}-not-there"))
        yield "a source that is not there opens"
    except DataUnavailable:
        pass
    except Exception as failure:
        yield f"a source that is not there is no DataUnavailable, but {failure!r}"


def count_faults(
    engine: DataEngine, write: Write, family: str, values: Sequence[object]
) -> list[str]:
    """Return where an engine that counts has other counts than those of the rows that it streams.

    Args:
        engine: is asked for tables that ``write`` makes.
        write: see :func:`find_faults`.
        family: of the values.
        values: are all written twice, as values and as units.
    """
    return [f"{family}: {each}" for each in _counted(engine, write, family, values)]


def _counted(
    engine: DataEngine, write: Write, family: str, values: Sequence[object]
) -> Iterator[str]:
    from dpsql.privacy.vault.pushdown import PushedCodes  # few engines count

    source = write(family, [(value, value) for value in values for _ in range(2)])
    for column in COUNTED[family]:
        for unit in (Unit(), Unit("u", 1)):
            table = Table("t", source, unit, {"v": column})
            stored = engine.open(table)
            counting = as_counting(stored)
            if counting is None:
                return
            asked: list[AnyResolution] = [cells_of("v", np.arange(column.size))]
            if column.domain is None:
                asked = [Nodes("v", 1, 1, 10)]
            pushed, whole = PushedCodes(table, counting, KEY), RowView(("v",))
            try:
                read = read_rows(stored, table, KEY)
                kept = view(read, table, whole)
                for units in {False, column.domain is not None}:
                    there = pushed.tally(whole, asked, units)
                    if (there != tally(read, kept, table, asked, units)).any():
                        yield f"counts of {column.type} are not those of its rows"
            except Exception as failure:
                yield f"a stored value makes its counts fail: {failure!r}"
            finally:
                pushed.close()


def _table(source: str) -> Table:
    return Table("t", source, Unit(), {})


def rows_told(
    stored: StoredTable, asked: RequestedColumn, unit: str | None
) -> list[tuple[Any, ...]]:
    """Return what is told of each row of a table, in the order of rows."""
    told: list[tuple[Any, ...]] = []
    for batch in stored.read([asked], unit):
        batch.check([asked], unit is not None)
        told += _told(batch)
    return told


def _masked(texts: npt.NDArray[np.object_], family: str) -> list[bool]:
    """Say which texts are missing; NaN is a text, and no number."""
    found: list[bool] = np.ma.getmaskarray(texts).tolist()
    pairs = zip(found, texts.tolist(), strict=True)
    return [each or (family == "float" and str(text).casefold() == "nan") for each, text in pairs]


def _told(batch: Batch) -> Iterator[tuple[Any, ...]]:
    (values,) = batch.columns
    is_known = ~(values.missing | values.unknown)
    numbers = np.where(is_known, values.numbers, 0)
    units = [None] * batch.rows
    if batch.units is not None and batch.owned is not None:
        units = [
            each if is_owned else None
            for each, is_owned in zip(batch.units.tolist(), batch.owned, strict=True)
        ]
    return zip(
        map(repr, numbers.tolist()),
        values.missing.tolist(),
        values.unknown.tolist(),
        map(repr, units),
        strict=True,
    )
