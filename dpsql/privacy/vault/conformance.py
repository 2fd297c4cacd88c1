"""Conformance of a data engine to its promises: for the tests of whoever writes one.

Guarantee of an engine that keeps its promises: the rows of a table are those of its parts, one by
one, whatever they hold; and nothing but the schema says how a table is described.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from dpsql.catalog.catalog import Table, Unit
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.data_engine import VERSION, Asked, Batch, DataEngine, Form, StoredTable

Row = tuple[object, object]
Write = Callable[[str, Sequence[Row]], str]
"""A family and rows of two columns ``v`` and ``u`` of it to the source of a new table of them."""

HOSTILE: Mapping[str, Sequence[object]] = {
    "integer": [None, 0, 1, -1, 7, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1],
    "float": [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 0.5, 2.5, 1e300, -1e300, 5e-324],
    "text": [None, "", "a", "A", "a ", " a", "\u00e9", "e\u0301", "'", '"', "?", "1", "nan"],
    "date": [None, dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date.max],
}
FORMS: Mapping[str, Sequence[Form]] = {
    "integer": ("whole", "number"),
    "float": ("number",),
    "text": ("place",),
    "date": ("day",),
}
TEXTS = ("A", "\u00e9", "a ", "1")


def find_faults(
    engine: DataEngine, write: Write, more: Mapping[str, Sequence[object]] | None = None
) -> list[str]:
    """Return the promises that an engine does not keep on tables of hostile values; none is good.

    ``write`` makes a new table at every call, with the engine's own store. ``more`` are values that
    the store can hold in a column of a family besides, such as text in a column of numbers; give
    an empty list for a family that it cannot hold at all.
    """
    faults = [] if engine.version == VERSION else [f"it is not of version {VERSION}"]
    for family, forms in FORMS.items():
        extra = (more or {}).get(family)
        if extra is None or extra:
            values = [*HOSTILE[family], *(extra or ())]
            for form in forms:
                faults += [
                    f"{family}, {form}: {each}"
                    for each in _try(engine, write, family, form, values)
                ]
    return faults


def _try(
    engine: DataEngine, write: Write, family: str, form: Form, values: Sequence[object]
) -> Iterator[str]:
    rows = [*zip(values, [*values[1:], values[0]], strict=True), (values[1], values[1])]
    asked = Asked("v", form, TEXTS if form == "place" else ())
    whole = write(family, rows)
    parts = [write(family, part) for part in ([], rows[::2], rows[1::2], *([row] for row in rows))]
    tables = [engine.open(_table(each)) for each in (whole, *parts)]
    schemas = {each.columns for each in tables}
    if schemas != {(("v", family), ("u", family))}:
        yield f"columns are told as {schemas}, by what they hold or as of other families"
    for unit in (None, "u"):
        try:
            found, nothing, *halves_and_singles = [_rows(each, asked, unit) for each in tables]
        except Exception as failure:
            yield f"a stored value makes it fail: {failure!r}"
            return
        halves, singles = halves_and_singles[:2], halves_and_singles[2:]
        if nothing or found.total() != len(rows):
            yield "a table has another number of rows than were written"
        if found != sum(halves, Counter()) or found != sum(singles, Counter()):
            yield "the rows of a table are not those of its parts"
    try:
        engine.open(_table(f"{whole}-not-there"))
        yield "a source that is not there opens"
    except DataUnavailable:
        pass
    except Exception as failure:
        yield f"a source that is not there is no DataUnavailable, but {failure!r}"


def _table(source: str) -> Table:
    return Table("t", source, Unit(), {})


def _rows(stored: StoredTable, asked: Asked, unit: str | None) -> Counter[object]:
    """Return the rows of a table as what is told of each, with how often it is told."""
    told: Counter[object] = Counter()
    for batch in stored.read([asked], unit):
        batch.check([asked], unit is not None)
        told.update(_told(batch))
    return told


def _told(batch: Batch) -> Iterator[object]:
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
