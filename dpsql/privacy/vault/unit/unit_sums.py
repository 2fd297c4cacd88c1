"""Rows of one unit summed up, and columns worked out in an order of its rows.

Guarantee: what is worked out for a row depends on rows of its own unit alone. Numbers are added up
as integers, so that neither the order of rows nor other units' values decide how a sum is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.catalog.catalog import Column
from dpsql.privacy.vault.codes.distinct_integers import find_distinct
from dpsql.privacy.vault.data_engine import Counts, Flags, Floats
from dpsql.privacy.vault.unit.relation_frame import EncodedColumn, Frame, holds, lane_of
from dpsql.privacy.vault.unit.shared_units import SharedUnits
from dpsql.records import dataclass
from dpsql.relation.header import taken_from
from dpsql.relation.unit_local import TAKEN, FramedRows, PerKey, PerUnit, Summary, WindowRows

BITS = 40
"""Numbers are added up in steps of 2^-40 of a power of two above their bounds: a unit's 2^22 rows
fit into 63 bits, and what is lost is below what bins and bounds show."""


def sum_up(groups: PerUnit, rows: Frame) -> Frame:
    """Return one row for every unit, or for every unit and combination of cells."""
    keys = groups.keys if isinstance(groups, PerKey) else ()
    one, ids = _parts(rows, groups.by, keys)
    lanes = {name: rows.lanes[name].take(one).cells() for name in groups.by}
    for each in groups.columns:
        lanes[each.column.name.casefold()] = _summary(each, rows, ids, len(one))
    found = {name: (rows.keys[name][0][one], rows.keys[name][1][one]) for name in keys}
    return Frame(rows.units[one], lanes, found)


def _parts(rows: Frame, by: Sequence[str], keys: Sequence[str] = ()) -> tuple[Counts, Counts]:
    """Number rows by unit, by their cells of some columns, and by keys, of which NULL is one.

    Also returns a row of every number, before these.
    """
    codes = [rows.lanes[name].codes for name in by]
    columns = [rows.units, *(each.astype(np.int64) for each in codes if each is not None)]
    for numbers, known in (rows.keys[name] for name in keys):
        columns += [np.where(known, numbers, 0), known.astype(np.int64)]
    return find_distinct(*columns)


def _summary(summary: Summary, rows: Frame, ids: Counts, count: int) -> EncodedColumn:
    chosen = np.ones(rows.count, dtype=np.bool_)
    if summary.where is not None:
        chosen &= holds(summary.where, rows)
    if summary.of is not None:
        chosen &= rows.lanes[summary.of].has_value()
    column, everyone = summary.column, np.ones(count, dtype=np.bool_)
    match summary.kind:
        case "count":
            return lane_of(column, _times(ids[chosen], count), everyone)
        case "distinct":
            return lane_of(
                column, _different(rows.lanes[summary.of or ""], chosen, ids, count), everyone
            )
        case "sum" | "mean":
            total, times = _total(rows.lanes[summary.of or ""], chosen, ids, count)
            found = total / np.maximum(times, 1) if summary.kind == "mean" else total
            return lane_of(column, found, times > 0)
        case "distinct_sum" | "distinct_mean":
            lane = rows.lanes[summary.of or ""]
            total, times = _total(lane, _once(lane, chosen, ids), ids, count)
            found = total / np.maximum(times, 1) if summary.kind == "distinct_mean" else total
            return lane_of(column, found, times > 0)
        case kind:
            order = summary.of if kind in ("least", "greatest") else summary.order
            descends = kind in ("greatest", "last")
            return _one_of(rows, summary, order or "", descends, chosen, ids, count)


def _times(ids: Counts, count: int) -> Floats:
    return np.bincount(ids, minlength=count).astype(np.float64)


def _different(lane: EncodedColumn, chosen: Flags, ids: Counts, count: int) -> Floats:
    """Count the different cells of every group."""
    assert lane.codes is not None
    ids = ids[chosen]
    return _times(ids[find_distinct(ids, lane.codes[chosen].astype(np.int64))[0]], count)


def _once(lane: EncodedColumn, chosen: Flags, ids: Counts) -> Flags:
    """Choose one row of every group for each cell."""
    assert lane.codes is not None
    places = np.flatnonzero(chosen)
    pairs = ids[places] * (lane.column.size + 1) + lane.codes[places]
    _, first = np.unique(pairs, return_index=True)
    found = np.zeros(len(chosen), dtype=np.bool_)
    found[places[first]] = True
    return found


def _total(lane: EncodedColumn, chosen: Flags, ids: Counts, count: int) -> tuple[Floats, Counts]:
    """Add up the known values of every group; also how many there are."""
    values, known = lane.values()
    chosen = chosen & known
    grid = Grain.of(lane.column)
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, ids[chosen], grid.steps(values[chosen]))
    return grid.numbers(total), np.bincount(ids[chosen], minlength=count)


@dataclass(frozen=True, slots=True)
class Grain:
    """Whole steps of a power of two in which the numbers of a column are added up."""

    bits: int

    @classmethod
    def of(cls, column: Column) -> Grain:
        """The steps of a column, from its declaration."""
        low, high = column.number_bounds or (0.0, 1.0)
        most = max(abs(low), abs(high), 1.0)
        whole = column.type == "integer"
        return cls(0 if whole else max(0, BITS - math.ceil(math.log2(most))))

    def steps(self, values: Floats) -> Counts:
        """Numbers of any shape in whole steps of 2 ** -bits."""
        return np.rint(values * 2.0**self.bits).astype(np.int64)

    def numbers(self, steps: Counts) -> Floats:
        """Whole steps of any shape as numbers, rounded to the decimal places that they hold."""
        return np.round(
            steps / 2.0**self.bits, int(self.bits * math.log10(2)) - 2 * (self.bits > 0)
        )


def _one_of(
    rows: Frame,
    summary: Summary,
    order: str,
    descends: bool,
    chosen: Flags,
    ids: Counts,
    count: int,
) -> EncodedColumn:
    """Return the value of the first row of every group, in an order; NULL where there is none."""
    lane, (values, known) = rows.lanes[summary.of or ""], rows.lanes[order].values()
    places = np.flatnonzero(chosen & known)
    ranks = -values[places] if descends else values[places]
    ties = lane.take(places).content()
    places = places[np.lexsort((*ties, ranks, ids[places]))]
    first = places[np.diff(ids[places], prepend=-1) != 0]
    found = np.full(count, -1)
    found[ids[first]] = first
    return _at(lane, found, summary.column.name)


def _at(lane: EncodedColumn, found: Counts, name: str) -> EncodedColumn:
    """Return the lane of some rows, NULL where there is none."""
    missing, column = found < 0, taken_from(lane.column, name)
    return lane.take_any(found).nullable(column, missing)


def add_window(window: WindowRows, rows: Frame, people: SharedUnits) -> Frame:
    """Return all rows with a column more."""
    if window.kind == "part_number":
        lanes = {**rows.lanes, window.column.name.casefold(): _number_parts(window, rows, people)}
        return Frame(rows.units, lanes, rows.keys)
    _, ids = _parts(rows, window.by)
    order, ties = _in_order(window, rows, ids, people)
    places = Places.of(ids[order], ties)
    lane = (
        _taken(window, rows, order, places)
        if window.kind in TAKEN
        else _numbered(window, rows, order, places)
    )
    lanes = {**rows.lanes, window.column.name.casefold(): lane}
    return Frame(rows.units, lanes, rows.keys)


def _number_parts(window: WindowRows, rows: Frame, people: SharedUnits) -> EncodedColumn:
    """Number the parts of every unit's rows, by lot.

    Guarantee: the lots depend on the salt and on the cells that the unit's own parts have.
    """
    cells = {name: rows.lanes[name].cells() for name in window.by}
    known = np.ones(rows.count, dtype=np.bool_)
    for lane in cells.values():
        known &= lane.is_declared()
    inside = Frame(rows.units, cells, {}).take(np.flatnonzero(known))
    one, ids = _parts(inside, window.by)
    order = people.line_up(inside, one, inside.units[one])
    start, _ = _ends(np.diff(inside.units[order], prepend=-1) != 0)
    number = np.zeros(len(one))
    number[ids[order]] = np.arange(len(one)) - start + 1
    found = np.zeros(rows.count)
    found[known] = number[ids]
    return lane_of(window.column, found, known)


@dataclass(frozen=True, slots=True)
class Places:
    """Places of rows that are lined up group by group: arrays of places, (rows,) each.

    ``start`` and ``stop`` are the first and last row of a row's group, ``first`` and ``last`` those
    of the rows that the order does not tell from it, ``ties`` what these share.
    """

    place: Counts
    start: Counts
    stop: Counts
    first: Counts
    last: Counts
    ties: Counts

    @classmethod
    def of(cls, groups: Counts, ties: Counts) -> Places:
        """The places of rows, given their groups and what peers share."""
        start, stop = _ends(np.diff(groups, prepend=-1) != 0)
        return cls(
            np.arange(len(groups)), start, stop, *_ends(np.diff(ties, prepend=-1) != 0), ties
        )

    def around(self, window: WindowRows, rows: Frame, order: Counts) -> tuple[Counts, Counts]:
        """The first and the last row that a window sees from each, in this order unless none."""
        if not isinstance(window, FramedRows):
            return self.start, self.place if window.row_by_row else self.last
        if window.by_value:
            low, high = self.by_value(window, rows, order)
        else:
            low = self.start if window.first is None else self.place + window.first
            high = self.stop if window.last is None else self.place + window.last
        low = np.minimum(np.maximum(low, self.start), self.stop + 1)
        return low, np.maximum(np.minimum(high, self.stop), low - 1)

    def by_value(self, window: FramedRows, rows: Frame, order: Counts) -> tuple[Counts, Counts]:
        """The rows of a group whose value is not too far from each one's."""
        (by,) = window.order
        lane = rows.lanes[by.column]
        found, is_known = lane.values()
        known, values = is_known[order], np.where(is_known, found, 0)[order].astype(np.int64)
        values = -values if by.descends else values
        reach = max(abs(window.first or 0), abs(window.last or 0))
        span = 2 * (int(np.abs(values).max(initial=0)) + reach) + 2
        there = np.flatnonzero(known)
        keys = self.start[there] * span + values[there]
        low, high = self.first.copy(), self.last.copy()
        if window.first is None:
            low = self.start
        else:
            low[there] = np.append(there, len(order))[np.searchsorted(keys, keys + window.first)]
        if window.last is None:
            high = self.stop
        else:
            up_to = np.searchsorted(keys, keys + window.last, side="right") - 1
            high[there] = np.append(there, -1)[up_to]
        return low, high


