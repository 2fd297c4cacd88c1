"""Grouping: the groups of each column, and the rows that sum over them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import AllRange, Prefix, Ranges
from dpsql.algebra.groups import EXPLICIT, grouped
from dpsql.algebra.operator import Operator
from dpsql.catalog import Column
from dpsql.catalog.domain import Bins
from dpsql.errors import ProgrammingError
from dpsql.records import dataclass, replace
from dpsql.sql.query import RunningSum
from dpsql.sql.shell.frames import places_of
from dpsql.vectors import Vector, repeated
from dpsql.workload.term import normalise

Members = NDArray[np.bool_]
Indices = NDArray[np.int64]

MAX_RANGES = 1_000_000
"""Most ranges of the cells of a column, which are rows of a result."""

MAX_WIDE = 1 << 24
"""Most numbers in an explicit matrix of ranges: 128 MiB of them; beyond, they are kept implicit."""

MAX_DENSE = 1 << 26
"""Most members of groups that are written out one by one: a truth value each, 64 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The groups of one column: which keys it carries, their values, and who is in which group.

    ``labels`` has the group of every item of the column's source, -1 for none; where an item may
    be in several groups ``explicit`` has shape (groups, items). Both are None for all ranges of
    cells. In a ``growing`` axis every group has the items of the groups before it, too.
    """

    column: str
    keys: tuple[int, ...]
    groups: tuple[tuple[Any, ...], ...]
    explicit: Members | None = None
    labels: NDArray[np.int64] | None = None
    growing: bool = False

    @property
    def members(self) -> Members | None:
        """Membership of items in groups, shape (groups, items); None for all ranges of cells.

        Raises: ProgrammingError (E_TOO_LARGE).
        """
        if self.labels is None:
            return self.explicit
        check_dense(self.column, len(self.groups) * len(self.labels))
        members = self.labels == np.arange(len(self.groups))[:, np.newaxis]
        return np.logical_or.accumulate(members, axis=0) if self.growing else members

    def apart(self, running: RunningSum | None) -> bool:
        """Say whether no item is in two groups, so that labels say all."""
        if self.labels is None or self.growing:
            return False
        return running is None or set(self.keys) <= running.partition

    def running(self, running: RunningSum) -> Members:
        """The items of the groups in every group's frame.

        Raises: ProgrammingError (E_TOO_LARGE).
        """
        assert self.labels is not None
        check_dense(self.column, len(self.groups) * max(len(self.groups), len(self.labels)))
        kept = [i for i, key in enumerate(self.keys) if key in running.partition]
        ordered = [i for i, key in enumerate(self.keys) if key == running.order]
        parts = _codes([tuple(group[i] for i in kept) for group in self.groups])
        peers = parts[:, None] == parts[None, :]
        for i in ordered:
            values = [group[i] for group in self.groups]
            place, first, last = places_of(values, parts, running.frame, running.descending)
            peers &= (first[:, None] <= place) & (place <= last[:, None])
        return np.asarray(peers[:, self.labels] & (self.labels >= 0))

    def intervals(self, running: RunningSum | None) -> tuple[Indices, Indices] | None:
        """The members of growing or running groups as intervals [lo, hi) of items, if they are.

        So it is where the items in groups follow each other, and so do the groups.
        """
        if self.labels is None or self.labels.max(initial=-1) < 0:
            return None
        inside = np.flatnonzero(self.labels >= 0)
        start, end = int(inside[0]), int(inside[-1]) + 1
        if end - start > len(inside):
            return None
        none = np.zeros(len(self.groups), dtype=np.int64)
        if self.growing:
            place, first, last = np.arange(len(self.groups)), none, np.arange(len(self.groups))
        elif running is not None and self.keys == (running.order,):
            values = [group[0] for group in self.groups]
            place, first, last = places_of(values, none, running.frame, running.descending)
        elif running is not None and not set(self.keys) & {running.order, *running.partition}:
            place, first, last = none, none, none
        else:
            return None
        found = _monotone(place[self.labels[start:end]], first, last)
        return None if found is None else (start + found[0], start + found[1])


def partition(
    column: str, keys: Sequence[int], values: Sequence[Sequence[Any]], kept: Members | None
) -> Grouping:
    """Group the items of a column by the values of its keys; items not ``kept`` are in no group.

    >>> partition("a", [0], [["x", "y", "x"]], None).labels.tolist()
    [0, 1, 0]
    """
    labels = np.full(len(values[0]), -1, dtype=np.int64)
    inside = np.ones(len(labels), dtype=np.bool_) if kept is None else kept
    items = [*itertools.compress(zip(*values, strict=True), inside.tolist())]
    groups = {value: number for number, value in enumerate(dict.fromkeys(items))}
    labels[inside] = np.fromiter(map(groups.__getitem__, items), np.int64, len(items))
    return Grouping(column, tuple(keys), tuple(groups), labels=labels)


def ranked(
    column: str, values: Sequence[Any], *, growing: bool
) -> tuple[Grouping, tuple[Any, ...]]:
    """The axis of a ranked column and its values in order; NULLs are in no group."""
    distinct = sorted({v for v in values if v is not None})
    place = {value: k for k, value in enumerate(distinct)}
    labels = np.array([-1 if v is None else place[v] for v in values], dtype=np.int64)
    groups = tuple((v,) for v in distinct)
    return Grouping(column, (), groups, labels=labels, growing=growing), tuple(distinct)


def check_dense(column: str, numbers: int) -> None:
    """Refuse rows that are too many numbers to be written out.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    if numbers > MAX_DENSE:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"overlapping groups of {column} would take {numbers:,} numbers",
            hint=f"at most {MAX_DENSE:,}: group by the column itself, or declare bins",
        )


