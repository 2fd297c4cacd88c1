"""One covering set as SQL: one grouped aggregate of integers, and how its rows become a vector.

A row falls on a key of every axis, or on none of one, and is left out. The server splits the weight
of a row between nodes, and adds up whole numbers for every key and combination of nodes, of which
:func:`fold` makes the vector. Distinct privacy units are no sums, so that every cell of theirs is
named in the SQL.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins
from dpsql.privacy.vault.codes.node_weights import split_sql
from dpsql.privacy.vault.codes.tally import PLACES, clip_bounds
from dpsql.privacy.vault.data_engine import Classes, Counts, Flags
from dpsql.privacy.vault.dialect import Dialect
from dpsql.privacy.vault.servers.code_sql import TINY, to_grid
from dpsql.records import dataclass
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import AnyResolution, Cells, Nodes, Steps, Unions
from dpsql.workload.weights import Weights, weights_of

Columns = Mapping[str, tuple[int, Column]]
"""The number of every declared column, and the column, by case-folded name."""
NOTHING = "CAST(NULL AS bigint)"
FEW_RUNS = 16
"""Runs of cells that are compared one by one."""


@dataclass(frozen=True, slots=True)
class AxisSql:
    """One axis: the key of a row, NULL for none, in 0..keys-1, and what keys stand for.

    ``places`` has the place of every key, or -1, once for each node; ``part`` is where a row lies
    between its nodes, 0 to 1. ``joined`` are pairs of a key and a cell that shares it, where a key
    has several.
    """

    key: str
    keys: int
    size: int
    places: Sequence[Counts]
    part: str | None = None
    joined: Sequence[tuple[int, int]] = ()

    @property
    def degree(self) -> int:
        """The degree of the nodes, 0 where there are none."""
        return len(self.places) - 1


def axis_sql(d: Dialect, resolution: AnyResolution, columns: Columns, units: bool) -> AxisSql:
    """Write one axis of a covering set; ``units`` says that privacy units are counted."""
    named = [columns[name.casefold()] for name in resolution.columns]
    if isinstance(resolution, Unions):
        return _axis_of_unions(d, resolution, named)
    if isinstance(resolution, Cells):
        return _axis_of_cells(d, resolution, named, units)
    ((i, column),) = named
    if isinstance(resolution, Steps):
        return _axis_of_steps(d, i, resolution)
    return _axis_of_nodes(d, i, column, resolution)


def _axis_of_cells(
    d: Dialect, cells: Cells, named: Sequence[tuple[int, Column]], units: bool
) -> AxisSql:
    keys = [_class(d, f"c{i}", each) for (i, _), each in zip(named, cells.classes, strict=True)]
    if cells.labels is None:
        return AxisSql(keys[0], cells.size, cells.size, _plain(cells.size))
    flat, labels = _mixed(d, keys, cells.labels.shape), cells.labels.ravel()
    if units:
        key = _listed(d, flat, [int(each) for each in labels])
        return AxisSql(key, cells.size, cells.size, _plain(cells.size))
    return AxisSql(flat, labels.size, cells.size, [labels.astype(np.int64)])


def _plain(size: int) -> list[Counts]:
    return [np.arange(size)]


def _axis_of_unions(d: Dialect, unions: Unions, named: Sequence[tuple[int, Column]]) -> AxisSql:
    cells = _axis_of_cells(d, unions.cells, named, True)
    pairs = [(int(k), int(j)) for j, k in zip(*np.nonzero(unions.members), strict=True)]
    key = cells.key if pairs else NOTHING
    return AxisSql(key, unions.size, unions.size, _plain(unions.size), joined=sorted(pairs))


def _class(d: Dialect, code: str, classes: Classes) -> str:
    """Write the class of a code, NULL for -1 and for the code beyond all."""
    found = [int(each) for each in classes]
    if found == list(range(len(found))):
        return f"CASE WHEN {code} < {d.whole(len(found))} THEN {code} END"
    return _listed(d, code, [*found, -1])


def _listed(d: Dialect, place: str, listed: Sequence[int]) -> str:
    """Write what is at a place of a list, NULL for -1; no place, no search: a tree has no NULL."""
    if not listed:
        return NOTHING
    found = f"CASE WHEN {place} IS NOT NULL THEN {d.look_up(place, listed)} END"
    return f"NULLIF({found}, {d.whole(-1)})" if -1 in listed else found


def _mixed(d: Dialect, keys: Sequence[str], shape: Sequence[int]) -> str:
    """Write the place of keys in an array of a shape, NULL where one of them is."""
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    parts = (f"({key}) * {d.whole(step)}" for key, step in zip(keys, steps, strict=True))
    return f"({' + '.join(parts)})"


def _axis_of_steps(d: Dialect, i: int, steps: Steps) -> AxisSql:
    levels = [-float(level) for level in reversed(steps.levels[:-1])]
    above = d.bucket(f"(-q{i})", levels) if levels else d.whole(0)
    key = f"CASE WHEN q{i} IS NOT NULL THEN {d.whole(len(levels))} - {above} END"
    return AxisSql(key, steps.size, steps.size, _plain(steps.size))


def _axis_of_nodes(d: Dialect, i: int, column: Column, nodes: Nodes) -> AxisSql:
    keys = nodes.intervals + len(nodes.others)
    if column.domain is None:
        low, high = clip_bounds(nodes, column)
        clipped = f"LEAST(GREATEST(q{i}, {d.double(low)}), {d.double(high)})"
        part = _between(d, f"({clipped} - {d.double(low)})", d.double(high - low), nodes.steps)
        missing = d.whole(1) if column.null else "NULL"
        key = f"CASE WHEN q{i} IS NULL THEN {missing} ELSE {d.whole(0)} END"
        return _with_nodes(d, nodes, keys, key, f"q{i} IS NOT NULL", part)
    size = column.domain.size
    inside = f"c{i} < {d.whole(size)}"
    if isinstance(column.domain, Bins):
        kinds, part = _part_of_bins(d, i, column.domain, nodes)
    else:
        last = max(1, size - 1)
        kinds, part = [0] * size, f"{d.to_double(f'c{i}')} / {d.double(float(last))}"
        if nodes.steps:
            twice = f"(c{i} * {d.whole(2 * nodes.steps)} + {d.whole(last)})"
            part = _share(d, d.divided(twice, 2 * last), nodes.steps)
    others = [nodes.intervals + j for j in range(len(nodes.others))]
    key = _class(d, f"c{i}", np.array([*kinds, *others]))
    return _with_nodes(d, nodes, keys, key, inside, part)


def _between(d: Dialect, part: str, width: str, steps: int) -> str:
    """Write part/width, 0 to 1, in whole steps, or as it is; both are finite doubles.

    What is too small to weigh anything is zero: servers raise where a quotient has no double.
    """
    if steps:
        return _share(d, to_grid(d, part, width, steps), steps)
    kept = f"LEAST(GREATEST({part} / {width}, {d.double(0.0)}), {d.double(1.0)})"
    tiny = f"{part} < {width} / {d.double(TINY)}"
    return f"CASE WHEN {tiny} THEN {d.double(0.0)} ELSE {kept} END"


def _share(d: Dialect, step: str, steps: int) -> str:
    return f"{d.to_double(step)} / {d.double(float(steps))}"


def _part_of_bins(d: Dialect, i: int, bins: Bins, nodes: Nodes) -> tuple[list[int], str]:
    """The interval of every bin, and the place in it as SQL."""
    if not nodes.starts:
        part = f"{d.to_double(f'p{i}')} / {d.double(float(PLACES))}"
        if nodes.steps:
            twice = f"(p{i} * {d.whole(2 * nodes.steps)} + {d.whole(PLACES)})"
            part = _share(d, d.divided(twice, 2 * PLACES), nodes.steps)
        return list(range(bins.size)), part
    ends = np.array([float(edge) for edge in bins.edges])
    starts = np.array([*nodes.starts, bins.size])
    run = np.searchsorted(starts, np.arange(bins.size), side="right") - 1
    lower, widths = ends[starts[:-1]], np.diff(ends[starts])

    def at(values: Iterable[float]) -> str:
        return d.look_up(f"c{i}", [float(each) for each in values])

    value = f"({at(ends[:-1])} + {d.to_double(f'p{i}')} * {at(np.diff(ends) / PLACES)})"
    part = _between(d, f"({value} - {at(lower[run])})", at(widths[run]), nodes.steps)
    return [int(each) for each in run], part


def _with_nodes(d: Dialect, nodes: Nodes, keys: int, key: str, inside: str, part: str) -> AxisSql:
    """The axis of nodes; keys beyond the intervals have all their weight in one cell."""
    first = nodes.intervals * (nodes.degree + 1)
    others = [first + other if other >= 0 else -1 for other in nodes.others]
    starts = np.arange(nodes.intervals) * (nodes.degree + 1)
    places = [np.array([*(starts + t), *others]) for t in range(nodes.degree + 1)]
    part = f"CASE WHEN {inside} THEN {part} ELSE {d.double(0.0)} END"
    return AxisSql(key, keys, nodes.size, places, part)


@dataclass(frozen=True, slots=True)
class GroupSql:
    """One covering set: what is sent, and what is made of the rows that come back.

    ``weights`` say how what a row adds is split between nodes.
    """

    axes: Sequence[AxisSql]
    units: bool
    weights: Weights

    @property
    def leaves(self) -> list[tuple[int, ...]]:
        """The nodes that are added up for a key, one of every axis that has some, as split."""
        degrees = (self.axes[a].degree for a in self.weights.order)
        return list(itertools.product(*(range(degree + 1) for degree in degrees)))

    def select(self, d: Dialect, relation: str) -> str:
        """Write the statement over the codes of rows that count."""
        keys = [f"k{a}" for a in range(len(self.axes))]
        listed = [f"{each.key} AS k{a}" for a, each in enumerate(self.axes)]
        listed += [f"{each.part} AS s{a}" for a, each in enumerate(self.axes) if each.part]
        listed += ["u"] if self.units else []
        rows = f"SELECT {', '.join(listed) or '0 AS n'} FROM {relation} AS t{d.fence}"
        sums = ["COUNT(*)"]
        if self.weights.order:
            parts = [(f"s{a}", self.axes[a].degree) for a in self.weights.order]
            split = split_sql(d, rows, self.weights.unit, parts, d.fence)
            sums = [f"SUM(CAST({weight} AS int))" for _, weight in split.leaves]
            rows = split.rows
        joins = ""
        for a, each in enumerate(self.axes):
            if each.joined:
                pairs = ", ".join(f"({d.whole(k)}, {d.whole(j)})" for k, j in each.joined)
                keys[a] = f"j{a}.j"
                joins += f" JOIN (VALUES {pairs}) AS j{a}(k, j) ON j{a}.k = t.k{a}"
        shape = [each.keys for each in self.axes]
        place = _mixed(d, keys, shape) if keys else d.whole(0)
        names = ", ".join(f"{each} AS n{n}" for n, each in enumerate(sums))
        known = f"SELECT {place} AS id, t.* FROM ({rows}) AS t{joins}{d.fence}"
        if self.units:
            known = self._each_once(known)
        return f"SELECT id, {names} FROM ({known}) AS t WHERE id IS NOT NULL GROUP BY id"

    def _each_once(self, known: str) -> str:
        """Write every unit of a cell once: grouping is faster than counting what is different."""
        return f"SELECT id, u FROM ({known}) AS t WHERE id IS NOT NULL GROUP BY id, u"

    def fold(self, rows: Iterable[tuple[int, ...]]) -> Counts:
        """Return the vector of a covering set from the groups of it, in Python integers.

        A row is a key and then numbers: that of units, or one for each combination of nodes. The
        vector has the size of each axis as its shape. Raises: ValueError for anything else.
        """
        shape = tuple(each.size for each in self.axes)
        found = np.zeros(math.prod(shape), dtype=object)
        groups = list(rows)
        width = 1 + len(self.leaves)
        if any(len(row) != width or type(each) is not int for row in groups for each in row):
            raise ValueError("a server answers with something else than whole numbers")
        table = np.array(groups, dtype=object).reshape(len(groups), width)
        keys = self._keys(table[:, 0].astype(np.int64))
        for n, leaf in enumerate(self.leaves):
            places = np.zeros(len(groups), dtype=np.int64)
            inside = np.ones(len(groups), dtype=np.bool_)
            nodes = dict(zip(self.weights.order, leaf, strict=True))
            for a, (axis, key) in enumerate(zip(self.axes, keys, strict=True)):
                where = axis.places[nodes.get(a, 0)][key]
                inside &= where >= 0
                places = places * axis.size + where
            np.add.at(found, places[inside], table[inside, 1 + n])
        return found.astype(np.int64).reshape(shape)

    def _keys(self, ids: Counts) -> list[Counts]:
        """The key on every axis of groups by their number."""
        keys: list[Counts] = []
        for axis in reversed(self.axes):
            ids, key = np.divmod(ids, axis.keys)
            keys.insert(0, key)
        if (ids != 0).any():
            raise ValueError("a server answers with a group that was not asked for")
        return keys


def group_sql(
    d: Dialect, resolutions: Sequence[AnyResolution], columns: Columns, units: bool
) -> GroupSql:
    """Write one covering set; see :class:`dpsql.privacy.vault.vault.Vault`."""
    axes = [axis_sql(d, each, columns, units) for each in resolutions]
    return GroupSql(axes, units, weights_of(resolutions))


def view_sql(
    d: Dialect, relation: str, columns: Columns, view: RowView, by_unit: bool, most: int
) -> str:
    """Write the rows of a view: at most so many of each unit."""
    tests = list(_inside(d, columns, view))
    if not by_unit:
        return f"SELECT * FROM {relation} AS t{_where(tests)}"
    ties = [f"q{i} NULLS LAST" for i, each in columns.values() if each.bounds is not None]
    order = ", ".join(["h", *ties])
    ranked = f"row_number() OVER (PARTITION BY u ORDER BY {order}) AS r"
    rows = f"SELECT t.*, {ranked} FROM {relation} AS t{_where(['u IS NOT NULL', *tests])}"
    return f"SELECT * FROM ({rows}) AS t WHERE r <= {d.whole(most)}"


def _among(d: Dialect, code: str, mask: Flags) -> str:
    """Write that a code is that of a marked cell; a mask has shape (cells,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    runs = [(int(first), int(stop) - 1) for first, stop in edges.reshape(-1, 2)]
    if 0 < len(runs) <= FEW_RUNS:
        tests = (f"{code} BETWEEN {d.whole(first)} AND {d.whole(last)}" for first, last in runs)
        return f"({' OR '.join(tests)})"
    cells = ", ".join(d.whole(cell) for cell in np.flatnonzero(mask).tolist())
    return f"{code} IN ({cells})" if runs else "FALSE"


def _where(tests: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(tests)}" if tests else ""


def _inside(d: Dialect, columns: Columns, view: RowView) -> Iterator[str]:
    for key, mask in view.masks.items():
        yield _among(d, f"c{columns[key][0]}", mask)
    for key in view.columns:
        if key not in columns:
            continue
        i, column = columns[key]
        if column.domain is not None:
            yield f"c{i} <> {d.whole(column.size)}"
        if column.bounds is not None and not column.null:
            yield f"q{i} IS NOT NULL"