def _ends(changes: Flags) -> tuple[Counts, Counts]:
    """The first and the last row of every run of rows, given where runs begin."""
    first = np.flatnonzero(changes)
    last = np.append(first[1:], len(changes)) - 1
    run = np.cumsum(changes) - 1
    return first[run], last[run]


def _taken(window: WindowRows, rows: Frame, order: Counts, places: Places) -> EncodedColumn:
    """Return the value of another row of the group, NULL where there is none."""
    found, lane = np.full(rows.count, -1), rows.lanes[window.of or ""]
    low, high = places.around(window, rows, order)
    match window.kind:
        case "previous":
            is_first = places.place == places.start
            found[order[1:]] = np.where(is_first[1:], -1, order[:-1])
        case "first_value" | "last_value":
            chosen = low if window.kind == "first_value" else high
            seen = np.append(order, -1)
            found[order] = np.where(low <= high, seen[chosen], -1)
        case _:
            found[order] = _least(lane, window.kind == "running_greatest", order, low, high)
    return _at(lane, found, window.column.name)


def _least(
    lane: EncodedColumn, is_greatest: bool, order: Counts, low: Counts, high: Counts
) -> Counts:
    """Return the row with the least, or greatest, value between two places; -1 without any."""
    values, known = lane.values()
    ranked = np.lexsort((*lane.content(), -values if is_greatest else values))
    level = np.where(known, _inverse(ranked), len(order))[order]
    found, width = np.full(len(order), len(order)), high - low + 1
    for i in range(max(1, len(order).bit_length())):  # however wide they are
        size = 1 << i
        fits = (width >= size) & (width < 2 * size)
        found[fits] = np.minimum(level[low[fits]], level[high[fits] - size + 1])
        level = np.minimum(level[:-size], level[size:])
    return np.asarray(np.append(ranked, -1)[found])


