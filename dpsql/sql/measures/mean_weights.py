"""Weights of the sums behind means and spreads, by what else their SELECT shows.

Their errors are those of sums less the middle of the bounds. Alone, nothing else is shown that
these could take from. A count or a sum that is shown beside a mean has an error of its own, which
is kept by weights. Means of several columns, and spreads beside counts, share what there is in ways
that weights do not keep: they are planned as sums of values.
"""

from __future__ import annotations

import math

from sqlglot import exp

from dpsql.logical.functions import has
from dpsql.records import dataclass

HALF = math.sqrt(0.5)
"""The weight of a sum, and of that less the middle for a mean of its column: the root of a half."""


@dataclass(frozen=True, slots=True)
class MeanWeights:
    """The aggregates beside means and spreads of a SELECT, of which weights are made.

    They are ``lone`` where all are means and spreads of the same columns. Where all are means of
    one column, and counts or sums of it, ``counts`` are the counts that are measured, else 0;
    ``sums`` says whether sums are among them.
    """

    lone: bool = False
    counts: int = 0
    sums: bool = False

    def part(self, bounds: tuple[float, float]) -> float:
        """Return how much a sum less the middle of bounds counts beside what is shown.

        With (l, h) / max(|l|, |h|) = b - a, b + a, a sum of values as a part of its largest is
        b N + a C: N is the count, C that sum as a part of its own largest. They are orthogonal over
        two nodes of the same length, so that the plan of both under Gaussian noise depends on the
        ratio of weights alone: with n counts, and w the squared weight of the sum of values, it is
        that without C where C has a^2 (1 - w) / (1 + b^2 / n).

        >>> weights = MeanWeights(counts=2)
        >>> weights.part((-1.0, 1.0)), round(weights.part((0.0, 5.0)), 4)
        (1.0, 0.4714)
        >>> MeanWeights(lone=True).part((0.0, 5.0))
        1.0
        """
        low, high = map(float, bounds)
        largest = max(abs(low), abs(high))
        if not self.counts or not high > low:
            return 1.0
        a, b = (high - low) / 2 / largest, (high + low) / 2 / largest
        return a / math.sqrt(1 + b * b / self.counts) * self.of_sums

    @property
    def of_sums(self) -> float:
        """The weight of sums of values: they share with means what a sum counts for alone."""
        return HALF if self.sums else 1.0


MIXED = MeanWeights()


def read_mean_weights(tree: exp.Expr) -> MeanWeights:
    """Return the aggregates that stand beside means and spreads, in whatever clause they are.

    >>> from sqlglot import parse_one
    >>> read_mean_weights(parse_one("SELECT AVG(x), STDDEV(x) FROM t"))
    MeanWeights(lone=True, counts=0, sums=False)
    >>> read_mean_weights(parse_one("SELECT AVG(x), COUNT(*), SUM(x) FROM t"))
    MeanWeights(lone=False, counts=2, sums=True)
    >>> mixed = "AVG(x), AVG(y)", "VAR_POP(x), COUNT(*)", "COUNT(*), SUM(x)", "AVG(x), SUM(y)"
    >>> {read_mean_weights(parse_one(f"SELECT {text} FROM t")) for text in mixed} == {MIXED}
    True
    """
    found = list(tree.find_all(exp.AggFunc))
    shown = [node for node in found if has(node, "linear")]
    others = [node for node in found if not has(node, "linear")]
    columns = {_columns(node) for node in others}
    if len(columns) != 1:
        return MIXED
    if not shown:
        return MeanWeights(lone=True)
    (own,) = columns
    sums = [node for node in shown if isinstance(node, exp.Sum)]
    are_means = all(isinstance(node, exp.Avg) for node in others)
    if not are_means or len(own) != 1 or any(_columns(node) != own for node in sums):
        return MIXED
    others_too = any(_columns(node) != own for node in shown)
    return MeanWeights(counts=2 if others_too else 1, sums=bool(sums))


def _columns(node: exp.Expr) -> frozenset[str]:
    return frozenset(column.name.casefold() for column in node.find_all(exp.Column))
