"""Sensitivity of the answers to candidates to one row, from their own integer rows.

A candidate is a sum of Kronecker products with equally many rows, or a pattern of cells. What one
row of data in cell j adds is column j, and its norm is the product, over attributes, of norms of
factor columns: joint sensitivities are maxima of sums of such products, found exactly where the
cells can be listed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Operator
from dpsql.errors import InternalError
from dpsql.records import dataclass
from dpsql.strategy.noise_law import Norm
from dpsql.workload.term import MAX_CELLS, Pattern
from dpsql.workload.workload import Product

WEIGHT_BITS = 10
"""Bits of the largest weight of a candidate."""
SCORES = 2**61 - 1
"""The largest magnitude of a score, which makes room for differences of two in int64."""
CLIP = float(2**40)
"""Numbers of larger magnitude are cut to it."""


def integer_weights(weights: Sequence[Fraction] | None, size: int) -> list[int]:
    """Round weights to whole numbers of at most WEIGHT_BITS bits, in proportion.

    >>> integer_weights([Fraction(1), Fraction(1, 2)], 2), integer_weights(None, 2)
    ([1024, 512], [1, 1])
    """
    if weights is None:
        return [1] * size
    largest = max(weights, default=Fraction(0))
    if len(weights) != size or largest <= 0 or min(weights) < 0:
        raise misused()
    top = 1 if min(weights) == largest else 2**WEIGHT_BITS
    return [round(Fraction(weight) * top / largest) for weight in weights]


def integer_penalties(penalties: Sequence[float] | None, size: int) -> list[int]:
    """Round penalties to whole numbers.

    >>> integer_penalties([0.4, 2.6], 2)
    [0, 3]
    """
    if penalties is None:
        return [0] * size
    found = integer_answers(np.asarray(penalties, dtype=np.float64))
    if found.size != size:
        raise misused()
    return [int(each) for each in found]


def integer_answers(answers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round public numbers to whole ones, flat.

    Args:
        answers: any shape, finite.

    Returns: (size,), cut off at a public magnitude.

    Raises: InternalError unless they are finite.

    >>> integer_answers(np.array([1.4, -2.6])).tolist()
    [1, -3]
    """
    found = np.asarray(answers, dtype=np.float64).ravel()
    if not np.isfinite(found).all():
        raise misused()
    return np.rint(np.clip(found, -CLIP, CLIP)).astype(np.int64)


