"""Batches of Arrow of every type, whatever their bits hold, keep the promises of engines."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.catalog import Table
from dpsql.catalog.catalog import Unit
from dpsql.data_engine import ArrowEngine, RequestedColumn, find_faults, unavailable
from dpsql.privacy.vault.conformance import FORMS
from dpsql.privacy.vault.data_engine import NESTED

WIDE = [0, 1, -1, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63), 86_400, 86_400_000_000]
NARROW = [each for each in WIDE if abs(each) <= 2**31 and each != 2**31]
BYTES = [
    b"a",
    b"\xff",
    b"\xc3",
    b"\xa9",
    b"\xc3\xa9",
    b"",
    b"\0",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
]
TYPES: dict[str, tuple[str, Any, Sequence[Any]]] = {
    **{str(t): ("integer", t, [None, 0, 1, 7, 127]) for t in (pa.int8(), pa.uint8(), pa.int32())},
    "uint64": ("integer", pa.uint64(), [None, 0, 2**53 + 1, 2**63, 2**64 - 1]),
    "int64": ("integer", pa.int64(), WIDE),
    "float16": ("float", pa.float16(), [None, 0.5, float("inf"), float("nan"), 65504.0]),
    "float32": ("float", pa.float32(), [None, 0.5, 1e38, float("-inf"), float("nan")]),
    "boolean": ("boolean", pa.bool_(), [None, True, False]),
    "binary text": ("text", pa.string(), BYTES),
    "large text": ("text", pa.large_string(), BYTES),
    "dictionary": ("text", pa.dictionary(pa.int8(), pa.string()), ["a", None, "A", "\u00e9"]),
    "view": ("text", pa.string_view(), BYTES),
    "short decimal": (
        "decimal",
        pa.decimal32(9, 2),
        [None, Decimal("1.25"), Decimal("-9999999.99")],
    ),
    "decimal": ("decimal", pa.decimal128(12, 2), [None, Decimal("1.25"), Decimal("9999999999.99")]),
    "days": ("date", pa.date32(), NARROW),
    "days in millis": ("date", pa.date64(), WIDE),
    **{
        f"{unit} {zone}": ("timestamp", pa.timestamp(unit, zone), WIDE)
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "Europe/Berlin")
    },
    "time s": ("time", pa.time32("s"), NARROW),
    "time ms": ("time", pa.time32("ms"), NARROW),
    "time us": ("time", pa.time64("us"), WIDE),
    "time ns": ("time", pa.time64("ns"), WIDE),
}
"""Families, types of Arrow and values, those of days and times as the numbers that are stored."""
OTHERS = [pa.null(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.duration("s")]


@dataclass
class Held:
    """A table in memory."""

    data: pa.Table
    paths: tuple[str, ...]
    kind: str = "memory"
    table: str = ""

    @property
    def schema(self) -> pa.Schema:
        return self.data.schema

    def fingerprint(self) -> str:
        return "1"

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.data.select(list(names)).to_batches(2)


class Memory:
    """Tables by name, and the engine that opens them."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.engine = ArrowEngine(self.open)

    def open(self, table: Table) -> Held:
        if table.source not in self.tables:
            unavailable(table.name, table.source, "there is no such table")
        return Held(self.tables[table.source], (table.source,))

    def put(self, data: pa.Table) -> str:
        name = f"memory://{len(self.tables)}"
        self.tables[name] = data
        return name


def stored(kind: Any, values: Sequence[Any]) -> pa.Array:
    """Values as an array: numbers as the bits of days and times, bytes as those of texts."""
    if pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(values, width).view(kind)
    if pa.types.is_string_view(kind):
        return pa.array(values, pa.binary_view()).view(kind)
    if pa.types.is_large_string(kind):
        return pa.array(values, pa.large_binary()).view(kind)
    if kind == pa.string():
        return pa.array(values, pa.binary()).view(kind)
    return pa.array(values, kind)


def rows_of(memory: Memory, data: pa.Table, unit: str | None = None) -> Counter[Any]:
    """Facts of each row, in every form that its columns have, and of its unit."""
    opened = memory.engine.open(Table("t", memory.put(data), Unit(), {}))
    forms = {f"c{i}": FORMS[family] for i, (family, _, _) in enumerate(TYPES.values())}
    asked = [
        RequestedColumn(name, form, ("a", "A", "\u00e9") if form == "place" else ())
        for name, each in forms.items()
        for form in each
    ]
    found: Counter[Any] = Counter()
    for batch in opened.read(asked, unit):
        batch.check(asked, unit is not None)
        told: list[Iterator[Any]] = [
            zip(
                map(repr, np.where(v.missing | v.unknown, 0, v.numbers).tolist()),
                v.missing.tolist(),
                v.unknown.tolist(),
                strict=True,
            )
            for v in batch.columns
        ]
        if batch.units is not None and batch.owned is not None:
            units = zip(map(repr, batch.units.tolist()), batch.owned.tolist(), strict=True)
            told.append(((u if is_owned else "", is_owned, False) for u, is_owned in units))
        found.update(zip(*told, strict=True))
    return found


