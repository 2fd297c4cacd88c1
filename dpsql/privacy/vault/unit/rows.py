"""The rows of a table as arrays of numbers, encoded batch by batch, and what is summed of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Column, Table
from dpsql.catalog.domain import Bins, Labels, Spans, Values
from dpsql.interrupts import check
from dpsql.privacy.vault.codes.encode import OUTSIDE, WHOLE, clip, encode
from dpsql.privacy.vault.codes.spill import Spill, SpillRoom
from dpsql.privacy.vault.codes.tally import (
    PLACES,
    Axis,
    axis_of_bins,
    axis_of_cells,
    axis_of_measure,
    axis_of_range,
    axis_of_steps,
    axis_of_unions,
    find_places,
    find_steps,
    fits_steps,
    tally_rows,
)
from dpsql.privacy.vault.codes.tally import fits as fits_nodes
from dpsql.privacy.vault.data_engine import (
    Batch,
    Codes,
    Counts,
    Flags,
    Floats,
    RequestedColumn,
    Room,
    Values64,
)
from dpsql.privacy.vault.unit.unit_counts import mark_cells, tally_units
from dpsql.privacy.vault.unit.unit_numbers import (
    Digest,
    Queue,
    UnitNumbers,
    Units,
    queue_up,
    strides,
)
from dpsql.records import dataclass, field, replace
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import AnyResolution, Cells, Nodes, Steps, Unions
from dpsql.workload.weights import MOST_WEIGHT, weights_of


@dataclass(frozen=True, slots=True)
class Rows:
    """Every row of a table, those outside the declared view included.

    ``codes`` has the cell of every column with a domain, and ``size`` for "outside"; ``places``
    where a value lies in its bin; ``numbers`` the clipped value of every measure, NaN for NULL and
    infinity for "outside". ``owners`` are the privacy units, when there is a column of them, and
    ``queue`` those of their rows that may be too many. ``keys`` are what references match rows by:
    a number for equal values, and whether there is a value.
    """

    count: int
    codes: dict[str, Codes]
    places: dict[str, Codes] = field(default_factory=dict)
    numbers: dict[str, Floats] = field(default_factory=dict)
    owners: Units | None = None
    queue: Queue | None = None
    keys: dict[str, tuple[Counts, Flags]] = field(default_factory=dict)
    room: SpillRoom = field(default_factory=SpillRoom, compare=False)

    def with_columns(self, more: Rows) -> Rows:
        """Return these rows with more columns, in the same order. Raises: ValueError."""
        if more.count != self.count or self.owners is not None:
            raise ValueError("these are not the same rows")
        return replace(
            self,
            codes=self.codes | more.codes,
            places=self.places | more.places,
            numbers=self.numbers | more.numbers,
        )


class EncodedRows:
    """The rows encoded so far, one pile per column."""

    def __init__(self, room: SpillRoom | None = None) -> None:
        self.room = SpillRoom() if room is None else room
        self.codes: dict[str, Spill] = {}
        self.places: dict[str, Spill] = {}
        self.numbers: dict[str, Spill] = {}
        self.keys: dict[str, tuple[Spill, Spill]] = {}
        self.units = UnitNumbers(self.room)

    def add(self, key: str, column: Column, values: Values64) -> None:
        """Encode one column of a batch."""
        codes = places = None
        numbers = None if column.bounds is None else clip(column, values)
        if column.domain is not None:
            codes = encode(column, values)
        if isinstance(column.domain, Bins) and codes is not None:
            found = np.asarray(values.numbers, dtype=np.float64)
            places = find_places(found, codes, tuple(map(float, column.domain.edges)))
        self.put(key, codes, places, numbers)

    def put(
        self, key: str, codes: Codes | None, places: Codes | None, numbers: Floats | None
    ) -> None:
        """Add what is known of one column of a batch, (rows,) each, None for what it has not."""
        spills = self.codes, self.places, self.numbers
        for some, found in zip(spills, (codes, places, numbers), strict=True):
            if found is not None:
                some.setdefault(key, self.room.spill()).add(found)

    def add_key(self, name: str, numbers: Counts, known: Flags) -> None:
        """Add the numbers of a key, and where there is one, of a batch; all of shape (rows,)."""
        for spill, part in zip(self.keys[name], (numbers, known), strict=True):
            spill.add(part)

    def rows(self, count: int, owners: Units | None) -> Rows:
        """Return all rows that were added."""
        codes, places, numbers = _joined(self.codes), _joined(self.places), _joined(self.numbers)
        keys = {name: (each.array(), known.array()) for name, (each, known) in self.keys.items()}
        return Rows(count, codes, places, numbers, owners, keys=keys, room=self.room)


def number_keys(values: npt.NDArray[Any], known: Flags) -> tuple[Counts, Flags]:
    """Return a number for every value of a key, and where there is one; all of shape (rows,).

    Equal values have equal numbers. Different texts have different ones but for one pair in 2^64,
    and keys are only ever compared within a unit. Whole doubles are numbered like integers.

    >>> number_keys(np.array([7.0, -0.0, np.nan]), np.array([True, True, True]))[0][:2].tolist()
    [7, 0]
    """
    if values.dtype == np.object_:
        import pandas as pd  # takes longer than a first answer about rows

        hashed = pd.util.hash_array(np.where(known, values, ""))
        return hashed.view(np.int64), known
    if values.dtype == np.float64:
        known = known & ~np.isnan(values)
        numbers = np.where(known, values, 0.0) + 0.0
        whole = (np.abs(numbers) < WHOLE) & (numbers == np.floor(numbers))
        return np.where(
            whole, np.where(whole, numbers, 0.0).astype(np.int64), numbers.view(np.int64)
        ), known
    return np.where(known, values, 0).astype(np.int64), known


def declared(table: Table) -> dict[str, Column]:
    """Return the columns whose values are asked for: those with a domain or with bounds."""
    return {key: each for key, each in table.columns.items() if each.domain or each.bounds}


def ask(column: Column, name: str, family: str) -> RequestedColumn:
    """Say in which form a declared column is asked for, by its declaration and what is stored."""
    if column.type == "text":
        if not isinstance(column.domain, Values):
            raise ValueError("a column of text has a list of values")
        if not isinstance(column.domain, Labels):
            return RequestedColumn(name, "place", tuple(map(str, column.domain.values)))
        if not column.domain.is_numeric:
            return RequestedColumn(name, "place", tuple(map(str, column.domain.codes)))
        return RequestedColumn(name, "whole" if family == "integer" else "number")
    if column.type == "date":
        return RequestedColumn(name, "day")
    if column.type == "time":
        return RequestedColumn(name, "time")
    if isinstance(column.domain, Spans):
        return RequestedColumn(name, "clock", zone=column.domain.zone)
    if column.type == "boolean" and family != "integer":
        return RequestedColumn(name, "boolean")
    is_exact = family == "integer" and column.bounds is None
    return RequestedColumn(
        name, "whole" if is_exact and not isinstance(column.domain, Bins) else "number"
    )


def load_rows(batches: Iterable[Batch], table: Table, room: SpillRoom | None = None) -> Rows:
    """Encode all rows of a table; ``batches`` have its declared columns, in order."""
    parts, count = EncodedRows(room), 0
    columns = declared(table)
    for key, column in columns.items():
        parts.add(key, column, _nothing())  # so that there is an array where there is no batch
    for name in map(str.casefold, table.keys):
        parts.keys[name] = parts.room.spill(), parts.room.spill()
        parts.add_key(name, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_))
    for batch in batches:
        check()
        for (key, column), values in zip(columns.items(), batch.columns, strict=True):
            parts.add(key, column, values)
        if batch.units is not None and batch.owned is not None:
            parts.units.add(batch.units, batch.owned)
        for name, (values_of, known) in zip(table.keys, batch.keys, strict=True):
            parts.add_key(name.casefold(), *number_keys(values_of, known))
        count += batch.rows
    owners = None if table.unit.column is None else parts.units.owners()
    return parts.rows(count, owners)


def _nothing() -> Values64:
    none = np.zeros(0, dtype=np.bool_)
    return Values64(np.zeros(0, dtype=np.int64), none, none)


def _joined(spills: dict[str, Spill]) -> dict[str, Any]:
    """Put the batches of every column together, and let go of them."""
    return {key: spills.pop(key).array() for key in list(spills)}


def line_up(rows: Rows, table: Table, digest: Digest) -> Queue | None:
    """Return the rows of units with more than they may have, in the order in which they stay.

    All that the view shows of a row decides, in declared order: codes, places, clipped values.
    """
    if rows.owners is None:
        return None

    def content(some: Counts) -> list[Codes | Counts]:
        whole = [each[some] for each in (*rows.codes.values(), *rows.places.values())]
        steps = [find_steps(v[some], table.columns[key]) for key, v in rows.numbers.items()]
        return [*whole, *steps]

    def ties(some: Counts) -> list[Floats]:
        return [each[some] for each in rows.numbers.values()]

    tops = [table.columns[key].size for key in rows.codes]
    tops += [PLACES] * (len(rows.places) + len(rows.numbers))
    return queue_up(digest, rows.owners, table.unit.max_rows, content, ties, rows.room, tops)


def fits_view(wanted: RowView, table: Table) -> bool:
    """Say whether a view is of cells that the columns of a table have: public facts only."""
    sizes = {key: each.size for key, each in table.columns.items()}
    cells = wanted.cells
    return wanted.names <= sizes.keys() and all(sizes[name] == size for name, size, _ in cells)


def view(rows: Rows, table: Table, wanted: RowView) -> Flags:
    """Say which rows are in a view, (rows,): those that it admits and that have an owner.

    Guarantee: every unit keeps at most ``max_rows`` of them, which follow from its rows alone.
    """
    inside = rows.room.flags(rows.count)
    masks = {name: np.append(mask, False) for name, mask in wanted.masks.items()}
    for some in strides(rows.count):
        if rows.owners is not None:
            inside[some] &= rows.owners.owned[some]
        for key, mask in masks.items():
            inside[some] &= mask[rows.codes[key][some]]
        for key in wanted.columns:
            if key in rows.codes and key not in masks:
                inside[some] &= rows.codes[key][some] != table.columns[key].size
            if key in rows.numbers:
                inside[some] &= rows.numbers[key][some] != OUTSIDE
    return inside if rows.queue is None else rows.queue.bound(inside)


def fits(resolutions: Sequence[AnyResolution], table: Table, units: bool) -> bool:
    """Say whether a table can be tallied in this way: public facts only."""
    if any(
        not isinstance(each, Cells | Unions) if units else isinstance(each, Unions)
        for each in resolutions
    ):
        return False
    of_table = all(_fits(each, table) for each in resolutions)
    return of_table and weights_of(resolutions).unit <= MOST_WEIGHT


def _fits(resolution: AnyResolution, table: Table) -> bool:
    if isinstance(resolution, Unions):
        members, cells = resolution.members, resolution.cells
        shape = len(members), cells.size
        return members.dtype == np.bool_ and members.shape == shape and _fits(cells, table)
    keys = [name.casefold() for name in resolution.columns]
    if not keys or not set(keys) <= table.columns.keys():
        return False
    columns = [table.columns[key] for key in keys]
    if isinstance(resolution, Nodes):
        return fits_nodes(resolution, columns[0])
    if isinstance(resolution, Steps):
        return fits_steps(resolution, columns[0])
    if [len(each) for each in resolution.classes] != [column.size for column in columns]:
        return False
    if resolution.labels is None:
        return len(columns) == 1 and columns[0].domain is not None
    needed = tuple(int(each.max(initial=-1)) + 1 for each in resolution.classes)
    return all(column.size for column in columns) and resolution.labels.shape == needed


def tally(
    rows: Rows,
    kept: Flags,
    table: Table,
    resolutions: Sequence[AnyResolution],
    units: bool,
    room: Room = None,
) -> Counts:
    """Add up what the rows that are kept add to every cell.

    ``kept`` has shape (rows,); counts have one axis for each of ``resolutions``. Where rows are
    counted, not units, they are in an array of the shape ``room``.
    See :class:`dpsql.privacy.vault.vault.Vault`.
    """
    shape = tuple(each.size for each in resolutions)
    axes = [_axis(rows, table, each) for each in resolutions]
    if units and rows.owners is not None:
        count = len(rows.owners.names)
        return tally_units(axes, shape, kept, rows.owners.units, count, rows.room)
    return tally_rows(axes, room or shape, kept, weights_of(resolutions))


def mark(rows: Rows, kept: Flags, table: Table, resolutions: Sequence[AnyResolution]) -> Counts:
    """Say of every cell or union whether a row that is kept is in it: 1 or 0.

    Args:
        rows: of the table.
        kept: (rows,), as of ``view``.
        table: whose declared columns these are.
        resolutions: per column its cells, or unions of them.
    """
    shape = tuple(each.size for each in resolutions)
    return mark_cells([_axis(rows, table, each) for each in resolutions], shape, kept)


def _axis(rows: Rows, table: Table, resolution: AnyResolution) -> Axis:
    keys = [name.casefold() for name in resolution.columns]
    if isinstance(resolution, Cells):
        return axis_of_cells([rows.codes[key] for key in keys], resolution)
    if isinstance(resolution, Unions):
        return axis_of_unions([rows.codes[key] for key in keys], resolution)
    (key,), column = keys, table.columns[keys[0]]
    if isinstance(resolution, Steps):
        return axis_of_steps(rows.numbers[key], resolution)
    if column.domain is None:
        return axis_of_measure(rows.numbers[key], resolution, column)
    if isinstance(column.domain, Bins):
        edges = tuple(map(float, column.domain.edges))
        return axis_of_bins(rows.codes[key], rows.places[key], resolution, edges)
    return axis_of_range(rows.codes[key], resolution, column.domain.size)
