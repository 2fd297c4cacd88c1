"""The classes of cells of several columns that a condition can tell apart, and their combinations.

What a condition over several columns is depends on these alone, however many cells there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import Span
from dpsql.records import dataclass
from dpsql.sql.cells.combinations import Given, told_apart
from dpsql.sql.query import Expression
from dpsql.workload.term import MAX_CELLS, too_large


@dataclass(frozen=True, slots=True)
class ValueClasses:
    """The cells of a column that a condition cannot tell apart.

    ``labels`` gives the class of every cell, ``values`` the values of the parts on every class.
    """

    labels: NDArray[np.int64]
    values: tuple[tuple[Any, ...], ...]


def classify(columns: Sequence[Sequence[Any]], size: int) -> ValueClasses:
    """Group cells by the values of several expressions on them; NULL is a value like others.

    >>> classify([[True, False, True], [1, 1, 1]], 3).labels.tolist()
    [0, 1, 0]
    """
    found: dict[tuple[Any, ...], int] = {}
    first: list[tuple[Any, ...]] = []
    labels = np.empty(size, dtype=np.int64)
    apart = zip(*map(told_apart, columns), strict=True)
    for cell, (key, values) in enumerate(zip(apart, zip(*columns, strict=True), strict=True)):
        labels[cell] = place = found.setdefault(tuple((type(v), v) for v in key), len(found))
        if place == len(first):
            first.append(values)
    return ValueClasses(labels, tuple(first))


@dataclass(frozen=True, slots=True)
class ClassGrid:
    """The grid of all combinations of classes of columns, of which the last one varies fastest.

    ``values`` are the type of a part over one column and its value on every class of that.
    """

    classes: Mapping[str, ValueClasses]
    values: Mapping[Expression, tuple[str, Sequence[Any]]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of classes of each column."""
        return tuple(len(each.values) for each in self.classes.values())

    def axes(self, named: Iterable[tuple[str, Expression]]) -> list[Given]:
        """The values of named parts as rows of two axes of about as many, which combine to all."""
        names, shape, cut = list(self.classes), self.shape, 0
        while cut < len(shape) - 1 and math.prod(shape[: cut + 1]) ** 2 <= math.prod(shape):
            cut += 1
        rows: list[dict[str, tuple[str, Sequence[Any]]]] = []
        parts = list(named)
        for first, last in ((0, cut), (cut, len(names))):
            own, count = names[first:last], math.prod(shape[first:last])
            rows.append({f"cell{len(rows)}": ("BIGINT", range(count))})
            for name, part in parts:
                if part.column in own:
                    kind, values = self.values[part]
                    inner = math.prod(shape[names.index(part.column) + 1 : last])
                    once = [each for each in values for _ in range(inner)]
                    rows[-1][name] = kind, once * (count // len(once))
        return list(rows)


def grid_of(
    values: Mapping[Expression, tuple[str, Sequence[Any]]], order: Sequence[str], span: Span
) -> ClassGrid:
    """The grid of parts over one column each, given their types and values on every cell.

    ``order`` says which columns vary slowest. Raises: ProgrammingError (E_TOO_LARGE).
    """
    found: dict[Expression, tuple[str, Sequence[Any]]] = {}
    classes: dict[str, ValueClasses] = {}
    for name in order:
        own = [part for part in values if part.column == name]
        if own:
            cells = [values[part][1] for part in own]
            classes[name] = classify(cells, len(cells[0]))
            for place, part in enumerate(own):
                kind = values[part][0]
                found[part] = kind, [line[place] for line in classes[name].values]
    check_combinations(classes, span)
    return ClassGrid(classes, found)


def check_combinations(classes: Mapping[str, ValueClasses], span: Span) -> None:
    """Refuse a condition over too many combinations of values.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    count = math.prod(len(each.values) for each in classes.values())
    if count > MAX_CELLS:
        raise too_large(count, classes, span)
