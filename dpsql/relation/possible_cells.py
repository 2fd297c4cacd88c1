"""Live cells: those that the columns of a relation can have, given what filters and joins it.

A group that WHERE excludes does not appear. Where WHERE stands in a sub-query, or a join leaves
rows out, the relation of that sub-query remembers it: conditions narrow the cells of their columns,
and maps carry that from one column to another, both ways. So an INNER JOIN to public rows that is
a filter and a map leaves no NULL in the column that it makes.

Guarantee: all of it follows from the relation alone. A cell that some rows might have is never
taken for a dead one: what is not understood leaves all cells of a column alive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.catalog import Column, Table
from dpsql.records import dataclass, replace
from dpsql.relation.cell_maps import CELLS
from dpsql.relation.header import joined_column, partner_column, united_column
from dpsql.relation.lineage import named
from dpsql.relation.unit_local import (
    TAKEN,
    AllOf,
    Among,
    AnyOf,
    DerivedTable,
    DifferRows,
    FilterRows,
    FormulaRows,
    HasValue,
    InOrder,
    JoinRows,
    MapRows,
    MeetRows,
    PerUnit,
    PickColumns,
    Scan,
    Summary,
    Test,
    UnionRows,
    UnitLocal,
    WindowRows,
    columns_of_test,
)

Cells = NDArray[np.bool_]

MOST_TIED = 1 << 20
"""Combinations of cells of columns that follow from each other: a few milliseconds of numpy."""
_VALUED = ("least", "greatest", "first", "last")


@dataclass(frozen=True, slots=True, eq=False)
class _Tie:
    """A cell of the column ``to`` for every combination of cells of others, an axis for each.

    Without such a column ``cells`` says of each combination whether there can be rows with it. Axes
    are as long as ``_Lane.live``: undeclared values come last.
    """

    names: tuple[str, ...]
    cells: NDArray[Any]
    to: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names if self.to is None else (*self.names, self.to)

    def alive(self, live: Mapping[str, Cells]) -> Cells:
        """The combinations that there can be, where the columns have such cells."""
        found = self.cells if self.to is None else live[self.to][self.cells]
        for axis, name in enumerate(self.names):
            found = found & live[name].reshape([-1 if k == axis else 1 for k in range(found.ndim)])
        return found

    def held(self, live: Mapping[str, Cells]) -> dict[str, Cells]:
        """The cells of each column that are part of such a combination."""
        alive, found = self.alive(live), dict[str, Cells]()
        for axis, name in enumerate(self.names):
            rest = tuple(k for k in range(alive.ndim) if k != axis)
            found[name] = np.asarray(alive.any(axis=rest))
        if self.to is not None:
            found[self.to] = np.isin(np.arange(len(live[self.to])), self.cells[alive])
        return found

    def listed(self, live: Mapping[str, Cells]) -> _Tie | None:
        """The same, and what cells its columns have, as combinations of all of them."""
        alive = self.alive(live)
        if self.to is None:
            return replace(self, cells=alive)
        if alive.size * len(live[self.to]) > MOST_TIED:
            return None
        places = self.cells[..., np.newaxis] == np.arange(len(live[self.to]))
        return _Tie(self.columns, places & alive[..., np.newaxis])

    def renamed(self, names: Mapping[str, str]) -> _Tie:
        to = None if self.to is None else names[self.to]
        return _Tie(tuple(names[name] for name in self.names), self.cells, to)


@dataclass(frozen=True, slots=True, eq=False)
class _Lane:
    """A column with cells, and which of them rows can have: (cells + 1,), undeclared ones last."""

    column: Column
    live: Cells


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The columns with cells of a relation by case-folded name, and what ties them together."""

    lanes: Mapping[str, _Lane]
    ties: tuple[_Tie, ...] = ()

    def having(self, lanes: Iterable[_Lane], ties: Iterable[_Tie] = ()) -> _Known:
        """Return the rows with more columns; those without cells are left out."""
        more = {each.column.name.casefold(): each for each in lanes if each.column.domain}
        return _Known({**self.lanes, **more}, (*self.ties, *ties))

    def narrowed(self) -> _Known:
        """Return the rows where all that ties columns together is made use of."""
        live, again = {name: lane.live for name, lane in self.lanes.items()}, True
        while again:
            again = False
            for tie in self.ties:
                for name, held in tie.held(live).items():
                    again |= bool((live[name] & ~held).any())
                    live[name] = live[name] & held
        lanes = {name: replace(each, live=live[name]) for name, each in self.lanes.items()}
        return replace(self, lanes=lanes)

    def only(self, names: Mapping[str, Column]) -> _Known:
        """Return some columns, by their old names, as new ones: renamed, or with NULL now."""
        lanes = {
            old: _Lane(new, _fitted(self.lanes[old], new))
            for old, new in names.items()
            if old in self.lanes
        }
        told = {old: lane.column.name.casefold() for old, lane in lanes.items()}
        same = {old for old in told if len(self.lanes[old].live) == len(lanes[old].live)}
        ties = [tie.renamed(told) for tie in self.ties if same.issuperset(tie.columns)]
        return _Known({told[old]: lane for old, lane in lanes.items()}, tuple(ties))


