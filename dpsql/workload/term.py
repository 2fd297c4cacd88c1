"""Terms, the summands of an aggregate: a matrix per column, patterns, polynomials of measures.

A condition over several columns is decided on the classes of cells that it can tell apart. Such a
pattern is written as disjoint products, or as everything less disjoint products where that takes
fewer. Source: HDMM, appendix A (disjunctions).
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Operator
from dpsql.errors import ProgrammingError, Span
from dpsql.records import dataclass, field
from dpsql.workload.polynomial import Polynomial

Mask = NDArray[np.bool_]
Box = dict[str, Mask]
"""A product of masks: a column that it leaves out is not restricted."""

MAX_CELLS = 1 << 20
"""Most combinations of classes of one pattern."""

MAX_PRODUCTS = 256
"""Most products that one pattern may be written as."""

MAX_TOGETHER, JOINABLE = 1 << 11, 1 << 22
"""Most products that patterns over different columns may be written as together, where these have
so few combinations of classes that they are one attribute."""

MAX_APART = 1 << 10
"""The same where they have more: each pair of products has a covariance then, and twice as many
products did not end in four minutes."""

ORDERED = 4
"""Columns up to which every order of them is tried."""


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

        Args:
            masks: (cells of the column,) each, by column.

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

    def met(self, other: Pattern) -> Pattern:
        """Both patterns, over columns that they may share. Raises: ProgrammingError (E_TOO_LARGE).

        >>> a, b = np.array([0, 0, 1]), np.array([0, 1, 1])
        >>> one, two = (Pattern({"x": each}, np.array([True, False])) for each in (a, b))
        >>> one.met(two).truth.tolist()
        [True, False, False]
        """
        names = list(dict.fromkeys((*self.labels, *other.labels)))
        labels, classes = {}, {}
        for name in names:
            cells = [each.labels[name] for each in (self, other) if name in each.labels]
            pairs, inverse = np.unique(np.stack(cells), axis=1, return_inverse=True)
            labels[name], classes[name] = inverse.reshape(-1).astype(np.int64), pairs
        count = math.prod(pairs.shape[1] for pairs in classes.values())
        if count > MAX_CELLS:
            raise too_large(count, labels, self.span)
        truths = []
        for place, each in ((0, self), (-1, other)):
            truth = each.truth[np.ix_(*(classes[name][place] for name in each.labels))]
            order = np.argsort([names.index(name) for name in each.labels])
            missing = tuple(i for i, name in enumerate(names) if name not in each.labels)
            truths.append(np.expand_dims(truth.transpose(order), missing))
        return Pattern(labels, np.logical_and(*truths), self.span or other.span)


def with_pattern(patterns: Sequence[Pattern], more: Pattern) -> list[Pattern]:
    """Patterns over different columns, and one more that may share columns with them.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    apart = [each for each in patterns if not each.labels.keys() & more.labels.keys()]
    for each in patterns:
        if each not in apart:
            more = more.met(each)
    return [*apart, more]


def too_large(count: int, names: Mapping[str, object], span: Span | None) -> ProgrammingError:
    """Return the refusal of a condition over too many combinations of values.

    Args:
        count: combinations of classes.
        names: the columns that they are of.
        span: the condition in the text, if known.
    """
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


def refuse_patterns(patterns: Sequence[Pattern]) -> NoReturn:
    """Refuse to measure conditions over different columns that take too many products together.

    Raises: ProgrammingError (E_PREDICATE, E_TOO_LARGE).
    """
    for pattern in patterns:
        if decompose(pattern) is None:
            refuse_pattern(pattern)
    names = ", ".join(name for pattern in patterns for name in pattern.labels)
    raise ProgrammingError(
        "E_TOO_LARGE",
        f"the conditions over {names} take more than {_most(patterns):,} products together",
        hint="leave some of them out, or join conditions on single columns by AND",
        span=patterns[0].span,
    )


def decompose(pattern: Pattern) -> list[tuple[int, Box]] | None:
    """Write a pattern as a signed sum of products of masks; None where that takes too many.

    A column that a product leaves out is not restricted.

    >>> truth = np.array([[True, True], [True, False]])
    >>> found = decompose(Pattern({"a": np.arange(2), "b": np.arange(2)}, truth))
    >>> [(sign, {n: m.tolist() for n, m in box.items()}) for sign, box in found]
    [(1, {'a': [True, False]}), (1, {'a': [False, True], 'b': [True, False]})]
    """
    names = tuple(pattern.labels)
    found = [(1, box) for box in _fewest(pattern.truth, names)]
    if len(found) > 2:
        rest = _fewest(~pattern.truth, names)
        if len(rest) + 1 < len(found):
            everything: Box = {}
            found = [(1, everything), *((-1, box) for box in rest)]
    if len(found) > MAX_PRODUCTS:
        return None
    labels = pattern.labels
    return [(sign, {name: mask[labels[name]] for name, mask in box.items()}) for sign, box in found]


