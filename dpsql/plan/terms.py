"""What an aggregate is a sum of: one matrix per column, measures as polynomials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Operator
from dpsql.plan.pattern import Pattern


@dataclass(frozen=True, slots=True)
class Polynomial:
    """c0 + c1 v + c2 v^2 of a bounded measure v, and ``null`` where it is NULL.

    ``clip`` are bounds within the declared ones.
    """

    column: str
    coefficients: tuple[float, float, float]
    null: float = 0.0
    clip: tuple[float, float] | None = None

    def largest(self, low: float, high: float) -> float:
        """The largest magnitude for values from ``low`` to ``high``, or NULL.

        >>> Polynomial("v", (0.0, -4.0, 1.0)).largest(0.0, 5.0)
        5.0
        """
        low, high = self.clip or (low, high)
        a, b, c = self.coefficients
        turn = [-b / (2 * c)] if c and low < -b / (2 * c) < high else []
        values = [abs(a + b * v + c * v * v) for v in (low, high, *turn)]
        return max(*values, abs(self.null))


@dataclass(frozen=True, slots=True)
class Term:
    """``scale`` times a product of matrices over columns and of polynomials over measures.

    A column without a factor is summed over. All terms of an answer have the same rows.
    ``largest`` is the largest magnitude of what one row can add. With a ``pattern`` only its rows
    add anything.
    """

    factors: Mapping[str, Operator]
    polynomials: Mapping[str, Polynomial] = field(default_factory=dict)
    scale: float = 1.0
    largest: float = 1.0
    pattern: Pattern | None = None


def gather(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Add up the polynomials of terms that differ in one polynomial only.

    >>> v = lambda *c: {"v": Polynomial("v", c)}
    >>> gather([Term({}, v(0.0, 2.0, 0.0)), Term({}, v(3.0, 0.0, 0.0))])[0].polynomials["v"]
    Polynomial(column='v', coefficients=(3.0, 2.0, 0.0), null=0.0, clip=None)
    """
    out: list[Term] = []
    for term in terms:
        for index, known in enumerate(out):
            merged = _merge(known, term)
            if merged is not None:
                out[index] = merged
                break
        else:
            out.append(term)
    return tuple(out)


def _merge(left: Term, right: Term) -> Term | None:
    if not left.polynomials or left.polynomials.keys() != right.polynomials.keys():
        return None
    if left.factors.keys() != right.factors.keys() or left.pattern is not right.pattern:
        return None
    if any(factor is not right.factors[name] for name, factor in left.factors.items()):
        return None
    differing = [n for n, p in left.polynomials.items() if p != right.polynomials[n]]
    if len(differing) > 1:
        return None
    name = differing[0] if differing else next(iter(left.polynomials))
    one, two = left.polynomials[name], right.polynomials[name]
    if one.clip != two.clip:
        return None
    x, y = left.scale, right.scale
    a, b, c = (x * p + y * q for p, q in zip(one.coefficients, two.coefficients, strict=True))
    total = Polynomial(name, (a, b, c), x * one.null + y * two.null, one.clip)
    return Term(
        left.factors,
        {**left.polynomials, name: total},
        1.0,
        left.largest + right.largest,
        left.pattern,
    )


def normalise(rows: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Scale rows of fractions to a largest magnitude between a half and one; whole rows stay.

    Returns the rows and what to multiply them by, a power of two, so that nothing is lost.

    >>> rows, scale = normalise(np.array([[0.75e-9, 0.0]]))
    >>> bool(0.5 <= rows.max() <= 1), float(rows[0, 0] * scale)
    (True, 7.5e-10)
    """
    if rows.dtype.kind in "iub" or not rows.any():
        return rows, 1.0
    scale = 2.0 ** math.ceil(math.log2(float(np.abs(rows).max())))
    return rows / scale, scale
