"""Split of a whole weight between the nodes of one number: here, and as SQL.

The first moment, ``m`` = 2 T w, and the second, ``s`` = T w^2, are rounded apart; ``s`` is kept in
max(0, m - T) .. m // 2, so that the weights T - m + s, m - 2 s and s are not negative. With
products of a rounded w all moments were as coarse as the root of T: decision 104.

Guarantee: whatever the number is, the weights are non-negative integers that sum to T. Both ways
do the same arithmetic on doubles, each of whose operations is rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpsql.privacy.vault.data_engine import Counts, Floats
from dpsql.privacy.vault.dialect import Dialect
from dpsql.records import dataclass


def split_weight(total: Counts | int, part: Floats, degree: int) -> list[Counts]:
    """Return the weights of the nodes of one degree; all are (rows,).

    ``part`` is where a number lies between its ends, 0 to 1, ``total`` what is split.

    >>> [each.tolist() for each in split_weight(10, np.array([0.0, 0.25, 1.0]), 1)]
    [[10, 8, 0], [0, 2, 10]]
    >>> [each.tolist() for each in split_weight(100, np.array([0.0, 0.003, 0.25, 1.0]), 2)]
    [[100, 99, 56, 0], [0, 1, 38, 0], [0, 0, 6, 100]]
    """
    most = degree * np.asarray(total, dtype=np.int64)
    first = np.rint(most.astype(np.float64) * part).astype(np.int64)
    first = np.minimum(np.maximum(first, 0), most)
    if degree == 1:
        return [total - first, first]
    second = np.rint(np.asarray(total, dtype=np.float64) * part * part).astype(np.int64)
    second = np.minimum(np.maximum(second, np.maximum(first - total, 0)), first // 2)
    return [total - first + second, first - 2 * second, second]


@dataclass(frozen=True, slots=True)
class SplitSql:
    """Rows with what each adds to every combination of nodes.

    ``leaves`` are the nodes, one of every number that was split, and the weight as an expression.
    """

    rows: str
    leaves: Sequence[tuple[tuple[int, ...], str]]


def split_sql(
    d: Dialect, rows: str, unit: int, parts: Sequence[tuple[str, int]], fence: str
) -> SplitSql:
    """Write the split of a weight, one number after the other, over rows of a sub-query.

    ``parts`` are a name of where a number lies between its ends, and its degree.
    """
    leaves: list[tuple[tuple[int, ...], str]] = [((), d.whole(unit))]
    for k, (part, degree) in enumerate(parts):
        if k:
            named = [(nodes, f"w{''.join(map(str, nodes))}") for nodes, _ in leaves]
            both = zip(leaves, named, strict=True)
            rows = _with(rows, (f"{one} AS {name}" for (_, one), (_, name) in both), fence)
            leaves = named
        totals = [total for _, total in leaves]
        rows = _with(rows, _moments(d, totals, part, degree, 1), fence)
        if degree == 2:
            rows = _with(rows, _moments(d, totals, part, degree, 2), fence)
        leaves = [
            ((*nodes, t), weight)
            for i, (nodes, total) in enumerate(leaves)
            for t, weight in enumerate(_weights(d, total, f"{part}_1_{i}", f"{part}_2_{i}", degree))
        ]
    return SplitSql(rows, leaves)


def _with(rows: str, more: Iterator[str], fence: str) -> str:
    return f"SELECT t.*, {', '.join(more)} FROM ({rows}) AS t{fence}"


def _moments(
    d: Dialect, totals: Sequence[str], part: str, degree: int, power: int
) -> Iterator[str]:
    """The first or the second moment for each of some totals, as whole numbers with names."""
    zero = d.whole(0)
    for i, total in enumerate(totals):
        first = f"{part}_1_{i}"
        if power == 1:
            most = total if degree == 1 else f"({total} * {d.whole(2)})"
            found = d.to_whole(d.rounded(f"({d.to_double(most)} * {part})"))
            yield f"LEAST(GREATEST({found}, {zero}), {most}) AS {first}"
        else:
            found = d.to_whole(d.rounded(f"({d.to_double(total)} * {part} * {part})"))
            least = f"GREATEST({first} - {total}, {zero})"
            yield f"LEAST(GREATEST({found}, {least}), {d.divided(first, 2)}) AS {part}_2_{i}"


def _weights(d: Dialect, total: str, first: str, second: str, degree: int) -> list[str]:
    if degree == 1:
        return [f"({total} - {first})", first]
    return [f"({total} - {first} + {second})", f"({first} - {d.whole(2)} * {second})", second]