def _numbered(window: WindowRows, rows: Frame, order: Counts, places: Places) -> EncodedColumn:
    """Return a number that is worked out from rows of a group around each row."""
    place, known = places.place, np.ones(rows.count, dtype=np.bool_)
    match window.kind:
        case "row_number":
            numbers = (place - places.start + 1).astype(np.float64)
        case "rank":
            numbers = (places.first - places.start + 1).astype(np.float64)
        case "dense_rank":
            numbers = (places.ties - places.ties[places.start] + 1).astype(np.float64)
        case "running_count":
            numbers = _counted(window.of, rows, order, *places.around(window, rows, order))
        case "running_sum" | "running_mean":
            lane, around = rows.lanes[window.of or ""], places.around(window, rows, order)
            numbers, times = _running(lane, order, *around)
            known = times > 0
            if window.kind == "running_mean":
                numbers = numbers / np.maximum(times, 1)
        case _:
            numbers, known = _since(rows.lanes[window.of or ""], order, place == places.start)
    back = _inverse(order)
    return lane_of(window.column, numbers[back], known[back])


def _counted(of: str | None, rows: Frame, order: Counts, low: Counts, high: Counts) -> Floats:
    """Count rows, or known values, between two places."""
    known = np.ones(rows.count, dtype=np.bool_) if of is None else rows.lanes[of].has_value()
    times = np.append(0, np.cumsum(known[order]))
    return np.asarray(times[high + 1] - times[low], dtype=np.float64)