def nested(outer: Grouping, inner: Grouping) -> Grouping:
    """The groups of two axes of one column together: the outer ones, each cut by the inner ones.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    if outer.members is None or inner.members is None:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"a quantile of {inner.column} over all of its ranges is too large",
            hint="group by the column itself, or by an expression over it",
        )
    check_dense(inner.column, len(outer.groups) * inner.members.size)
    both = outer.members[:, None, :] & inner.members[None, :, :]
    groups = tuple((*one, *two) for one, two in itertools.product(outer.groups, inner.groups))
    return Grouping(outer.column, outer.keys, groups, both.reshape(len(groups), both.shape[2]))


def ranges(column: Column, key: int, kept: Members | None) -> Grouping:
    """The ranges of cells of a column, all of them; explicit where they are few enough numbers."""
    assert column.domain is not None
    n = column.domain.size
    if n * (n + 1) // 2 > MAX_RANGES:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"{column.name} has {n * (n + 1) // 2:,} ranges",
            hint=f"at most {MAX_RANGES:,}: declare bins, or name the ranges in a VALUES list",
        )
    pairs = [(lo, hi) for lo in range(n) for hi in range(lo, n)]
    groups = tuple((range_name(column, lo, hi),) for lo, hi in pairs)
    whole = column.size == n and (kept is None or bool(kept.all()))
    if whole and len(pairs) * n > MAX_WIDE:
        return Grouping(column.name.casefold(), (key,), groups, None)
    bounds = np.array(pairs).reshape(-1, 2)
    cells = np.arange(column.size)
    members = (bounds[:, :1] <= cells) & (cells <= bounds[:, 1:])
    return Grouping(column.name.casefold(), (key,), groups, members)


def range_name(column: Column, lo: int, hi: int) -> str:
    """The name of a range of cells: both ends belong to it, but for the upper edge of a bin."""
    assert column.domain is not None
    names = column.domain.representatives
    if isinstance(column.domain, Bins):
        edges = column.domain.edges
        top = edges[hi + 1]
        shown = int(top) if top.denominator == 1 else float(top)
        return f"[{names[lo]}, {shown}{']' if hi + 2 == len(edges) else ')'}"
    return f"[{names[lo]}, {names[hi]}]"


def repeat_keys(axes: Sequence[Grouping], keys: int, rows: int) -> list[Vector]:
    """The values of every key in every result row; None where no axis carries the key."""
    columns: dict[int, Vector] = {}
    outer, inner = 1, rows
    for axis in axes if rows else ():
        inner //= len(axis.groups)
        once = np.repeat(np.arange(len(axis.groups), dtype=np.int32), inner)
        places = None if len(axis.groups) == rows else np.tile(once, outer)
        for key, values in zip(axis.keys, zip(*axis.groups, strict=True), strict=True):
            columns[key] = Vector.of(values, places)
        outer *= len(axis.groups)
    return [columns[key] if key in columns else repeated(None, rows) for key in range(keys)]


def _codes(values: Sequence[Any]) -> NDArray[np.int64]:
    found: dict[Any, int] = {}
    return np.array([found.setdefault(value, len(found)) for value in values])


@dataclass(frozen=True, slots=True)
class ItemRows:
    """Rows over the items of a column, what to multiply them by, and their largest number."""

    operator: Operator
    scale: float = 1.0
    largest: float = 1.0


def wide_rows(
    axis: Grouping,
    running: RunningSum | None,
    mask: NDArray[np.bool_] | None,
    numbers: NDArray[Any] | None,
) -> ItemRows | None:
    """Return the rows of an axis where they would be many numbers and need not be written out.

    None for few numbers, and for groups that neither are apart nor follow each other.
    ``mask`` and ``numbers`` are (cells,): the cells that count, and what a row there adds.
    """
    if axis.labels is None or len(axis.groups) * len(axis.labels) <= EXPLICIT:
        return None
    if axis.apart(running):
        labels = axis.labels if mask is None else np.where(mask, axis.labels, -1)
        if numbers is None:
            return ItemRows(grouped(labels, len(axis.groups)))
        used = np.where(labels < 0, 0, numbers)
        weights, scale = normalise(used)
        operator = grouped(labels, len(axis.groups), weights)
        return ItemRows(operator, scale, float(np.abs(used).max(initial=0)))
    if numbers is not None:
        return None
    size = len(axis.labels)
    labels = axis.labels if mask is None else np.where(mask, axis.labels, -1)
    bounds = replace(axis, labels=labels).intervals(running)
    if bounds is None:
        return None
    lo, hi = bounds
    if not lo.any() and np.array_equal(hi, np.arange(1, size + 1)):
        return ItemRows(Prefix(size))
    return ItemRows(Ranges(size, lo, hi))


def all_ranges(column: Column, mask: NDArray[np.bool_] | None) -> Operator:
    """Return all ranges of the cells of a column.

    Args:
        column: whose domain is ordered.
        mask: (cells,), those that count; None for all.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    if mask is not None and not mask.all():
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"all ranges of {column.name} under a condition on it are too many",
            hint=f"at most {MAX_WIDE:,} numbers; leave the condition out",
        )
    return AllRange(column.size)