def table_of(rows: Sequence[int]) -> pa.Table:
    """The values of every type at some places, those of shorter lists again."""
    columns = {
        f"c{i}": stored(kind, [([None, *values])[row % (len(values) + 1)] for row in rows])
        for i, (_, kind, values) in enumerate(TYPES.values())
    }
    return pa.table(columns)


def test_every_type_of_arrow_is_read_value_by_value() -> None:
    memory, rows = Memory(), range(1 + max(len(values) for _, _, values in TYPES.values()))
    opened = memory.engine.open(Table("t", memory.put(table_of(rows)), Unit(), {}))
    assert [family for _, family in opened.columns] == [family for family, _, _ in TYPES.values()]
    whole = rows_of(memory, table_of(rows))
    assert whole.total() == len(rows)
    assert whole == sum((rows_of(memory, table_of([row])) for row in rows), Counter())


@pytest.mark.parametrize("name", ["binary text", "ns None", "decimal"])
def test_units_of_every_type_are_told_value_by_value(name: str) -> None:
    memory, unit = Memory(), f"c{list(TYPES).index(name)}"
    rows = range(1 + len(TYPES[name][2]))
    whole = rows_of(memory, table_of(rows), unit)
    assert whole == sum((rows_of(memory, table_of([row]), unit) for row in rows), Counter())
    owners = {row[-1][0] for row in whole if row[-1][1]}
    assert len(owners) > 1


def test_the_kit_tries_an_engine_of_batches() -> None:
    memory = Memory()
    nothing: Mapping[str, Sequence[object]] = {each: [] for each in FORMS if each != "time"}
    for kind, is_sound in ((pa.time64("us"), True), (pa.string(), False)):

        def write(_: str, rows: Sequence[Any], kind: Any = kind) -> str:
            as_text = [[v if v is None else str(v) for v in row] for row in rows]
            plain = as_text if kind == pa.string() else rows
            columns = [pa.array([row[i] for row in plain], kind) for i in (0, 1)]
            return memory.put(pa.table(columns, ["v", "u"]))

        assert (find_faults(memory.engine, write, nothing) == []) is is_sound


def test_values_are_those_that_arrow_means() -> None:
    memory = Memory()
    instant = dt.datetime(2024, 2, 29, 23, 30)
    data = pa.table(
        {
            "day": pa.array([instant.date()], pa.date64()),
            "clock": pa.array([instant], pa.timestamp("ms", "UTC")),
            "time": pa.array([instant.time()], pa.time32("s")),
            "price": pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
            "text": pa.array(["\u00e9"], pa.string_view()),
        }
    )
    opened = memory.engine.open(Table("t", memory.put(data), Unit(), {}))
    asked = [
        RequestedColumn("day", "day"),
        RequestedColumn("clock", "clock", zone="Europe/Berlin"),
        RequestedColumn("clock", "day"),
        RequestedColumn("time", "time"),
        RequestedColumn("price", "number"),
        RequestedColumn("text", "place", ("a", "\u00e9")),
    ]
    batches = [batch for batch in opened.read(asked, None) if batch.rows]
    days = (instant.date() - dt.date(1970, 1, 1)).days
    micros = ((days * 24 + 23) * 60 + 30) * 60 * 10**6
    expected = [days, micros + 3600 * 10**6, days, 84_600 * 10**6, 1.25, 1]
    assert [each.numbers.tolist() for each in batches[0].columns] == [[e] for e in expected]


def test_types_that_are_not_read_hinder_no_other() -> None:
    memory = Memory()
    columns = {f"c{i}": pa.nulls(2, kind) for i, kind in enumerate(OTHERS)}
    source = memory.put(pa.table({**columns, "v": pa.array([1, 2])}))
    opened = memory.engine.open(Table("t", source, Unit(), {}))
    assert [family for _, family in opened.columns] == [NESTED] * len(OTHERS) + ["integer"]
    found = [
        each
        for batch in opened.read([RequestedColumn("v", "whole")], None)
        for each in batch.columns
    ]
    assert [number for each in found for number in each.numbers.tolist()] == [1, 2]