def _inverse(order: Counts) -> Counts:
    """Return where every row is in an order."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def _in_order(
    window: WindowRows, rows: Frame, ids: Counts, people: SharedUnits
) -> tuple[Counts, Counts]:
    """Return the rows, group by group in order, and a number that rows in a tie share.

    Ties are drawn by lot.
    """
    ranks: list[Floats] = []
    for each in window.order:
        values, known = rows.lanes[each.column].values()
        missing = known if each.missing_first else ~known
        ranked = np.where(known, -values if each.descends else values, 0)
        ranks += [missing.astype(np.float64), ranked]
    order = np.lexsort((*reversed(ranks), ids))
    changes = np.diff(ids[order], prepend=-1) != 0
    for rank in ranks:
        changes |= np.diff(rank[order], prepend=np.nan) != 0
    ties = np.cumsum(changes) - 1
    tied = np.bincount(ties, minlength=1)[ties] > 1
    order[tied] = people.line_up(rows, order[tied], ties[tied])
    return order, ties


def _running(
    lane: EncodedColumn, order: Counts, low: Counts, high: Counts
) -> tuple[Floats, Counts]:
    """Add up known values between two places; also how many there are."""
    values, known = lane.values()
    grid = Grain.of(lane.column)
    with np.errstate(over="ignore"):  # differences are right however often the total wraps round
        steps = np.append(0, np.cumsum(np.where(known, grid.steps(values), 0)[order]))
        total = steps[high + 1] - steps[low]
    times = np.append(0, np.cumsum(known[order]))
    return grid.numbers(total), times[high + 1] - times[low]


def _since(lane: EncodedColumn, order: Counts, is_first: Flags) -> tuple[Floats, Flags]:
    """Return by how much a value exceeds that of the row before."""
    found, is_known = lane.values()
    values, known = found[order], is_known[order]
    return values - np.roll(values, 1), known & np.roll(known, 1) & ~is_first
