"""Grouping: the groups of each column, and the rows that sum over them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog import Column
from dpsql.catalog.domain import Bins
from dpsql.errors import ProgrammingError
from dpsql.sql.query import Running

Rows = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """The groups of one column: which keys it carries, their values, and who is in which group.

    ``members`` has shape (groups, items of the column's source); None for all ranges of cells.
    """

    column: str
    keys: tuple[int, ...]
    groups: tuple[tuple[Any, ...], ...]
    members: Rows | None

    def running(self, running: Running) -> Rows:
        """The items of every group's peers and, in the order of the key, of those before them."""
        assert self.members is not None
        kept = [i for i, key in enumerate(self.keys) if key in running.partition]
        ordered = [i for i, key in enumerate(self.keys) if key == running.order]
        peers = np.ones((len(self.groups), len(self.groups)), dtype=np.bool_)
        for i in kept:
            codes = _codes([group[i] for group in self.groups])
            peers &= codes[:, None] == codes[None, :]
        for i in ordered:
            ranks = _ranks([group[i] for group in self.groups], running.descending)
            peers &= ranks[:, None] >= ranks[None, :]
        return (peers.astype(np.float32) @ self.members.astype(np.float32)) > 0


def partition(
    column: str, keys: Sequence[int], values: Sequence[Sequence[Any]], kept: Rows | None
) -> Axis:
    """Group the items of a column by the values of its keys; items not ``kept`` are in no group.

    >>> partition("a", [0], [["x", "y", "x"]], None).members.tolist()
    [[True, False, True], [False, True, False]]
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for item, value in enumerate(zip(*values, strict=True)):
        if kept is None or kept[item]:
            groups.setdefault(value, []).append(item)
    members = np.zeros((len(groups), len(values[0])), dtype=np.bool_)
    for row, items in zip(members, groups.values(), strict=True):
        row[items] = True
    return Axis(column, tuple(keys), tuple(groups), members)


def nested(outer: Axis, inner: Axis) -> Axis:
    """The groups of two axes of one column together: the outer ones, each cut by the inner ones.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    if outer.members is None or inner.members is None:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"a quantile of {inner.column} over all of its ranges is too large",
            hint="group by the column itself, or by an expression over it",
        )
    both = outer.members[:, None, :] & inner.members[None, :, :]
    groups = tuple((*one, *two) for one, two in itertools.product(outer.groups, inner.groups))
    return Axis(outer.column, outer.keys, groups, both.reshape(len(groups), both.shape[2]))


def ranges(column: Column, key: int, kept: Rows | None, dense: int) -> Axis:
    """All ranges of the cells of a column; explicit where they take at most ``dense`` numbers."""
    assert column.domain is not None
    n = column.domain.size
    pairs = [(lo, hi) for lo in range(n) for hi in range(lo, n)]
    groups = tuple((range_name(column, lo, hi),) for lo, hi in pairs)
    whole = column.size == n and (kept is None or bool(kept.all()))
    if whole and len(pairs) * n > dense:
        return Axis(column.name.casefold(), (key,), groups, None)
    bounds = np.array(pairs).reshape(-1, 2)
    cells = np.arange(column.size)
    members = (bounds[:, :1] <= cells) & (cells <= bounds[:, 1:])
    return Axis(column.name.casefold(), (key,), groups, members)


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


def ascending(values: Sequence[Any]) -> list[int]:
    """The positions of the values that are not NULL, in ascending order."""
    return sorted((i for i, v in enumerate(values) if v is not None), key=lambda i: values[i])


def repeat_keys(axes: Sequence[Axis], keys: int, rows: int) -> list[list[Any]]:
    """The values of every key in every result row; None where no axis carries the key."""
    columns: list[list[Any]] = [[None] * rows for _ in range(keys)]
    outer, inner = 1, rows
    for axis in axes if rows else ():
        inner //= len(axis.groups)
        for key, values in zip(axis.keys, zip(*axis.groups, strict=True), strict=True):
            once = itertools.chain.from_iterable(itertools.repeat(v, inner) for v in values)
            columns[key] = list(once) * outer
        outer *= len(axis.groups)
    return columns


def _codes(values: Sequence[Any]) -> NDArray[np.int64]:
    found: dict[Any, int] = {}
    return np.array([found.setdefault(value, len(found)) for value in values])


def _ranks(values: Sequence[Any], descending: bool) -> NDArray[np.int64]:
    """The rank of every value in ascending (or descending) order; NULL comes last in both."""
    known = sorted({value for value in values if value is not None}, reverse=descending)
    rank = {value: place for place, value in enumerate(known)}
    return np.array([len(known) if value is None else rank[value] for value in values])
