"""Few queries of which many are alike: what treats those alike splits into a few small matrices.

Combinations of queries are matrices of queries by queries. Pairs of queries that a workload does
not tell apart are of one kind, and matrices with one number for every kind are closed under
products: they have one form of blocks, so that what takes the cube of hundreds of queries takes
that of one to ten. A descent among them changes a few dozen numbers.

Source: kinds of pairs are a coherent configuration, found by refining colours (Weisfeiler and Leman
1968); blocks are eigenspaces of an element at random (Murota et al. 2010).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats, Integers
from dpsql.records import dataclass
from dpsql.search.work_limit import EIGEN, spend

MOST_KINDS = 256
"""Most kinds of pairs: blocks have as many numbers, and each is a sum over all kinds."""

MOST_FORMS = 1 << 13
"""Most kinds of a row and a cell, each of which is a sum over all kinds of pairs."""

MARKS = 1 << 20
"""Numbers at random that kinds are told by: sums of products of them are whole, and exact."""

EXACT = 2.0**53
"""Whole numbers from which on sums are rounded."""

CALM = 2
"""Times in a row that nothing was told apart, with new numbers each, for kinds to be final."""

SAME = 1e-9
"""Relative difference of weights, or of eigenvalues, that are the same."""

SPREAD = 0.75
"""Power of how often a kind occurs that its numbers are divided by: descents are shortest there,
and come to one and the same optimum from most starts."""

SEED = 20
"""Of numbers at random, which tell what is the same from what is not: equal plans every time."""


@dataclass(frozen=True, slots=True)
class SymmetricPart:
    """One block of what treats alike queries alike, which occurs ``copies`` times.

    With t a number for every kind of pair, the block is ``kinds @ t``, (k, k). ``root`` (k, r) are
    the queries in it, and ``asked`` (queries of a sort, r, r) what their variances add up.
    """

    kinds: Floats
    root: Floats
    asked: Floats
    copies: int


@dataclass(frozen=True, slots=True)
class SymmetricQueries:
    """Queries by sort: ``kinds`` (m, m) says of which kind a pair is, ``sorts`` which of a query.

    ``diagonal`` is the kind of a query with itself, per sort. What a row has in a cell is, with t a
    number per kind, one of ``forms @ t``, of which a column of a kind has ``counts``; ``starts``
    are where the forms of each kind of column begin. Blocks and forms are of queries over their
    ``sizes`` (m,), the largest number of any of their sort: sums of money are thousands of times
    counts, whose squares are rounding beside theirs.
    """

    kinds: NDArray[np.intp]
    sorts: NDArray[np.intp]
    diagonal: NDArray[np.intp]
    parts: tuple[SymmetricPart, ...]
    forms: Floats
    counts: Floats
    starts: NDArray[np.intp]
    sizes: Floats

    @property
    def size(self) -> int:
        """Return the number of kinds of pairs."""
        return int(self.forms.shape[1])

    @property
    def rank(self) -> int:
        """Return how many of the queries are independent."""
        return sum(part.copies * part.root.shape[1] for part in self.parts)

    @property
    def spread(self) -> Floats:
        """Return how large a change of the number of every kind is to be, beside the others."""
        counts = np.bincount(self.kinds.ravel()) / len(self.kinds)
        return np.asarray(counts**-SPREAD)

    @property
    def cost(self) -> float:
        """Return the products of numbers that it takes to see one combination."""
        return float(2 * self.forms.size + sum(4 * part.kinds.size for part in self.parts))


def find_alike(asked: Floats, weights2: Floats) -> SymmetricQueries | None:
    """Return which whole distinct queries (m, n) are alike, None where too few are.

    ``weights2`` (m,) are the sums of their squared weights.
    """
    queries = np.ldexp(asked, _places(asked))
    m, largest = len(queries), float(np.abs(queries).max())
    if m * max(largest * MARKS, largest**2) >= EXACT or m * float(MARKS) ** 2 >= EXACT:
        return None
    rng = np.random.default_rng(SEED)
    kinds = _kinds(queries, weights2, rng)
    if kinds is None:
        return None
    spend(float(m) ** 2 * (EIGEN * m + queries.shape[1]))
    diagonal, sorts = np.unique(kinds.diagonal(), return_inverse=True)
    by_sort = np.zeros(len(diagonal))
    np.maximum.at(by_sort, sorts, np.abs(asked).max(axis=1))
    sizes = by_sort[sorts]
    parts = _parts(asked / sizes[:, np.newaxis], kinds, rng)
    forms = _forms(queries, kinds, rng)
    if parts is None or forms is None:
        return None
    units = np.empty(int(kinds.max()) + 1)
    units[kinds] = np.abs(asked).max() / largest / sizes
    return SymmetricQueries(kinds, sorts, diagonal, parts, forms[0] * units, *forms[1:], sizes)


def _places(queries: Floats) -> int:
    """Return by how many binary places queries are to be shifted to be whole."""
    return next(p for p in range(64) if np.array_equal(np.ldexp(queries, p) % 1, 0 * queries))


def _kinds(queries: Floats, weights2: Floats, rng: np.random.Generator) -> NDArray[np.intp] | None:
    """Return the kind of every pair of queries, None where these are too many."""
    m = len(queries)
    weights = _classes(weights2)
    count = int(weights.max()) + 1
    if max(count, len(np.unique(np.square(queries).sum(axis=1)))) > MOST_KINDS:
        return None
    _, found = np.unique(queries @ queries.T, return_inverse=True)
    kinds = found.reshape(m, m) * count + weights[:, np.newaxis]
    kinds = (kinds * count + weights) * 2 + np.eye(m, dtype=np.int64)
    kinds, calm = _numbered(kinds), 0
    while calm < CALM:
        count = int(kinds.max()) + 1
        if count > MOST_KINDS:
            return None
        spend(float(m) ** 3)
        one, other = rng.integers(1, MARKS, (2, count)).astype(np.float64)
        sums = (one[kinds] @ other[kinds]).astype(np.int64)
        kinds = _numbered(_numbered(sums) * count + kinds)
        calm = calm + 1 if int(kinds.max()) + 1 == count else 0
    return kinds


def _numbered(values: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return equal numbers as equal ones from zero on."""
    _, found = np.unique(values, return_inverse=True)
    return found.reshape(values.shape)


