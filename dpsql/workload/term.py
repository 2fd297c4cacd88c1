"""What an aggregate is a sum of: one matrix per column, patterns, measures as polynomials."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Operator
from dpsql.errors import ProgrammingError, Span

MAX_CELLS = 1 << 20
"""Most combinations of classes of one pattern."""

MAX_PRODUCTS = 256
"""Most products that one pattern may be written as."""


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Rows whose classes have ``truth``; a row is counted once, or not at all.

    ``labels`` gives the class of every cell, column by column; ``truth`` has an axis for each of
    these columns, in the same order.
    """

    labels: Mapping[str, NDArray[np.int64]]
    truth: NDArray[np.bool_]
    span: Span | None = field(default=None, repr=False)

    @property
    def key(self) -> str:
        """A digest of what is counted."""
        digest = hashlib.sha256(repr((list(self.labels), self.truth.shape)).encode())
        for labels in self.labels.values():
            digest.update(np.ascontiguousarray(labels, dtype=np.int64).tobytes())
        digest.update(np.ascontiguousarray(self.truth).tobytes())
        return digest.hexdigest()

    def within(self, masks: Mapping[str, NDArray[np.bool_]]) -> Pattern:
        """The pattern for rows whose cells are also in masks over single columns.

        Raises: ProgrammingError (E_TOO_LARGE).
        """
        labels, truth = dict(self.labels), self.truth
        for name, mask in masks.items():
            if name in labels:
                axis = list(labels).index(name)
                labels[name] = np.where(mask, labels[name], truth.shape[axis])
                truth = np.insert(truth, truth.shape[axis], False, axis=axis)
            else:
                labels[name] = np.where(mask, 0, 1)
                truth = np.stack([truth, np.zeros_like(truth)], axis=-1)
            if truth.size > MAX_CELLS:
                raise too_large(truth.size, labels, self.span)
        return Pattern(labels, truth, self.span)

    def joined(self, other: Pattern) -> Pattern | None:
        """Both patterns, over different columns; None where that takes too many combinations."""
        if self.truth.size * other.truth.size > MAX_CELLS:
            return None
        truth = np.multiply.outer(self.truth, other.truth)
        return Pattern({**self.labels, **other.labels}, truth, self.span)


def too_large(count: int, names: Mapping[str, object], span: Span | None) -> ProgrammingError:
    """Return the refusal of a condition over too many combinations of values."""
    return ProgrammingError(
        "E_TOO_LARGE",
        f"the condition depends on {count:,} combinations of values of {', '.join(names)}",
        hint=f"at most {MAX_CELLS:,}; compare with constants, or in separate statements",
        span=span,
    )


def refuse_pattern(pattern: Pattern, units: bool = False) -> NoReturn:
    """Refuse to measure a condition that takes too many products; ``units`` cannot be learned.

    Raises: ProgrammingError (E_PREDICATE).
    """
    raise ProgrammingError(
        "E_PREDICATE",
        f"the condition over {', '.join(pattern.labels)} takes more than {MAX_PRODUCTS} products",
        hint="join conditions on single columns by AND"
        + ("" if units else ", or learn it: mechanism = 'rap'"),
        span=pattern.span,
    )


def at_least(predicates: Mapping[str, NDArray[np.int64]], t: int) -> Pattern:
    """The rows for which at least ``t`` of the predicates hold: t = 1 is OR, all of them AND.

    A column has a 0/1 vector over its cells, or several as rows. Source: RAP (Aydore et al. 2021).
    Raises: ProgrammingError (E_WORKLOAD, E_TOO_LARGE).
    """
    rows = {name: np.atleast_2d(np.asarray(v)) for name, v in predicates.items()}
    count = sum(len(v) for v in rows.values())
    if not 1 <= t <= count or any(not np.isin(v, (0, 1)).all() for v in rows.values()):
        raise ProgrammingError(
            "E_WORKLOAD",
            f"at least {t} of {count} predicates is no threshold query",
            hint="give 0/1 vectors, and a threshold between 1 and their number",
        )
    labels = {name: v.sum(axis=0).astype(np.int64) for name, v in rows.items()}
    shape = tuple(len(v) + 1 for v in rows.values())
    if math.prod(shape) > MAX_CELLS:
        raise too_large(math.prod(shape), labels, None)
    return Pattern(labels, np.indices(shape).sum(axis=0) >= t)


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