def integer_lists(
    answers: Sequence[NDArray[np.float64]], sizes: Sequence[int]
) -> list[NDArray[np.int64]]:
    """Round lists of public numbers to whole ones.

    Args:
        answers: lists of any length, all finite.
        sizes: lengths that are due.

    Raises: InternalError unless sizes are right and numbers finite.

    >>> [each.tolist() for each in integer_lists([np.array([0.6]), np.array([1.0, 2.4])], [1, 2])]
    [[1], [1, 2]]
    """
    flat = [np.ravel(each) for each in answers]
    if [each.size for each in flat] != list(sizes):
        raise misused()
    together = integer_answers(np.concatenate(flat))
    ends = np.cumsum(sizes).tolist()
    return [together[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def cut_score(score: int) -> int:
    """Return a score within SCORES: cutting brings those of neighbours no further apart.

    >>> cut_score(-3), cut_score(10**30) == SCORES
    (-3, True)
    """
    return min(max(score, -SCORES), SCORES)


def root_down(value: Fraction) -> Fraction:
    """Return a fraction whose square is at most a positive value, and nearly it.

    >>> root_down(Fraction(9, 4)), root_down(Fraction(2)) ** 2 <= 2
    (Fraction(3, 2), True)
    """
    # So many bits that the root has 40 at least: less than 2^-39 of it is rounded away.
    shift = max(0, 80 - value.numerator.bit_length() + value.denominator.bit_length()) // 2 + 1
    return Fraction(math.isqrt((value.numerator << 2 * shift) // value.denominator), 1 << shift)


def misused() -> InternalError:
    """Return the error for a look that cannot be taken."""
    return InternalError("E_INTERNAL", "a look was asked for in a way that makes no sense")


Integers = NDArray[Any]

LISTED = 1 << 20
"""Cells that are listed at once; beyond, maxima of groups are added up, which is never less."""
LARGEST = 1 << 26
"""Entries of one factor."""


@dataclass(frozen=True, slots=True)
class ProductRows:
    """The integer rows of one product: a matrix per attribute, None for the identity.

    ``cell`` is the only cell that a single row counts, where it is such a row. A ``pattern`` has no
    matrices: every row of data is counted at most once, so all its norms are at most one.
    """

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]
    matrices: tuple[NDArray[np.int64] | None, ...]
    rows: int
    cell: tuple[int, ...] | None
    pattern: Pattern | None = None

    def norms(self, norm: Norm) -> list[Integers]:
        """The norm of every column of every factor, as exact integers."""
        pairs = zip(self.matrices, self.sizes, strict=True)
        return [_ones(n) if matrix is None else column_norms(matrix, norm) for matrix, n in pairs]


@dataclass(frozen=True, slots=True)
class Factor:
    """One operator as integer rows, None for the identity; ``only`` is the cell of a single one."""

    operator: Operator
    n: int
    rows: int
    matrix: NDArray[np.int64] | None
    only: int | None


class Reader:
    """Reads candidates over one domain; each candidate and each factor is read once."""

    def __init__(self, domain: Mapping[str, int]) -> None:
        self.domain = dict(domain)
        self._places = {name: place for place, name in enumerate(self.domain)}
        self._factors: dict[int, Factor] = {}
        self._pieces: dict[int, tuple[Sequence[Product] | Pattern, tuple[ProductRows, ...]]] = {}
        self._largest: dict[int, tuple[tuple[ProductRows, ...], int]] = {}

    def read(self, candidate: Sequence[Product] | Pattern) -> tuple[ProductRows, ...]:
        """Return the integer rows of a candidate, attributes in domain order.

        Raises: InternalError (E_INTERNAL) unless they are integers, fit the domain and each other.
        """
        known = self._pieces.get(id(candidate))
        if known is None:
            pieces: tuple[ProductRows, ...]
            if isinstance(candidate, Pattern):
                pieces = (self._read_pattern(candidate),)
            else:
                pieces = tuple([self._read_product(product) for product in candidate])
            if not pieces or any(piece.rows != pieces[0].rows for piece in pieces):
                raise unfit()
            known = candidate, pieces  # the candidate is kept alive, so its id stays its own
            self._pieces[id(candidate)] = known
        return known[1]

    def largest_column(self, pieces: tuple[ProductRows, ...]) -> int:
        """Return the largest L1 norm of a column of one candidate, as ``largest_column`` does."""
        known = self._largest.get(id(pieces))
        if known is None:
            known = pieces, largest_column(pieces, self.domain)  # held, as above
            self._largest[id(pieces)] = known
        return known[1]

    def _read_pattern(self, given: Pattern) -> ProductRows:
        """A copy of a pattern, whose truth is yes or no for each class of every cell."""
        labels = {name: np.array(each) for name, each in given.labels.items()}
        truth = np.array(given.truth)
        if truth.dtype != np.bool_ or truth.ndim != len(labels) or not 0 < truth.size <= MAX_CELLS:
            raise unfit()
        for (name, each), size in zip(labels.items(), truth.shape, strict=True):
            fits = each.dtype == np.int64 and each.shape == (self.domain.get(name),)
            if not fits or each.min() < 0 or each.max() >= size:
                raise unfit()
        return ProductRows(tuple(labels), (), (), 1, None, Pattern(labels, truth))

    def _read_product(self, product: Product) -> ProductRows:
        factors = product.factors
        if not factors.keys() <= self._places.keys():
            raise unfit()
        names = tuple(sorted(factors, key=self._places.__getitem__))
        sizes, matrices, places, rows = [], [], [], 1
        for name in names:
            factor = self._read_factor(factors[name])
            if factor.n != self.domain[name]:
                raise unfit()
            sizes.append(factor.n)
            matrices.append(factor.matrix)
            rows *= factor.rows
            if factor.only is not None:
                places.append(factor.only)
        cell = tuple(places) if len(places) == len(names) else None
        return ProductRows(names, tuple(sizes), tuple(matrices), rows, cell)

    def _read_factor(self, operator: Operator) -> Factor:
        known = self._factors.get(id(operator))
        if known is None:
            rows = integer_rows(operator)
            known = Factor(operator, operator.n, operator.rows, rows, _only_cell(rows))  # held
            self._factors[id(operator)] = known
        return known


def integer_rows(operator: Operator) -> NDArray[np.int64] | None:
    """Return a factor's rows, read-only; None for the identity. Raises: InternalError.

    >>> integer_rows(Identity(3)) is None
    True
    """
    if isinstance(operator, Identity):
        return None
    if not operator.integer or not 0 < operator.rows * operator.n <= LARGEST:
        raise unfit()
    rows = np.array(operator.dense())
    if rows.dtype.kind not in "iu" or rows.shape != operator.shape:
        raise unfit()
    rows = rows.astype(np.int64)
    rows.flags.writeable = False
    return rows


def _only_cell(rows: NDArray[np.int64] | None) -> int | None:
    """The place of the one in a single row of zeros and a one."""
    if rows is None or len(rows) > 1:
        return None
    (places,) = np.nonzero(rows[0])
    return int(places[0]) if places.size == 1 and rows[0, places[0]] == 1 else None


def column_norms(rows: NDArray[np.int64], norm: Norm) -> Integers:
    """Return the L1 or squared L2 norm of every column; Python integers where int64 could wrap.

    Args:
        rows: (r, n), integers.
        norm: 1 for the sum of magnitudes, 2 for the sum of squares.

    Returns: (n,).
    """
    largest = max(abs(int(rows.max())), abs(int(rows.min())))
    # A norm that wrapped would be too small, and noise with it: Python integers near the end.
    exact: Integers = rows if largest**2 * len(rows) < 2**62 else rows.astype(object)
    found = np.abs(exact) if norm == 1 else exact * exact
    return np.asarray(found.sum(axis=0))


def joint_norm(
    candidates: Iterable[tuple[ProductRows, ...]], domain: Mapping[str, int], norm: Norm
) -> int:
    """Return the largest norm of a column of all candidates' rows together; at least 1.

    Exact when products of a candidate touch different cells and all attributes whose columns
    differ have at most LISTED cells together.

    Args:
        candidates: products of rows of each query that is measured together.
        domain: cells of each attribute.
        norm: 1 for L1, 2 for squared L2.

    Guarantee: never less than what one row of data can change, in the L1 norm (1) or the squared
    L2 norm (2), computed in integers from the rows that are measured.
    """
    constant = 0
    groups: dict[tuple[str, ...], list[tuple[int, list[Integers]]]] = {}
    for pieces in candidates:
        # Columns of k products in one cell: |a+..+b| <= |a|+..+|b|, (a+..+b)^2 <= k(a^2+..+b^2).
        factor = 1 if norm == 1 or are_disjoint(pieces) else len(pieces)
        for piece in pieces:
            norms = piece.norms(norm)
            if all(each.min() == each.max() for each in norms):
                constant += factor * math.prod(int(each[0]) for each in norms)
            else:
                groups.setdefault(piece.attributes, []).append((factor, norms))
    clusters = _gather(groups, domain)
    return max(1, constant + sum(_largest(names, groups, domain) for names in clusters))


def largest_column(pieces: tuple[ProductRows, ...], domain: Mapping[str, int]) -> int:
    """Return the largest L1 norm of a column of one candidate, exact as ``joint_norm`` is."""
    if len(pieces) > 1:
        return joint_norm([pieces], domain, 1)
    if pieces[0].cell is not None:
        return 1
    return math.prod(int(each.max()) for each in pieces[0].norms(1))


def are_disjoint(pieces: Sequence[ProductRows]) -> bool:
    """Say whether no two products have a non-zero column in common."""
    return all(_apart(one, two) for i, one in enumerate(pieces) for two in pieces[i + 1 :])


def _apart(one: ProductRows, two: ProductRows) -> bool:
    found = dict(zip(two.attributes, two.matrices, strict=True))
    for name, rows in zip(one.attributes, one.matrices, strict=True):
        other = found.get(name)
        if rows is not None and other is not None and not (rows.any(0) & other.any(0)).any():
            return True
    return False


def _gather(
    groups: Iterable[tuple[str, ...]], domain: Mapping[str, int]
) -> list[list[tuple[str, ...]]]:
    """Put sets of attributes together while all their cells can be listed."""
    clusters: list[tuple[frozenset[str], list[tuple[str, ...]]]] = []
    for names in sorted(groups, key=lambda names: (-_cells(names, domain), names)):
        for i, (union, members) in enumerate(clusters):
            if _cells(union | set(names), domain) <= LISTED:
                clusters[i] = union | set(names), [*members, names]
                break
        else:
            clusters.append((frozenset(names), [names]))
    return [members for _, members in clusters]


def _largest(
    members: Sequence[tuple[str, ...]],
    groups: Mapping[tuple[str, ...], list[tuple[int, list[Integers]]]],
    domain: Mapping[str, int],
) -> int:
    """Return the largest sum of norms over the cells of all these attributes together."""
    found = [(names, factor, norms) for names in members for factor, norms in groups[names]]
    bound = sum(f * math.prod(int(each.max()) for each in norms) for _, f, norms in found)
    used = tuple(name for name in domain if any(name in names for names in members))
    if _cells(used, domain) > LISTED:
        return bound
    # No sum exceeds the bound, so that int64 is exact below it.
    kind: Any = np.int64 if bound < 2**62 else object
    total = np.zeros([domain[name] for name in used], dtype=kind)
    for names, factor, norms in found:
        of = dict(zip(names, norms, strict=True))
        places = [np.flatnonzero(of[n]) if n in of else np.arange(domain[n]) for n in used]
        parts = [
            of[n][place].astype(kind) if n in of else _ones(1)
            for n, place in zip(used, places, strict=True)
        ]
        total[np.ix_(*places)] += factor * reduce(np.multiply, np.ix_(*parts))
    return int(total.max())


def _cells(names: Iterable[str], domain: Mapping[str, int]) -> int:
    return math.prod(domain[name] for name in names)


def _ones(size: int) -> Integers:
    return np.ones(size, dtype=np.int64)


def unfit() -> InternalError:
    """Return the error for a candidate that cannot be asked for."""
    return InternalError("E_INTERNAL", "a candidate has integer rows over the domain")
