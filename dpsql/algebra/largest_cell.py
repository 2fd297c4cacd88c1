"""The cell of a domain in which a sum of products is largest: exact, or never less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Norms: TypeAlias = NDArray[Any]

PIECE = 1 << 17
"""Most numbers that one step of a search forms."""

WORK = 1 << 24
"""Most numbers that a whole search forms: about a second."""

COMPARED = 512
"""Most kinds of cells, or states of a search, that are compared with each other."""

SLACK = 1e-12
"""Relative size below which real-valued sums count as equal."""


def worst_cell(tables: Sequence[Norms], start: Norms) -> tuple[Any, bool]:
    """Return the largest sum of ``start[k] * prod tables[i][k, cell_i]``, and whether it is exact.

    ``tables`` have one row per summand and one column per cell of an attribute; nothing is
    negative. Where the search would take too long, a bound that is never less is returned.
    Integers stay integers; those that could wrap must be Python's.

    >>> ones = np.ones(2, dtype=np.int64)
    >>> tables = [np.array([[1, 0, 1], [0, 1, 0]]), np.array([[1, 2], [2, 1]])]
    >>> found, exact = worst_cell(tables, ones)
    >>> int(found), exact
    (2, True)
    """
    kinds = [_kinds(np.asarray(table)) for table in tables]
    state = np.asarray(start)
    for table in kinds:
        if table.shape[1] == 1:
            state = state * table[:, 0]
    varying = sorted((t for t in kinds if t.shape[1] > 1), key=lambda t: -t.shape[1])
    rest = [np.ones_like(state)]
    for table in reversed(varying):
        rest.append(rest[-1] * table.max(axis=1))
    rest.reverse()
    return _search(state, varying, rest)


def _search(state: Norms, varying: Sequence[Norms], rest: Sequence[Norms]) -> tuple[Any, bool]:
    """Extend states attribute by attribute, the most promising first, and prune by bounds."""
    known = _greedy(state, varying, rest)
    stack = [(0, state[np.newaxis])]
    work = 0
    while stack:
        depth, states = stack.pop()
        bounds = states @ rest[depth]
        above = _above(bounds, known)
        states, bounds = states[above], bounds[above]
        if not len(states):
            continue
        if work > WORK:
            left = [(s @ rest[d]).max() for d, s in [*stack, (depth, states)]]
            return max(known, *left), False
        table = varying[depth]
        many = max(1, PIECE // (table.shape[1] * states.shape[1]))
        if len(states) > many:
            order = np.argsort(bounds, kind="stable")
            stack.append((depth, states[order[:-many]]))
            states = states[order[-many:]]
        states = (states[:, np.newaxis] * table.T).reshape(-1, states.shape[1])
        work += states.size
        sums = states.sum(axis=1)
        if depth + 1 == len(varying):
            known = max(known, sums.max())
        else:
            promising = _above(states @ rest[depth + 1], known)
            stack.append((depth + 1, _distinct(states[promising])))
    return known, True


def _above(bounds: Norms, known: Any) -> NDArray[np.bool_]:
    """Mark bounds above what is known: exactly for integers, by more than rounding for others."""
    least = known * (1 + SLACK) if bounds.dtype.kind == "f" else known
    return np.asarray(bounds > least, dtype=np.bool_)


def _greedy(state: Norms, varying: Sequence[Norms], rest: Sequence[Norms]) -> Any:
    """The sum in a good cell: attribute by attribute, the most promising kind."""
    for table, after in zip(varying, rest[1:], strict=True):
        choices = (state[:, np.newaxis] * table).T
        state = choices[int((choices @ after).argmax())]
    return state.sum()


def _kinds(table: Norms) -> Norms:
    """The distinct columns; those below another one everywhere are left out."""
    return _distinct(table.T).T


def _distinct(states: Norms) -> Norms:
    if states.dtype == object:
        found = np.array(sorted({tuple(row) for row in states.tolist()}), dtype=object)
        states = found.reshape(-1, states.shape[1])
    else:
        # Rows compared as bytes: which order they come in does not matter.
        whole = np.ascontiguousarray(states)
        rows = whole.view(np.dtype((np.void, whole.itemsize * whole.shape[1])))
        states = whole[np.unique(rows[:, 0], return_index=True)[1]]
    if len(states) <= COMPARED:
        columns = np.ascontiguousarray(states.T)
        states = states[[_count_above(columns, row) == 1 for row in states]]
    return states


def _count_above(columns: Norms, row: Norms) -> int:
    """Number of states, of ``columns`` (numbers, states), that are nowhere below a row.

    Nothing is below it where it is zero, which most summands of a cell are.
    """
    asked = np.flatnonzero(row)
    return int((columns[asked] >= row[asked, np.newaxis]).all(axis=0).sum())