def live_cells(table: Table, name: str, kept: Mapping[str, Cells]) -> Cells | None:
    """Return the cells of a column, case-folded, that rows of a table can have; None for all.

    The result has shape (cells,), without that of NULL.

    Args:
        table: only of a derived one anything is known.
        name: case-folded name of the column.
        kept: cells (cells,) that a condition leaves of some columns.
    """
    if not isinstance(table, DerivedTable):
        return None
    rows = _follow(table.relation, named(table.bases))
    lanes = dict(rows.lanes)
    for column in kept.keys() & lanes.keys():
        live = lanes[column].live & np.append(kept[column], False)
        lanes[column] = replace(lanes[column], live=live)
    lane = replace(rows, lanes=lanes).narrowed().lanes.get(name)
    return None if lane is None or lane.live[:-1].all() else lane.live[:-1]


def _follow(relation: UnitLocal, tables: Mapping[str, Table]) -> _Known:
    match relation:
        case Scan(table):
            return _Known({}).having(map(_whole, tables[table].columns.values()))
        case JoinRows(left, right):
            return _of_join(relation, _follow(left, tables), _follow(right, tables))
        case MeetRows(left):
            return _follow(left, tables).having([_whole(partner_column(relation))])
        case FilterRows(rows, where):
            return _filtered(_follow(rows, tables), where).narrowed()
        case PerUnit(rows):
            return _of_groups(relation, _follow(rows, tables))
        case WindowRows(rows, column, kind):
            found = _follow(rows, tables)
            taken = kind in TAKEN and relation.of
            made = _taken(column, found, taken) if taken else _whole(column)
            return found.having([made])
        case MapRows(rows):
            return _of_map(relation, _follow(rows, tables))
        case DifferRows(rows, column) | FormulaRows(rows, column):
            return _follow(rows, tables).having([_whole(column)])
        case UnionRows(parts):
            return _of_union([_follow(each, tables).narrowed() for each in parts])
        case PickColumns(rows, names):
            found, inner = _Known({}), _follow(rows, tables).narrowed()
            for new, old in names:  # one by one: a column may go by several names
                if old in inner.lanes:
                    lane = inner.lanes[old]
                    found = found.having([replace(lane, column=replace(lane.column, name=new))])
            firsts = {old: new.casefold() for new, old in reversed(names)}
            kept = [each for each in inner.ties if firsts.keys() >= set(each.columns)]
            return replace(found, ties=tuple(each.renamed(firsts) for each in kept))


def _whole(column: Column) -> _Lane:
    """Masks of all cells of a column."""
    return _Lane(column, np.ones(column.size + 1, np.bool_))


def _fitted(lane: _Lane, column: Column) -> Cells:
    """The live cells of a column that may take NULL now, which no row has yet."""
    missing = column.size + 1 - len(lane.live)
    return lane.live if not missing else np.insert(lane.live, -1, np.zeros(missing, np.bool_))


def _taken(column: Column, rows: _Known, of: str) -> _Lane:
    """A column with values of another, or NULL."""
    if of not in rows.lanes or column.domain is None:
        return _whole(column)
    live = _fitted(rows.lanes[of], column).copy()
    live[-2] = True
    return _Lane(column, live)


def _of_join(join: JoinRows, left: _Known, right: _Known) -> _Known:
    right = right.narrowed()
    beside = right.only({n: joined_column(join, each.column) for n, each in right.lanes.items()})
    if not join.outer:
        return _Known({**left.lanes, **beside.lanes}, (*left.ties, *beside.ties))
    lanes = [_taken(each.column, beside, name) for name, each in beside.lanes.items()]
    return left.having([*lanes, _whole(partner_column(join))])


def _filtered(rows: _Known, where: Test) -> _Known:
    """The rows for which a condition holds: none of them is undeclared in a column of it."""
    lanes = dict(rows.lanes)
    for name in columns_of_test(where):
        if name in lanes:
            live = lanes[name].live.copy()
            live[-1] = False
            lanes[name] = replace(lanes[name], live=live)
    for name, held in _held(where, lanes).items():
        lanes[name] = replace(lanes[name], live=lanes[name].live & held)
    return _Known(lanes, (*rows.ties, *_ties_of(where, lanes)))


