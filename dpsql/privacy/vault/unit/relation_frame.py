"""Rows of privacy units while a relation over them is worked out: arrays with one number per row.

Guarantee: a lane of a taken row is that of the row it was taken from; nothing looks at other rows.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import (
    Bins,
    DecimalRange,
    IntegerRange,
    Periods,
    Values,
    decimal_places,
)
from dpsql.privacy.vault.codes.encode import EPOCH, OUTSIDE, clip, code_type, encode
from dpsql.privacy.vault.codes.tally import PLACES, find_places, find_steps
from dpsql.privacy.vault.data_engine import Codes, Counts, Flags, Floats, Values64
from dpsql.records import dataclass, replace
from dpsql.relation.cell_maps import CELLS, VALUES, numbered
from dpsql.relation.unit_local import (
    AllOf,
    Among,
    AnyOf,
    DifferRows,
    FormulaRows,
    HasValue,
    InOrder,
    MapRows,
    Sign,
    Test,
    columns_of_test,
)

Key = tuple[Counts, Flags]
"""A number for every row, equal for equal values, and whether there is a value."""


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """One column: the cell of every row, its place in a bin, its value as a measure.

    Each is None where the column has no such thing; see
    :class:`dpsql.privacy.vault.unit.rows.Rows`.
    """

    column: Column
    codes: Codes | None = None
    places: Codes | None = None
    numbers: Floats | None = None

    def take(self, rows: Counts) -> EncodedColumn:
        """Return the lane of the rows at these places (any length), in order."""
        return EncodedColumn(
            self.column,
            None if self.codes is None else self.codes[rows],
            None if self.places is None else self.places[rows],
            None if self.numbers is None else self.numbers[rows],
        )

    def take_any(self, rows: Counts) -> EncodedColumn:
        """Return the lane of the rows at these places, undeclared at -1."""

        def found(values: Any, none: float) -> Any:
            return None if values is None else np.append(values, values.dtype.type(none))[rows]

        codes, places = found(self.codes, self.column.size), found(self.places, 0)
        return EncodedColumn(self.column, codes, places, found(self.numbers, OUTSIDE))

    def cells(self) -> EncodedColumn:
        """Return the lane of cells alone, without what tells apart the values in one."""
        places = None if self.places is None else np.zeros_like(self.places)
        return EncodedColumn(replace(self.column, bounds=None), self.codes, places)

    def nullable(self, column: Column, missing: Flags) -> EncodedColumn:
        """Return the lane of a column that takes NULL besides; ``missing`` (rows,) have it."""
        places, numbers = self.places, self.numbers
        codes = None if self.codes is None else self.codes.astype(code_type(column.size + 1))
        if codes is not None:
            codes = np.where(codes == self.column.size, column.size, codes)
            codes = np.where(missing, column.size - 1, codes).astype(code_type(column.size + 1))
        if places is not None:
            places = np.where(missing, 0, places).astype(places.dtype)
        if numbers is not None:
            numbers = np.where(missing, np.nan, numbers)
        return EncodedColumn(column, codes, places, numbers)

    def content(self) -> list[Counts]:
        """Whole numbers, (rows,) each, that tell apart what the view tells apart."""
        found = [each.astype(np.int64) for each in (self.codes, self.places) if each is not None]
        if self.numbers is not None and self.column.bounds is not None:
            found.append(find_steps(self.numbers, self.column))
        return found

    def is_declared(self) -> Flags:
        """Mark rows (rows,) with a declared value, NULL among them where it is declared."""
        if self.codes is not None:
            return np.asarray(self.codes < self.column.size)
        assert self.numbers is not None
        return np.asarray(self.numbers != OUTSIDE)

    def has_value(self) -> Flags:
        """Mark rows (rows,) with a declared value that is not NULL."""
        if self.codes is not None:
            return np.asarray(self.codes < self.column.size - self.column.null)
        assert self.numbers is not None
        return np.isfinite(self.numbers)

    def values(self) -> tuple[Floats, Flags]:
        """The values (rows,), days since 1970 for dates, and which of them are known."""
        if self.numbers is not None:
            known = np.isfinite(self.numbers)
            return np.where(known, self.numbers, 0.0), known
        assert self.codes is not None
        known = self.codes < (0 if self.column.domain is None else self.column.domain.size)
        codes = np.where(known, self.codes, 0).astype(np.int64)
        match self.column.domain:
            case IntegerRange(lo):
                return (lo + codes).astype(np.float64), known
            case DecimalRange(first, step) as decimals:
                digits = decimal_places(decimals)
                start, width = (int(each.scaleb(digits)) for each in (first, step))
                return (start + width * codes) / 10.0**digits, known  # both exact: 15 digits
            case Bins(edges):
                lower = np.array([float(edge) for edge in edges])
                places = np.zeros(len(codes)) if self.places is None else self.places / PLACES
                found = lower[codes] + places * np.diff(lower)[codes]
                return np.rint(found) if self.column.type == "integer" else found, known
            case Periods() as periods:
                days = [_day(periods.begin(k)) for k in range(periods.count)]
                return np.array(days)[codes], known
            case Values(listed) if self.column.type != "text":
                return np.array([float(each) for each in listed])[codes], known
        raise ValueError("a column whose values have no order")


def _day(day: dt.date) -> float:
    """Days since 1970, with the time of day as a fraction."""
    if isinstance(day, dt.datetime):
        midnight = dt.datetime(EPOCH.year, EPOCH.month, EPOCH.day, tzinfo=day.tzinfo)
        return (day - midnight) / dt.timedelta(days=1)
    return float((day - EPOCH).days)


def lane_of(column: Column, numbers: Floats, known: Flags) -> EncodedColumn:
    """Return the lane of worked out numbers: in the cells, bins and bounds that are declared.

    ``numbers`` and ``known`` have shape (rows,); numbers are in units of the column.
    Numbers beyond the declared ones are taken for the least or the largest of them, unless
    there is a cell for all others.
    """
    if column.other is None and isinstance(column.domain, IntegerRange | DecimalRange | Bins):
        low, high = column.number_bounds or (-np.inf, np.inf)
        numbers = np.fmin(np.fmax(numbers, low), high)
    if column.type == "integer":
        numbers = np.rint(numbers)
    values = Values64(numbers, ~known, np.zeros(len(numbers), dtype=np.bool_))
    lane = EncodedColumn(column)
    if column.bounds is not None:
        lane = replace(lane, numbers=clip(column, values))
    if column.domain is not None:
        codes = encode(column, values)
        lane = replace(lane, codes=codes)
        if isinstance(column.domain, Bins):
            edges = tuple(map(float, column.domain.edges))
            lane = replace(lane, places=find_places(numbers, codes, edges))
    return lane


@dataclass(frozen=True, slots=True)
class Frame:
    """Some rows, each with the number of its unit; ``lanes`` and ``keys`` are by case-folded name.

    Arrays have shape (rows,).
    """

    units: Counts
    lanes: Mapping[str, EncodedColumn]
    keys: Mapping[str, Key]

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.units)

    def take(self, rows: Counts) -> Frame:
        """Return some rows, in order, each as often as it is named."""
        lanes = {name: lane.take(rows) for name, lane in self.lanes.items()}
        keys = {name: (found[rows], known[rows]) for name, (found, known) in self.keys.items()}
        return Frame(self.units[rows], lanes, keys)

    def content(self, rows: Counts) -> list[Counts]:
        """Whole numbers, as long as ``rows``, that tell apart all that is known of these."""
        found = [each for lane in self.lanes.values() for each in lane.take(rows).content()]
        return [
            *found,
            *(each[rows].astype(np.int64) for key in self.keys.values() for each in key),
        ]


def holds(test: Test, frame: Frame) -> Flags:
    """Say for which rows (rows,) a condition holds; not where a column of it is undeclared."""
    found = _holds(test, frame)
    for name in columns_of_test(test):
        found = found & frame.lanes[name].is_declared()
    return found


def _holds(test: Test, frame: Frame) -> Flags:
    match test:
        case Among(names, cells):
            return _among([frame.lanes[name] for name in names], cells, frame.count)
        case HasValue(name):
            return frame.lanes[name].has_value()
        case InOrder(left, sign, right):
            return _in_order(frame.lanes[left], sign, frame.lanes[right])
        case AllOf(parts):
            found = [_holds(each, frame) for each in parts]
            return np.asarray(np.logical_and.reduce([np.ones(frame.count, np.bool_), *found]))
        case AnyOf(parts):
            found = [_holds(each, frame) for each in parts]
            return np.asarray(np.logical_or.reduce([np.zeros(frame.count, np.bool_), *found]))


_ORDERS = {"<": np.less, "<=": np.less_equal, "=": np.equal, "<>": np.not_equal}


def _in_order(left: EncodedColumn, sign: Sign, right: EncodedColumn) -> Flags:
    (one, known), (other, both) = left.values(), right.values()
    return np.asarray(_ORDERS[sign](one, other) & known & both)


def _among(lanes: Sequence[EncodedColumn], cells: bytes, rows: int) -> Flags:
    return np.asarray(np.frombuffer(cells, dtype=np.uint8)[_combination(lanes, rows)] != 0)


def _combination(lanes: Sequence[EncodedColumn], rows: int) -> Counts:
    """Number the combinations of cells that rows have; an undeclared one is taken for the first."""
    sizes = [lane.column.size for lane in lanes]
    place = np.zeros(rows, dtype=np.int64)
    for i, lane in enumerate(lanes):
        assert lane.codes is not None
        declared = np.where(lane.codes < sizes[i], lane.codes, 0).astype(np.int64)
        place += declared * math.prod(sizes[i + 1 :])
    return place


def map_cells(mapped: MapRows, frame: Frame) -> Frame:
    """Return all rows with a column more, which follows from the cells of other columns."""
    lanes, column = [frame.lanes[name] for name in mapped.of], mapped.column
    places = _combination(lanes, frame.count)
    if column.domain is None:
        values = np.frombuffer(mapped.cells, dtype=VALUES)[places]
        for lane in lanes:
            values = np.where(lane.is_declared(), values, OUTSIDE)
        measured = {column.name.casefold(): EncodedColumn(column, numbers=values)}
        return Frame(frame.units, {**frame.lanes, **measured}, frame.keys)
    cells = np.frombuffer(mapped.cells, dtype=CELLS)
    found = cells[places] if mapped.listed is None else _listed(mapped, lanes, places)
    for lane in lanes:
        found = np.where(lane.is_declared(), found, column.size)
    inside = None
    if isinstance(column.domain, Bins):
        inside = np.zeros(frame.count, dtype=np.uint32)
    lane = EncodedColumn(column, found.astype(code_type(column.size + 1)), inside)
    return Frame(frame.units, {**frame.lanes, column.name.casefold(): lane}, frame.keys)


def tell_apart(differ: DifferRows, frame: Frame) -> Frame:
    """Return all rows with a column more: by how much two others differ, both being known.

    Guarantee: its cell follows from two cells of the same row; there are as many rows as before.
    """
    sides, column = [frame.lanes[name] for name in (differ.left, differ.right)], differ.column
    (one, known), (other, both) = (side.values() for side in sides)
    declared = sides[0].is_declared() & sides[1].is_declared()
    assert isinstance(column.domain, IntegerRange)
    codes = np.where(known & both, one - other - column.domain.lo, column.domain.size)
    codes = np.where(declared, codes, column.size).astype(code_type(column.size + 1))
    lanes = {**frame.lanes, column.name.casefold(): EncodedColumn(column, codes)}
    return Frame(frame.units, lanes, frame.keys)


def add_product_column(formula: FormulaRows, frame: Frame) -> Frame:
    """Return all rows with a column more: a sum of products of numbers that are all known.

    Guarantee: its value follows from numbers of the same row; there are as many rows as before.
    """
    column, total = formula.column, np.zeros(frame.count)
    known, declared = np.ones(frame.count, np.bool_), np.ones(frame.count, np.bool_)
    found, filled = dict[str, Floats](), dict(formula.filled)
    for name in formula.of:
        numbers, has_value = frame.lanes[name].values()
        declared &= frame.lanes[name].is_declared()
        if name in filled:
            numbers = np.where(has_value, numbers, float(filled[name]))
        else:
            known &= has_value
        found[name] = numbers
    for term in formula.terms:
        part = np.full(frame.count, float(term.times))
        for name in term.columns:
            part = part * found[name]
        total = total + part
    lane = lane_of(column, total, known)
    if lane.codes is not None:
        codes = np.where(declared, lane.codes, column.size).astype(lane.codes.dtype)
        lane = replace(lane, codes=codes)
    if lane.numbers is not None:
        lane = replace(lane, numbers=np.where(declared, lane.numbers, OUTSIDE))
    return Frame(frame.units, {**frame.lanes, column.name.casefold(): lane}, frame.keys)


def _listed(mapped: MapRows, lanes: Sequence[EncodedColumn], places: Counts) -> Counts:
    """Return the cells of combinations of which some are listed: of the others, NULL."""
    keys = numbered(mapped, [lane.column.size for lane in lanes])
    if not len(keys):
        return np.full(len(places), mapped.column.size - 1)
    order = np.argsort(keys)
    at = order[np.minimum(np.searchsorted(keys, places, sorter=order), len(keys) - 1)]
    cells = np.frombuffer(mapped.cells, dtype=CELLS)[at]
    return np.where(keys[at] == places, cells, mapped.column.size - 1)