def _classes(values: Floats) -> NDArray[np.intp]:
    """Return which positive numbers are the same."""
    order = np.argsort(values)
    rises = np.diff(values[order]) > SAME * values[order][1:]
    found = np.empty(len(values), dtype=np.intp)
    found[order] = np.concatenate([[0], np.cumsum(rises)])
    return found


def _parts(
    queries: Floats, kinds: NDArray[np.intp], rng: np.random.Generator
) -> tuple[SymmetricPart, ...] | None:
    """Return the blocks that queries are in, None where rounding does not tell them apart."""
    size = int(kinds.max()) + 1
    gram = queries @ queries.T
    diagonal = np.unique(kinds.diagonal())
    probe = rng.standard_normal(size)
    left = float(np.square(probe[kinds]).sum())
    out = []
    for vectors, copies in _spaces(kinds, rng):
        tensor = _block(kinds, vectors)
        left -= copies * float(np.square(tensor @ probe).sum())
        values, turned = np.linalg.eigh(vectors.T @ gram @ vectors)
        kept = values > SAME * np.abs(gram).max()
        if kept.any():
            root = turned[:, kept] * np.sqrt(values[kept])
            asked = np.einsum("ia,ijs,jb->sab", root, tensor[:, :, diagonal], root)
            out.append(SymmetricPart(tensor, root, asked, copies))
    # The blocks must hold all of a random invariant matrix: otherwise two of them were taken for
    # one.
    return tuple(out) if abs(left) <= 1e-6 * np.square(probe[kinds]).sum() else None


def _spaces(kinds: NDArray[np.intp], rng: np.random.Generator) -> list[tuple[Floats, int]]:
    """Return one vector of every copy of a block, (m, k), and how often it occurs, per block."""
    symmetric, other = rng.standard_normal((2, int(kinds.max()) + 1))
    values, vectors = np.linalg.eigh(symmetric[kinds] + symmetric[kinds].T)
    cuts = np.flatnonzero(np.diff(values) > SAME * np.abs(values).max()) + 1
    spaces = np.split(np.arange(len(values)), cuts)
    crossed = vectors.T @ (other[kinds] @ vectors)
    least = SAME * float(np.abs(crossed).max())
    out = []
    while spaces:
        first, *rest = spaces
        spaces, chosen = [], [vectors[:, first[0]]]
        for space in rest:
            block = crossed[np.ix_(first[:1], space)][0]
            size = float(np.linalg.norm(block))
            if len(space) == len(first) and size > least:
                chosen.append(vectors[:, space] @ (block / size))
            else:
                spaces.append(space)
        out.append((np.array(chosen).T, len(first)))
    return out


def _block(kinds: NDArray[np.intp], vectors: Floats) -> Floats:
    """Return what every kind is between some vectors that it maps to each other, (k, k, kinds)."""
    k, size = vectors.shape[1], int(kinds.max()) + 1
    left, places = vectors.copy(), []
    for _ in range(k):  # rows that tell the vectors apart
        place = int(np.square(left).sum(axis=1).argmax())
        unit = left[place] / np.linalg.norm(left[place])
        left = left - np.outer(left @ unit, unit)
        places.append(place)
    sums = [[np.bincount(kinds[i], vectors[:, b], size) for b in range(k)] for i in places]
    return np.asarray(np.tensordot(np.linalg.inv(vectors[places]), np.array(sums), axes=1))


def _forms(
    queries: Floats, kinds: NDArray[np.intp], rng: np.random.Generator
) -> tuple[Floats, Floats, NDArray[np.intp]] | None:
    """Return what rows have in cells, how often, and where each kind of column begins.

    None where these are too many. Columns with equal numbers at random are of one kind.
    """
    size = int(kinds.max()) + 1
    marks = rng.integers(1, MARKS, size).astype(np.float64)
    values = np.abs(marks[kinds] @ queries).T
    _, first = np.unique(np.sort(values, axis=1), axis=0, return_index=True)
    forms: list[Floats] = []
    counts: list[Integers] = []
    starts = []
    for cell in first:
        _, rows, count = np.unique(values[cell], return_index=True, return_counts=True)
        starts.append(sum(map(len, counts)))
        if starts[-1] + len(rows) > MOST_FORMS:
            return None
        asked = np.flatnonzero(queries[:, cell])
        weights = queries[asked, cell]
        for row in rows:
            forms.append(np.bincount(kinds[row, asked], weights, size).astype(np.float64))
        counts.append(count)
    return np.array(forms), np.concatenate(counts).astype(np.float64), np.array(starts)