def intersect(patterns: Sequence[Pattern]) -> list[tuple[int, Box]] | None:
    """Patterns over different columns together as products; None where that takes too many."""
    found: list[tuple[int, Box]] = [(1, {})]
    most = _most(patterns)
    for pattern in patterns:
        boxes = decompose(pattern)
        if boxes is None or len(found) * len(boxes) > most:
            return None
        pairs = itertools.product(found, boxes)
        found = [(one * two, {**left, **right}) for (one, left), (two, right) in pairs]
    return found


def _most(patterns: Sequence[Pattern]) -> int:
    """The most products that patterns over different columns may be written as together."""
    combinations = math.prod(pattern.truth.size for pattern in patterns)
    return MAX_TOGETHER if combinations <= JOINABLE else MAX_APART


def join(patterns: Sequence[Pattern]) -> Pattern | None:
    """Patterns over different columns as one; None where there is none, or too many combinations.

    >>> join([]) is None
    True
    """
    found: Pattern | None = None
    for pattern in patterns:
        found = pattern if found is None else found.joined(pattern)
        if found is None:
            return None
    return found


def _fewest(truth: Mask, names: Sequence[str]) -> list[Box]:
    """The disjoint products of the best order of columns found."""
    orders: Iterator[tuple[int, ...]] = iter([tuple(range(truth.ndim))])
    if truth.ndim <= ORDERED:
        orders = itertools.permutations(range(truth.ndim))
    found = (_boxes(truth.transpose(o), [names[i] for i in o]) for o in orders)
    return min((list(itertools.islice(boxes, MAX_PRODUCTS + 1)) for boxes in found), key=len)


def _boxes(truth: Mask, names: Sequence[str]) -> Iterator[Box]:
    if not truth.any():
        return
    if truth.all():
        yield {}
        return
    if truth.ndim == 1:
        yield {names[0]: truth}
        return
    labels = _alike(truth)
    for index in range(int(labels.max()) + 1):
        here = labels == index
        rest = truth[here.argmax()]
        if not rest.any():
            continue
        mask = {} if here.all() else {names[0]: here}
        for box in _boxes(rest, names[1:]):
            yield {**mask, **box}


def _alike(truth: Mask) -> NDArray[np.int64]:
    """Return a number for every row of truth values, the same where they are, in their order.

    >>> _alike(np.array([[True, False], [False, False], [True, False]])).tolist()
    [0, 1, 0]
    """
    found: dict[bytes, int] = {}
    texts = (np.packbits(row).tobytes() for row in truth)
    return np.array([found.setdefault(text, len(found)) for text in texts], dtype=np.int64)


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


def gather(terms: Iterable[Term], bounds: Mapping[str, tuple[float, float]]) -> tuple[Term, ...]:
    """Add up polynomials of terms that differ in one only; ``bounds`` are those of measures.

    >>> v = lambda *c: {"v": Polynomial("v", c)}
    >>> terms = [Term({}, v(0.0, 2.0, 0.0), 1.0, 8.0), Term({}, v(-7.0, 0.0, 0.0), 1.0, 7.0)]
    >>> (found,) = gather(terms, {"v": (3.0, 4.0)})
    >>> found.polynomials["v"].coefficients, found.largest
    ((-7.0, 2.0, 0.0), 1.0)
    """
    out: list[Term] = []
    for term in terms:
        for index, known in enumerate(out):
            merged = _merge(known, term, bounds)
            if merged is not None:
                out[index] = merged
                break
        else:
            out.append(term)
    return tuple(out)


def _merge(left: Term, right: Term, bounds: Mapping[str, tuple[float, float]]) -> Term | None:
    if not left.polynomials or left.polynomials.keys() != right.polynomials.keys():
        return None
    if left.factors.keys() != right.factors.keys() or left.pattern is not right.pattern:
        return None
    if any(factor is not right.factors[name] for name, factor in left.factors.items()):
        return None
    differing = [n for n, p in left.polynomials.items() if p != right.polynomials[n]]
    name = differing[0] if differing else next(iter(left.polynomials))
    one, two = left.polynomials[name], right.polynomials[name]
    if len(differing) > 1 or one.clip != two.clip:
        return None
    total = one.plus(two, left.scale, right.scale)
    largest, alone = left.largest + right.largest, abs(left.scale) * one.largest(*bounds[name])
    if alone:
        largest = left.largest / alone * total.largest(*bounds[name])
    return Term(left.factors, {**left.polynomials, name: total}, 1.0, largest, left.pattern)


def normalise(rows: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Scale rows of fractions to a largest magnitude between a half and one; whole rows stay.

    Returns the rows, of any shape, and what to multiply them by, a power of two, so that nothing
    is lost.

    >>> rows, scale = normalise(np.array([[0.75e-9, 0.0]]))
    >>> bool(0.5 <= rows.max() <= 1), float(rows[0, 0] * scale)
    (True, 7.5e-10)
    """
    if rows.dtype.kind in "iub" or not rows.any():
        return rows, 1.0
    scale = 2.0 ** math.ceil(math.log2(float(np.abs(rows).max())))
    return rows / scale, scale
