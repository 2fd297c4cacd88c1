"""Relations to audit: sound ones by hand, and random ones of the whole language."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import get_args

import numpy as np

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins, DecimalRange, IntegerRange
from dpsql.relation.cell_maps import CELLS, VALUES
from dpsql.relation.distances import are_comparable, difference_of
from dpsql.relation.formulas import formula_column, is_number
from dpsql.relation.header import (
    Header,
    has_single_values,
    is_ordered,
    is_summed,
    read_header,
    taken_from,
)
from dpsql.relation.unit_local import (
    FRAMED,
    TAKEN,
    AllOf,
    Among,
    AnyOf,
    DifferRows,
    FilterRows,
    FormulaRows,
    FramedRows,
    HasValue,
    InOrder,
    JoinRows,
    MapRows,
    MeetRows,
    Multiple,
    PerKey,
    PerUnit,
    PickColumns,
    RowOrder,
    Running,
    Scan,
    Summary,
    Summing,
    Test,
    UnionRows,
    UnitLocal,
    WindowRows,
)
from tests.support.clinic import COST, TABLES, WARD

PATIENTS, VISITS, LINES = Scan("patients"), Scan("visits"), Scan("lines")
N = Column("n", "integer", IntegerRange(0, 3))
SPENT = Column("spent", "number", None, (Fraction(0), Fraction(20)), null=True)
HALVES = Column("halves", "decimal", DecimalRange(Decimal(0), Decimal("0.5"), 55), null=True)
WHOLES = replace(HALVES, name="wholes")
KEY = (("visit_id", "visit_id"),)
IN_A = Among(("ward",), bytes([1, 0, 0]))
DEAREST = taken_from(COST, "dearest")
GAP = Column("gap", "integer", IntegerRange(0, 9), null=True)
APART = Column("apart", "integer", IntegerRange(-9, 9), null=True)
AGE_OF_DAY = Column("years", "integer", IntegerRange(0, 4))
ZERO = np.zeros(1, VALUES).tobytes()
PAID = np.array([*range(10), math.nan], VALUES).tobytes()
MAPPED = np.array([k % 6 for k in range(11)], CELLS).tobytes()

SOUND: dict[str, UnitLocal] = {
    "scan": VISITS,
    "by reference": LINES,
    "lookup": JoinRows(VISITS, PATIENTS, "p", outer=True, one=True),
    "inner lookup": JoinRows(VISITS, PATIENTS, "p", one=True),
    "chain": JoinRows(LINES, JoinRows(VISITS, PATIENTS, "p", one=True), "v", KEY, one=True),
    "many": JoinRows(VISITS, LINES, "l"),
    "outer many": JoinRows(PATIENTS, VISITS, "v", outer=True),
    "self join": JoinRows(VISITS, VISITS, "w"),
    "by key": JoinRows(VISITS, LINES, "l", KEY),
    "filter": FilterRows(VISITS, AnyOf((IN_A, HasValue("cost")))),
    "in order": FilterRows(JoinRows(VISITS, PATIENTS, "p", one=True), InOrder("p.age", "<", "day")),
    "apart": FilterRows(
        DifferRows(JoinRows(VISITS, VISITS, "w"), APART, "w.day", "day"),
        Among(("apart",), bytes([0] * 10 + [1] * 3 + [0] * 7)),
    ),
    "per unit": PerUnit(VISITS, (), (Summary(N, "count"), Summary(SPENT, "sum", "cost"))),
    "distinct": PerUnit(VISITS, ("ward",)),
    "decimals": PerUnit(
        PerUnit(VISITS, ("ward",), (Summary(HALVES, "sum", "day"),)),
        ("ward",),
        (Summary(WHOLES, "sum", "halves"), Summary(N, "count")),
    ),
    "per key": PerKey(LINES, (), (Summary(N, "count"),), ("visit_id",)),
    "not exists": FilterRows(
        JoinRows(PATIENTS, PerUnit(VISITS, (), (Summary(N, "count"),)), "v", outer=True, one=True),
        Among(("v.n",), bytes([0, 0, 0, 0, 1])),
    ),
    "exists": JoinRows(
        PATIENTS,
        PerUnit(FilterRows(VISITS, Among(("day",), bytes([0, 1] + [0] * 9))), (), ()),
        "v",
        one=True,
    ),
    "came again": MeetRows(VISITS, VISITS, "w", (), InOrder("day", "<", "w.day")),
    "another kind": FilterRows(
        MeetRows(LINES, LINES, "w", KEY, Among(("kind", "w.kind"), bytes([0, 1, 1, 0]))),
        Among(("w exists",), b"\0\1"),
    ),
    "window": WindowRows(VISITS, N, "row_number", (RowOrder("day"),)),
    "union": UnionRows((VISITS, FilterRows(VISITS, IN_A))),
    "union of tables": UnionRows(
        (
            PickColumns(PATIENTS, (("years", "age"),)),
            PickColumns(MapRows(VISITS, AGE_OF_DAY, ("day",), MAPPED), (("years", "years"),)),
        )
    ),
    "union with a number": UnionRows(
        (
            PickColumns(MapRows(PATIENTS, SPENT, (), ZERO), (("spent", "spent"),)),
            PickColumns(MapRows(VISITS, SPENT, ("day",), PAID), (("spent", "spent"),)),
        )
    ),
    "since the last": WindowRows(VISITS, GAP, "since_previous", (RowOrder("day"),), of="day"),
    "the last two": FramedRows(VISITS, N, "running_count", (RowOrder("day"),), first=-1, last=0),
    "three days": FramedRows(
        VISITS, SPENT, "running_sum", (RowOrder("day"),), (), "cost", False, -2, 0, True
    ),
    "dearest of three": FramedRows(
        VISITS, DEAREST, "running_greatest", (RowOrder("day"),), (), "cost", False, -1, 1
    ),
    "first visits": FilterRows(
        WindowRows(VISITS, N, "row_number", (RowOrder("day"),)), Among(("n",), bytes([0, 1, 0, 0]))
    ),
    "two wards": FilterRows(
        WindowRows(VISITS, N, "part_number", by=("ward",)), Among(("n",), bytes([0, 1, 1, 0]))
    ),
    "one kind": FilterRows(
        WindowRows(LINES, N, "part_number", by=("kind",)), Among(("n",), bytes([0, 1, 0, 0]))
    ),
    "without": FilterRows(
        JoinRows(PerUnit(PATIENTS), PerUnit(FilterRows(VISITS, IN_A)), "v", outer=True, one=True),
        Among(("v exists",), b"\1\0"),
    ),
    "product": FormulaRows(
        VISITS,
        replace(SPENT, name="w"),
        (Multiple(Fraction(2), ("cost", "day")), Multiple(Fraction(-1))),
    ),
    "steps of a sum": FormulaRows(
        PerUnit(VISITS, (), (Summary(SPENT, "sum", "cost"),)),
        Column("steps", "number", Bins(tuple(map(Fraction, (0, 2, 20)))), null=True),
        (Multiple(Fraction(1), ("spent",)),),
    ),
    "first": PerUnit(
        VISITS, (), (Summary(taken_from(WARD, "first"), "first", "ward", None, "day"),)
    ),
}


def draw_relation(draw: random.Random, depth: int) -> UnitLocal:
    """A random relation of at most so many levels, as the checker admits it."""
    if depth == 0 or draw.random() < 0.15:
        return draw.choice([PATIENTS, VISITS, LINES])
    rows = draw_relation(draw, depth - 1)
    header = read_header(rows, TABLES)
    kinds = ("join", "filter", "groups", "window", "union", "map", "differ", "meet", "formula")
    match draw.choice([*kinds * 2, "pick"]):
        case "join":
            return _join(draw, rows, header, depth)
        case "meet":
            found = _join(draw, rows, header, depth)
            test = _test(draw, read_header(replace(found, outer=False), TABLES), 1)
            return MeetRows(found.left, found.right, found.name, found.on, test)
        case "filter":
            return FilterRows(rows, _test(draw, header, 2))
        case "groups":
            return _groups(draw, rows, header)
        case "window":
            return _window(draw, rows, header)
        case "union":
            return UnionRows((rows, FilterRows(rows, _test(draw, header, 1))))
        case "map":
            return _map(draw, rows, header)
        case "differ":
            return _differ(draw, rows, header)
        case "formula":
            return _formula(draw, rows, header)
        case _:
            names = draw.sample(sorted(header.columns), draw.randrange(1, 1 + len(header.columns)))
            keys = sorted(header.keys)
            return PickColumns(rows, tuple((f"{name} {depth}", name) for name in [*names, *keys]))


def _join(draw: random.Random, rows: UnitLocal, header: Header, depth: int) -> JoinRows:
    other = draw_relation(draw, draw.randrange(depth))
    keys = read_header(other, TABLES).keys
    on: Sequence[tuple[str, str]] = []
    if header.keys and keys and draw.random() < 0.6:
        on = [(draw.choice(sorted(header.keys)), draw.choice(sorted(keys)))]
    name = f"j{depth}{draw.randrange(1000)}"
    return JoinRows(rows, other, name, tuple(on), draw.random() < 0.5, draw.random() < 0.6)


def _test(draw: random.Random, header: Header, depth: int) -> Test:
    if depth and draw.random() < 0.5:
        parts = tuple(_test(draw, header, depth - 1) for _ in range(2))
        return AllOf(parts) if draw.random() < 0.5 else AnyOf(parts)
    name = draw.choice(sorted(header.columns))
    names = [each for each, column in header.columns.items() if column.domain is not None]
    if header.columns[name].domain is None:
        return HasValue(name)
    both = tuple(draw.sample(names, 2)) if len(names) > 1 and draw.random() < 0.4 else (name,)
    size = 1
    for each in both:
        size *= header.columns[each].size
    return Among(both, bytes(draw.randrange(2) for _ in range(size)))


def _map(draw: random.Random, rows: UnitLocal, header: Header) -> UnitLocal:
    cells = _cells(header)
    of = tuple(draw.sample(cells, min(len(cells), draw.choice([0, 1, 2]))))
    size = math.prod(header.columns[name].size for name in of)
    if draw.random() < 0.3:
        column = replace(SPENT, name=f"v{draw.randrange(10**6)}")
        values = [draw.choice([math.nan, 0.0, 7.5, 20.0]) for _ in range(size)]
        return MapRows(rows, column, of, np.array(values, VALUES).tobytes())
    column = replace(N, name=f"m{draw.randrange(10**6)}", null=draw.random() < 0.5)
    some = [k for k in range(size) if draw.random() < 0.5] if of and column.null else None
    found = [draw.randrange(column.size + 1) for _ in range(size if some is None else len(some))]
    listed = None
    if some is not None:
        sizes = [header.columns[name].size for name in of]
        places = np.unravel_index(np.array(some, dtype=np.int64), sizes)
        listed = np.stack(places, axis=1).astype(CELLS).tobytes()
    return MapRows(rows, column, of, np.array(found, CELLS).tobytes(), listed)


def _differ(draw: random.Random, rows: UnitLocal, header: Header) -> UnitLocal:
    cells = [each for each in _cells(header) if are_comparable(*[header.columns[each]] * 2)]
    if not cells:
        return rows
    one, other = draw.choice(cells), draw.choice(cells)
    name = f"d{draw.randrange(10**6)}"
    column = difference_of(name, header.columns[one], header.columns[other])
    return rows if column is None else DifferRows(rows, column, one, other)


def _formula(draw: random.Random, rows: UnitLocal, header: Header) -> UnitLocal:
    known = sorted(name for name, column in header.columns.items() if is_number(column))
    terms = tuple(
        Multiple(Fraction(draw.choice([1, -2, 3]), draw.choice([1, 4])), tuple(names))
        for names in (draw.choices(known, k=draw.randrange(3)) if known else [] for _ in range(2))
    )
    name = f"f{draw.randrange(10**6)}"
    named = {each for term in terms for each in term.columns if draw.random() < 0.3}
    filled = {each: Fraction(draw.choice([-1, 0, 2])) for each in sorted(named)}
    found = formula_column(terms, header.columns, filled)
    if found is None:
        return rows
    if draw.random() < 0.5:
        edges = tuple(map(Fraction, (-5, 0, 1, 30)))
        found = Column("", "number", Bins(edges), null=True)
    return FormulaRows(rows, replace(found, name=name), terms, tuple(filled.items()))


def _cells(header: Header) -> list[str]:
    return sorted(name for name, column in header.columns.items() if column.domain is not None)


def _groups(draw: random.Random, rows: UnitLocal, header: Header) -> UnitLocal:
    cells = _cells(header)
    by = tuple(draw.sample(cells, min(len(cells), draw.choice([0, 0, 1, 2]))))
    found = [_summary(draw, header, i) for i in range(draw.randrange(3))]
    columns = tuple(each for each in found if each is not None)
    if not by and not columns:
        columns = (Summary(replace(N, name=f"n{draw.randrange(1000)}"), "count"),)
    if header.keys and draw.random() < 0.3:
        return PerKey(rows, by, columns, tuple(draw.sample(sorted(header.keys), 1)))
    return PerUnit(rows, by, columns)


def _summary(draw: random.Random, header: Header, i: int) -> Summary | None:
    name = f"s{i}{draw.randrange(1000)}"
    where = _test(draw, header, 1) if draw.random() < 0.4 else None
    summed = sorted(key for key, column in header.columns.items() if is_summed(column))
    ordered = sorted(key for key, column in header.columns.items() if is_ordered(column))
    kind = draw.choice(get_args(Summing))
    if kind == "count" or not ordered:
        return Summary(replace(N, name=name), "count", draw.choice([None, *header.columns]), where)
    if kind in ("sum", "mean"):
        column = draw.choice([replace(SPENT, name=name), binned(name)])
        return Summary(column, kind, draw.choice(summed), where) if summed else None
    if kind in ("distinct_sum", "distinct_mean"):
        single = [each for each in summed if has_single_values(header.columns[each])]
        column = draw.choice([replace(SPENT, name=name), binned(name)])
        return Summary(column, kind, draw.choice(single), where) if single else None
    if kind == "distinct":
        of = draw.choice(_cells(header) or [""])
        return Summary(replace(N, name=name), "distinct", of, where) if of else None
    order = draw.choice(ordered)
    of = order if kind in ("least", "greatest") else draw.choice(sorted(header.columns))
    column = taken_from(header.columns[of], name)
    return Summary(column, kind, of, where, order)


def binned(name: str) -> Column:
    """A number with bins."""
    return Column(name, "number", Bins(tuple(map(Fraction, (0, 1, 5, 20)))), null=True)


def _window(draw: random.Random, rows: UnitLocal, header: Header) -> UnitLocal:
    name = f"w{draw.randrange(10**6)}"
    ordered = sorted(key for key, column in header.columns.items() if is_ordered(column))
    summed = sorted(key for key, column in header.columns.items() if is_summed(column))
    order = tuple(
        RowOrder(key, draw.random() < 0.5, draw.random() < 0.5)
        for key in draw.sample(ordered, min(draw.choice([1, 1, 2]), len(ordered)))
    )
    cells = _cells(header)
    by = tuple(draw.sample(cells, min(len(cells), draw.choice([0, 0, 1]))))
    one = draw.random() < 0.3
    kind, of = draw.choice(get_args(Running) if ordered else ("row_number",)), None
    column = replace(N, name=name, null=True)
    if kind in TAKEN:
        of = draw.choice(ordered if kind.startswith("running") else sorted(header.columns))
        column = taken_from(header.columns[of], name)
    elif kind in ("running_sum", "running_mean", "since_previous"):
        kind = kind if summed else "row_number"
        column, of = (binned(name), draw.choice(summed)) if summed else (column, None)
    elif kind == "running_count":
        of = draw.choice([None, *sorted(header.columns)])
    if kind not in FRAMED or draw.random() < 0.4:
        return WindowRows(rows, column, kind, order, by, of, one)
    first, last = (draw.choice([None, -2, -1, 0, 1, 2]) for _ in range(2))
    days = [each for each in cells if are_comparable(header.columns[each], header.columns[each])]
    by_value = bool(days) and draw.random() < 0.5
    order = (RowOrder(draw.choice(days), one),) if by_value else order
    return FramedRows(rows, column, kind, order, by, of, False, first, last, by_value)
