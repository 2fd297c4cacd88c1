"""One covering set as SQL: one grouped aggregate of integers, and how its rows become a vector.

A row falls on a key of every axis, or on none of one, and is left out. Sums of nodes are not sent:
the server adds up powers of the steps of values, whole numbers, and :func:`fold` makes the weights
of nodes of them, in Python integers. Distinct privacy units are no sums, so that every cell of
theirs is named in the SQL.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins
from dpsql.privacy.vault.code_sql import to_grid
from dpsql.privacy.vault.data_engine import Classes, Counts
from dpsql.privacy.vault.dialect import Dialect
from dpsql.privacy.vault.tally import PLACES, clip_bounds
from dpsql.records import dataclass
from dpsql.workload.cells import AnyResolution, Cells, Nodes, Steps, Unions

Columns = Mapping[str, tuple[int, Column]]
"""The number of every declared column, and the column, by case-folded name."""
Term = tuple[Counts, tuple[int, ...]]
"""The place of every key, or -1, and what the powers of a step are multiplied by for it."""

NOTHING = "CAST(NULL AS bigint)"


@dataclass(frozen=True, slots=True)
class AxisSql:
    """One axis: the key of a row, NULL for none, in 0..keys-1; its step; what keys stand for.

    ``joined`` are pairs of a key and a cell that shares it, where a key has several.
    """

    key: str
    keys: int
    size: int
    terms: Sequence[Term]
    step: str | None = None
    joined: Sequence[tuple[int, int]] = ()

    @property
    def degree(self) -> int:
        """The highest power of a step."""
        return len(self.terms[0][1]) - 1


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
        return AxisSql(keys[0], cells.size, cells.size, [(np.arange(cells.size), (1,))])
    flat, labels = _mixed(d, keys, cells.labels.shape), cells.labels.ravel()
    if units:
        key = _listed(d, flat, [int(each) for each in labels])
        return AxisSql(key, cells.size, cells.size, _plain(cells.size))
    return AxisSql(flat, labels.size, cells.size, [(labels.astype(np.int64), (1,))])


def _plain(size: int) -> list[Term]:
    return [(np.arange(size), (1,))]


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
        step = to_grid(d, f"({clipped} - {d.double(low)})", d.double(high - low), nodes.grid)
        missing = d.whole(1) if column.null else "NULL"
        key = f"CASE WHEN q{i} IS NULL THEN {missing} ELSE {d.whole(0)} END"
        return _with_nodes(d, nodes, keys, key, f"q{i} IS NOT NULL", step)
    size = column.domain.size
    inside = f"c{i} < {d.whole(size)}"
    if isinstance(column.domain, Bins):
        kinds, step = _steps_in_bins(d, i, column.domain, nodes)
    else:
        last = max(1, size - 1)
        kinds = [0] * size
        step = d.divided(f"(c{i} * {d.whole(2 * nodes.grid)} + {d.whole(last)})", 2 * last)
    others = [nodes.intervals + j for j in range(len(nodes.others))]
    key = _class(d, f"c{i}", np.array([*kinds, *others]))
    return _with_nodes(d, nodes, keys, key, inside, step)


def _steps_in_bins(d: Dialect, i: int, bins: Bins, nodes: Nodes) -> tuple[list[int], str]:
    """The interval of every bin, and the step in it as SQL."""
    if not nodes.starts:
        twice = f"(p{i} * {d.whole(2 * nodes.grid)} + {d.whole(PLACES)})"
        return list(range(bins.size)), d.divided(twice, 2 * PLACES)
    ends = np.array([float(edge) for edge in bins.edges])
    starts = np.array([*nodes.starts, bins.size])
    run = np.searchsorted(starts, np.arange(bins.size), side="right") - 1
    lower, widths = ends[starts[:-1]], np.diff(ends[starts])

    def at(values: Iterable[float]) -> str:
        return d.look_up(f"c{i}", [float(each) for each in values])

    value = f"({at(ends[:-1])} + {d.to_double(f'p{i}')} * {at(np.diff(ends) / PLACES)})"
    step = to_grid(d, f"({value} - {at(lower[run])})", at(widths[run]), nodes.grid)
    return [int(each) for each in run], step


def _with_nodes(d: Dialect, nodes: Nodes, keys: int, key: str, inside: str, step: str) -> AxisSql:
    """The axis of Bernstein nodes; keys beyond the intervals have all their weight in one cell."""
    g, first = nodes.grid, nodes.intervals * (nodes.degree + 1)
    weights = (
        [(g, -1), (0, 1)] if nodes.degree == 1 else [(g * g, -2 * g, 1), (0, 2 * g, -2), (0, 0, 1)]
    )
    others = [first + other if other >= 0 else -1 for other in nodes.others]
    starts = np.arange(nodes.intervals) * (nodes.degree + 1)
    terms = [(np.array([*(starts + t), *others]), weight) for t, weight in enumerate(weights)]
    return AxisSql(
        key, keys, nodes.size, terms, f"CASE WHEN {inside} THEN {step} ELSE {d.whole(0)} END"
    )


@dataclass(frozen=True, slots=True)
class GroupSql:
    """One covering set: what is sent, and what is made of the rows that come back."""

    axes: Sequence[AxisSql]
    units: bool

    @property
    def powers(self) -> list[tuple[int, ...]]:
        """The powers of the steps of all axes that are added up, in order."""
        return list(itertools.product(*(range(each.degree + 1) for each in self.axes)))

    def select(self, d: Dialect, relation: str) -> str:
        """Write the statement over the codes of rows that count."""
        keys = [f"k{a}" for a in range(len(self.axes))]
        listed = [f"{each.key} AS k{a}" for a, each in enumerate(self.axes)]
        listed += [f"{each.step} AS s{a}" for a, each in enumerate(self.axes) if each.step]
        listed += ["u"] if self.units else []
        rows = f"SELECT {', '.join(listed) or '0 AS n'} FROM {relation} AS t{d.fence}"
        joins = ""
        for a, each in enumerate(self.axes):
            if each.joined:
                pairs = ", ".join(f"({d.whole(k)}, {d.whole(j)})" for k, j in each.joined)
                keys[a] = f"j{a}.j"
                joins += f" JOIN (VALUES {pairs}) AS j{a}(k, j) ON j{a}.k = t.k{a}"
        shape = [each.keys for each in self.axes]
        place = _mixed(d, keys, shape) if keys else d.whole(0)
        sums = self._sums()
        names = ", ".join(f"{each} AS n{n}" for n, each in enumerate(sums))
        known = f"SELECT {place} AS id, t.* FROM ({rows}) AS t{joins}{d.fence}"
        if self.units:
            known = self._each_once(known)
        return f"SELECT id, {names} FROM ({known}) AS t WHERE id IS NOT NULL GROUP BY id"

    def _each_once(self, known: str) -> str:
        """Write every unit of a cell once: grouping is faster than counting what is different."""
        return f"SELECT id, u FROM ({known}) AS t WHERE id IS NOT NULL GROUP BY id, u"

    def _sums(self) -> list[str]:
        return ["COUNT(*)"] if self.units else [_sum_of(power) for power in self.powers]

    def fold(self, rows: Iterable[tuple[int, ...]]) -> Counts:
        """Return the vector of a covering set from the groups of it, in Python integers.

        A row is a key and then numbers: that of units, or one for each power of a measure. The
        vector has the size of each axis as its shape. Raises: ValueError for anything else.
        """
        shape = tuple(each.size for each in self.axes)
        found = np.zeros(math.prod(shape), dtype=object)
        groups = list(rows)
        width = 1 + (1 if self.units else len(self.powers))
        if any(len(row) != width or type(each) is not int for row in groups for each in row):
            raise ValueError("a server answers with something else than whole numbers")
        table = np.array(groups, dtype=object).reshape(len(groups), width)
        keys = self._keys(table[:, 0].astype(np.int64))
        for terms in itertools.product(*(each.terms for each in self.axes)):
            places, weights = np.zeros(len(groups), dtype=np.int64), self._weigh(table, terms)
            inside = np.ones(len(groups), dtype=np.bool_)
            for axis, (where, _), key in zip(self.axes, terms, keys, strict=True):
                inside &= where[key] >= 0
                places = places * axis.size + where[key]
            np.add.at(found, places[inside], weights[inside])
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

    def _weigh(self, table: Counts, terms: Sequence[Term]) -> Counts:
        """What the groups add to one node of every axis: sums of powers, times coefficients."""
        if self.units:
            return table[:, 1]
        weights = np.zeros(len(table), dtype=object)
        for n, power in enumerate(self.powers):
            times = math.prod(each[p] for (_, each), p in zip(terms, power, strict=True))
            if times:
                weights = weights + table[:, 1 + n] * times
        return weights


def _sum_of(powers: Sequence[int]) -> str:
    """Write the sum of a product of powers of steps, whole numbers below 2^31."""
    factors = [f"s{a}" for a, power in enumerate(powers) for _ in range(power)]
    return f"SUM(CAST({' * '.join(factors)} AS int))" if factors else "COUNT(*)"


def group_sql(
    d: Dialect, resolutions: Sequence[AnyResolution], columns: Columns, units: bool
) -> GroupSql:
    """Write one covering set; see :class:`dpsql.privacy.vault.vault.Vault`."""
    return GroupSql([axis_sql(d, each, columns, units) for each in resolutions], units)


def view_sql(
    d: Dialect, relation: str, columns: Columns, chosen: Iterable[str], by_unit: bool, most: int
) -> str:
    """Write the rows of the declared view of some columns: at most so many of each unit."""
    tests = list(_inside(d, columns, chosen))
    if not by_unit:
        return f"SELECT * FROM {relation} AS t{_where(tests)}"
    ties = [f"q{i} NULLS LAST" for i, each in columns.values() if each.bounds is not None]
    order = ", ".join(["h", *ties])
    ranked = f"row_number() OVER (PARTITION BY u ORDER BY {order}) AS r"
    rows = f"SELECT t.*, {ranked} FROM {relation} AS t{_where(['u IS NOT NULL', *tests])}"
    return f"SELECT * FROM ({rows}) AS t WHERE r <= {d.whole(most)}"


def _where(tests: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(tests)}" if tests else ""


def _inside(d: Dialect, columns: Columns, chosen: Iterable[str]) -> Iterator[str]:
    for key in chosen:
        if key not in columns:
            continue
        i, column = columns[key]
        if column.domain is not None:
            yield f"c{i} <> {d.whole(column.size)}"
        if column.bounds is not None and not column.null:
            yield f"q{i} IS NOT NULL"