def _ties_of(where: Test, lanes: Mapping[str, _Lane]) -> list[_Tie]:
    """Joint masks of several columns, by parts that all hold."""
    match where:
        case Among(names, cells) if len(names) > 1 and lanes.keys() >= set(names):
            there = np.frombuffer(cells, np.uint8).astype(np.bool_)
            sizes = [lanes[name].column.size for name in names]
            is_small = there.size <= MOST_TIED and len(set(names)) == len(names)
            return [_Tie(names, _padded(there, sizes, False))] if is_small else []
        case AllOf(parts):
            return [tie for part in parts for tie in _ties_of(part, lanes)]
        case _:
            return []


def _held(where: Test, lanes: Mapping[str, _Lane]) -> dict[str, Cells]:
    """The cells of each column, by name, that some row for which a condition holds can have."""
    match where:
        case Among((name,), cells) if name in lanes:
            return {name: np.append(np.frombuffer(cells, np.uint8).astype(np.bool_), False)}
        case HasValue(name):
            return _known(lanes, name)
        case InOrder(left, _, right):
            return {**_known(lanes, left), **_known(lanes, right)}
        case AllOf(parts):
            found: dict[str, Cells] = {}
            for part in parts:
                for name, held in _held(part, lanes).items():
                    found[name] = found[name] & held if name in found else held
            return found
        case AnyOf(parts):
            each = [_held(part, lanes) for part in parts]
            shared = set.intersection(*map(set, each)) if each else set()
            return {name: np.logical_or.reduce([held[name] for held in each]) for name in shared}
        case _:
            return {}


def _known(lanes: Mapping[str, _Lane], name: str) -> dict[str, Cells]:
    """The cells of a column, but for NULL and undeclared values."""
    if name not in lanes:
        return {}
    column, held = lanes[name].column, np.ones(len(lanes[name].live), np.bool_)
    held[column.size - column.null :] = False
    return {name: held}


def _of_groups(groups: PerUnit, inner: _Known) -> _Known:
    """The columns of groups, and those that sum them up; every group has some row."""
    inner = inner.narrowed()
    by = {n: replace(inner.lanes[n].column, bounds=None) for n in groups.by if n in inner.lanes}
    return inner.only(by).having(_of_summary(each, inner) for each in groups.columns)


def _of_summary(summary: Summary, inner: _Known) -> _Lane:
    """A column with values of some row; NULL where none of a group may be looked at."""
    source = inner.lanes.get(summary.of or "")
    if summary.kind not in _VALUED or source is None:
        return _whole(summary.column)
    lane = _taken(summary.column, inner, source.column.name.casefold())
    no_null = not source.column.null or not source.live[-2]
    if summary.where is None and no_null and not source.live[-1] and summary.kind in _VALUED[:2]:
        lane.live[-2] = False
    return lane


def _of_map(mapped: MapRows, inner: _Known) -> _Known:
    column, lanes = mapped.column, [inner.lanes[n] for n in mapped.of if n in inner.lanes]
    sizes = [lane.column.size for lane in lanes]
    is_known = len(set(mapped.of)) == len(lanes) and mapped.listed is None
    if column.domain is None or not is_known or math.prod(sizes) > MOST_TIED:
        return inner.having([_whole(column)])
    cells = _padded(np.frombuffer(mapped.cells, CELLS), sizes, column.size)
    return inner.having([_whole(column)], [_Tie(mapped.of, cells, column.name.casefold())])


def _padded(cells: NDArray[Any], sizes: Sequence[int], undeclared: int) -> NDArray[Any]:
    """Truth of combinations of declared cells, an axis for each column, and of the rest."""
    axes, ends = cells.reshape(sizes), [(0, 1)] * len(sizes)
    return np.pad(axes, ends, constant_values=undeclared) if sizes else axes


def _of_union(parts: Sequence[_Known]) -> _Known:
    """The rows of all parts, and what ties the same columns together in each of them."""
    lanes = []
    for name in parts[0].lanes:
        others = [part.lanes[name] for part in parts]
        column = reduce(united_column, [each.column for each in others])
        fitted = [_fitted(each, column) for each in others]
        lanes.append(_Lane(column, np.logical_or.reduce(fitted)))
    found = [_listed_ties(part) for part in parts]
    shared = set.intersection(*map(set, found))
    ties = [
        _Tie(columns, np.logical_or.reduce([each[columns] for each in found]))
        for columns in sorted(shared)
        if len({each[columns].shape for each in found}) == 1
    ]
    return _Known({}).having(lanes, ties)


def _listed_ties(rows: _Known) -> dict[tuple[str, ...], Cells]:
    """The combinations of cells of columns that are tied together, by these columns."""
    live = {name: lane.live for name, lane in rows.lanes.items()}
    found: dict[tuple[str, ...], Cells] = {}
    for tie in rows.ties:
        listed = tie.listed(live)
        if listed is not None:
            known = found.get(listed.names)
            found[listed.names] = listed.cells if known is None else known & listed.cells
    return found
