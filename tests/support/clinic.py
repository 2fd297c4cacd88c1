"""Small hostile tables of one privacy unit: keys repeated, missing, dangling; and their relations.

Rows are in memory: an audit takes thousands of tables.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from dpsql.catalog.catalog import Column, Reference, Table, Unit
from dpsql.catalog.domain import Bins, IntegerRange, Values
from dpsql.privacy.vault.codes.spill import SpillRoom
from dpsql.privacy.vault.data_engine import Batch, Values64
from dpsql.privacy.vault.unit.local_rows import UnitTables, evaluate, rows_of, take_stock
from dpsql.privacy.vault.unit.relation_frame import Frame
from dpsql.privacy.vault.unit.rows import Rows, declared, line_up, load_rows, view
from dpsql.privacy.vault.unit.unit_numbers import Digest
from dpsql.relation.header import read_header
from dpsql.relation.row_view import RowView
from dpsql.relation.unit_local import DerivedTable, UnitLocal

Row = tuple[Any, ...]
Data = Mapping[str, Sequence[Row]]
SALT = "00ff" * 16
LISTS = {"sex": ("f", "m"), "ward": ("a", "b", "c"), "kind": ("x", "y")}

SEX = Column("sex", "text", Values(LISTS["sex"]), other="other")
AGE = Column("age", "integer", IntegerRange(0, 4), null=True)
WARD = Column("ward", "text", Values(LISTS["ward"]))
DAY = Column("day", "integer", IntegerRange(0, 9), null=True)
COST = Column("cost", "number", None, (Fraction(0), Fraction(10)), null=True)
KIND = Column("kind", "text", Values(LISTS["kind"]))
PRICE = Column("price", "number", Bins(tuple(map(Fraction, (0, 2, 4, 8)))))

BY_VISIT = Reference("visits", (("visit_id", "visit_id"),))
TO_PATIENTS = Reference("patients", (("patient_id", "patient_id"),))


def _table(name: str, unit: Unit, columns: Sequence[Column], **facts: Any) -> Table:
    return Table(name, f"{name}.parquet", unit, {c.name: c for c in columns}, **facts)


PATIENTS = _table("patients", Unit("patient_id", 1, "patient"), (SEX, AGE))
VISITS = _table(
    "visits",
    Unit("patient_id", 3, "patient"),
    (WARD, DAY, COST),
    references=(TO_PATIENTS,),
    keys=("visit_id",),
)
LINES = _table(
    "lines",
    Unit("patient_id", 5, "patient", BY_VISIT),
    (KIND, PRICE),
    references=(BY_VISIT,),
    keys=("visit_id",),
)
TABLES = {"patients": PATIENTS, "visits": VISITS, "lines": LINES}
"""Rows are (unit, sex, age), (unit, visit, ward, day, cost) and (visit, kind, price)."""


@dataclass(frozen=True, slots=True)
class Clinic:
    """One set of tables, encoded."""

    stock: UnitTables

    @classmethod
    def of(cls, data: Data) -> Clinic:
        """Encode rows as the vault encodes what it reads."""
        found = {name: load_rows([_batch(TABLES[name], data[name])], _raw(name)) for name in TABLES}
        return cls(take_stock(list(TABLES.values()), found, DIGEST))

    def frame(self, relation: UnitLocal) -> Frame:
        """Rows of a relation, worked out together."""
        ((first, every),) = self.stock.shares(relation, SpillRoom())
        assert first == 0
        return evaluate(relation, every)

    def counts(self, relation: UnitLocal, max_rows: int) -> Counter[tuple[int, ...]]:
        """The rows of a relation after bounding, by all that the view shows of them."""
        table = table_of(relation, max_rows)
        rows = rows_of(table, relation, self.stock)
        rows = replace(rows, queue=line_up(rows, table, DIGEST))
        return contents(rows, table)


def contents(rows: Rows, table: Table) -> Counter[tuple[int, ...]]:
    """The rows that stay, as whole numbers."""
    frame = [*rows.codes.values(), *rows.places.values()]
    frame += [np.nan_to_num(each * 1000, nan=-1, posinf=-2) for each in rows.numbers.values()]
    kept = view(rows, table, RowView(()))
    if not frame:
        return Counter({(): int(kept.sum())})
    return Counter(map(tuple, np.array(frame).T[kept].astype(np.int64).tolist()))


def table_of(relation: UnitLocal, max_rows: int) -> DerivedTable:
    """The table of a relation."""
    header = read_header(relation, TABLES)
    unit = Unit(header.unit, max_rows)
    return DerivedTable(
        "it", "", unit, dict(header.columns), relation=relation, bases=tuple(TABLES.values())
    )


def _raw(name: str) -> Table:
    table = TABLES[name]
    return table if table.unit.through is None else replace(table, unit=Unit())


def _batch(table: Table, rows: Sequence[Row]) -> Batch:
    """The rows of a table as an engine hands them over."""
    owned = table.unit.through is None
    keyed = len(table.keys)
    columns = []
    for i, column in enumerate(declared(table).values()):
        values = [row[owned + keyed + i] for row in rows]
        columns.append(_values(column, values))
    keys = [_key([row[owned + k] for row in rows]) for k in range(keyed)]
    if not owned:
        return Batch(len(rows), columns, keys=keys)
    return Batch(len(rows), columns, *_key([row[0] for row in rows]), keys)


def _key(values: Sequence[int | None]) -> tuple[Any, Any]:
    known = np.array([value is not None for value in values], dtype=bool)
    return np.array([value or 0 for value in values], dtype=np.int64), known


def _values(column: Column, values: Sequence[Any]) -> Values64:
    missing = np.array([value is None for value in values], dtype=bool)
    listed = LISTS.get(column.name)
    if listed is not None:
        known = [listed.index(value) if value in listed else -1 for value in values]
        numbers: Any = np.array(known, dtype=np.int64)
    else:
        numbers = np.array([0 if value is None else value for value in values], dtype=np.float64)
    return Values64(numbers, missing, np.zeros(len(values), dtype=bool))


def draw_data(draw: random.Random, people: int = 4, hostile: bool = True) -> Data:
    """Tables of a few units; hostile ones repeat keys and miss them."""
    who = list(range(people))
    lost = [None] if hostile else []

    def some(values: Sequence[Any], odd: Sequence[Any]) -> Any:
        return draw.choice([*values, *(odd if hostile and draw.random() < 0.3 else ())])

    patients: list[Row] = [
        (
            some(who, lost) if hostile else i,
            some(LISTS["sex"], ["z", None]),
            some(range(5), [None, 7]),
        )
        for i in range(people)
    ]
    visits: list[Row] = [
        (
            some(who, [*lost, 9]),
            some(range(6), [None]) if hostile else i,
            some(LISTS["ward"], ["q", None]),
            some(range(10), [None, 12]),
            some([0.0, 1.5, 2.25, 9.75], [None, -3.0, 99.0]),
        )
        for i in range(draw.randrange(4, 16))
    ]
    lines: list[Row] = [
        (
            some(range(6), [None, 8]),
            some(LISTS["kind"], ["q", None]),
            some([0.0, 1.0, 2.0, 7.5], [9.0]),
        )
        for _ in range(draw.randrange(3, 16))
    ]
    return {"patients": patients, "visits": visits, "lines": lines}


def without(data: Data, unit: int) -> Data:
    """The tables without a unit: its rows, and those that lead to it and to no other unit."""
    ways: dict[Any, set[Any]] = {}
    for owner, visit, *_ in data["visits"]:
        if owner is not None and visit is not None:
            ways.setdefault(visit, set()).add(owner)
    return {
        "patients": [row for row in data["patients"] if row[0] != unit],
        "visits": [row for row in data["visits"] if row[0] != unit],
        "lines": [row for row in data["lines"] if ways.get(row[0]) != {unit}],
    }


def units_of(data: Data) -> list[int]:
    """All units that a table names."""
    found = {row[0] for row in [*data["patients"], *data["visits"]]}
    return sorted(unit for unit in found if unit is not None)


def largest_change(relation: UnitLocal, max_rows: int, seeds: Sequence[int]) -> int:
    """The largest L1 distance between what is counted with and without one unit."""
    largest = 0
    for seed in seeds:
        data = draw_data(random.Random(seed))
        whole = encoded(seed, None).counts(relation, max_rows)
        for unit in units_of(data):
            part = encoded(seed, unit).counts(relation, max_rows)
            gone, come = whole - part, part - whole
            largest = max(largest, gone.total() + come.total())
    return largest


@cache
def encoded(seed: int, gone: int | None) -> Clinic:
    """Random tables, all of them or without one unit."""
    data = draw_data(random.Random(seed))
    return Clinic.of(data if gone is None else without(data, gone))


DIGEST = Digest(SALT)
