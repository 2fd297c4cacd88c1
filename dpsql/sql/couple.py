"""Conditions that couple columns -> signed products of single-column conditions.

OR and NOT across columns and comparisons between columns are decided on the classes of cells that
the condition can tell apart, then written as disjoint products, or as everything less disjoint
products where that takes fewer. Source: HDMM, appendix A (disjunctions).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ProgrammingError, Span

Mask = NDArray[np.bool_]
Box = dict[str, Mask]

MAX_TERMS = 256
"""Most products that one condition may take."""

MAX_COMBINATIONS = 1 << 20
"""Most combinations of classes on which a condition is evaluated."""

ORDERED = 4
"""Columns up to which every order of them is tried."""


@dataclass(frozen=True, slots=True)
class Classes:
    """The cells of a column that a condition cannot tell apart.

    ``labels`` gives the class of every cell, ``values`` the values of the parts on every class.
    """

    labels: NDArray[np.int64]
    values: tuple[tuple[Any, ...], ...]


def classify(columns: Sequence[Sequence[Any]], size: int) -> Classes:
    """Group cells by the values of several expressions on them; NULL is a value like others.

    >>> classify([[True, False, True], [1, 1, 1]], 3).labels.tolist()
    [0, 1, 0]
    """
    found: dict[tuple[Any, ...], int] = {}
    labels = np.empty(size, dtype=np.int64)
    for cell, values in enumerate(zip(*columns, strict=True)):
        labels[cell] = found.setdefault(tuple((type(v), v) for v in values), len(found))
    return Classes(labels, tuple(tuple(value for _, value in key) for key in found))


def check_combinations(classes: Mapping[str, Classes], span: Span) -> None:
    """Refuse a condition over too many combinations of values.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    count = math.prod(len(each.values) for each in classes.values())
    if count > MAX_COMBINATIONS:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"the condition depends on {count:,} combinations of values of {', '.join(classes)}",
            hint=f"at most {MAX_COMBINATIONS:,}; compare with constants, or in separate statements",
            span=span,
        )


def decompose(truth: Mask, names: Sequence[str], span: Span) -> list[tuple[int, Box]]:
    """Write a truth table over classes as a signed sum of products of masks.

    ``truth`` has one axis per column in ``names``; a column that a product leaves out is not
    restricted. Raises: ProgrammingError (E_PREDICATE).

    >>> truth = np.array([[True, True], [True, False]])
    >>> found = decompose(truth, ("a", "b"), Span("", 0, 0))
    >>> [(sign, {n: m.tolist() for n, m in box.items()}) for sign, box in found]
    [(1, {'a': [True, False]}), (1, {'a': [False, True], 'b': [True, False]})]
    """
    direct = _fewest(truth, names)
    if len(direct) > 2:
        rest = _fewest(~truth, names)
        if len(rest) + 1 < len(direct):
            everything: Box = {}
            return _checked([(1, everything), *((-1, box) for box in rest)], names, span)
    return _checked([(1, box) for box in direct], names, span)


def _checked(
    found: list[tuple[int, Box]], names: Sequence[str], span: Span
) -> list[tuple[int, Box]]:
    if len(found) > MAX_TERMS:
        raise ProgrammingError(
            "E_PREDICATE",
            f"the condition over {', '.join(names)} takes {len(found):,} products",
            hint=f"at most {MAX_TERMS}; join conditions on single columns by AND",
            span=span,
        )
    return found


def _fewest(truth: Mask, names: Sequence[str]) -> list[Box]:
    """The disjoint products of the best order of columns found."""
    orders: Iterator[tuple[int, ...]] = iter([tuple(range(truth.ndim))])
    if truth.ndim <= ORDERED:
        orders = itertools.permutations(range(truth.ndim))
    found = [list(_boxes(truth.transpose(o), [names[i] for i in o])) for o in orders]
    return min(found, key=len)


def _boxes(truth: Mask, names: Sequence[str]) -> Iterator[Box]:
    if not truth.any():
        return
    if truth.all():
        yield {}
        return
    flat = truth.reshape(len(truth), -1)
    rows, first, labels = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    labels = labels.reshape(-1)
    for index in np.argsort(first):
        if not rows[index].any():
            continue
        here = labels == index
        mask = {} if here.all() else {names[0]: here}
        if truth.ndim == 1:
            yield mask
        else:
            for box in _boxes(rows[index].reshape(truth.shape[1:]), names[1:]):
                yield {**mask, **box}