def _monotone(place: Indices, first: Indices, last: Indices) -> tuple[Indices, Indices] | None:
    """Return the intervals [lo, hi) of items whose place is from first to last, if they are such.

    Places rise or fall, but for one item at an end, which may be NULL.
    """
    steps = np.diff(place)
    if (steps >= 0).all():
        return np.searchsorted(place, first), np.searchsorted(place, last, side="right")
    if (steps <= 0).all():
        turned = place[::-1]
        hi, lo = np.searchsorted(turned, first), np.searchsorted(turned, last, side="right")
        return len(place) - lo, len(place) - hi
    n = len(place)
    for core, odd in ((slice(0, n - 1), n - 1), (slice(1, n), 0)):
        if not _is_monotone(place[core]):
            continue
        bounds = _monotone(place[core], first, last)
        assert bounds is not None
        lo, hi = bounds[0] + core.start, bounds[1] + core.start
        held = (first <= place[odd]) & (place[odd] <= last)
        touching = (hi == n - 1) if odd else (lo == 1)
        if (held & ~touching & (lo < hi)).any():
            return None
        alone = held & (lo == hi)
        lo = np.where(alone | (held & (odd == 0)), odd, lo)
        return lo, np.where(held & (odd > 0), n, np.where(alone, odd + 1, hi))
    return None


def _is_monotone(place: Indices) -> bool:
    steps = np.diff(place)
    return bool((steps >= 0).all() or (steps <= 0).all())
