"""Exact products of integer rows and private counts, in arithmetic that public facts alone choose.

How many limbs counts are split into, whether the products are int64 or Python integers and so how
long it takes follow from the rows, from the shape, and from ``most``, a public bound on one count.
No count decides. A count beyond the bound is taken to be the bound: |min(x, m) - min(y, m)| is at
most |x - y|, cell by cell, so neighbours come no further apart and every sensitivity holds for any
table. Products of int64 are exact modulo 2^64: noise is added modulo 2^64 too, so that what is
released is a function of exact product plus noise.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import has_one_cell_each
from dpsql.algebra.cores import run_on_cores
from dpsql.algebra.integer_rows import (
    STRUCTURED,
    IntegerRows,
    KronRows,
    Matrix,
    OrbitPart,
    OrbitRows,
    largest_entry,
    structured_of,
)
from dpsql.algebra.kron import Factor, contract, kron_apply
from dpsql.algebra.levels import Structured
from dpsql.algebra.orbits import Orbits
from dpsql.errors import InternalError
from dpsql.records import dataclass

Values = NDArray[Any]
Matrices = tuple[Matrix, ...]
EXACT_FLOAT = 2**53
"""Whole numbers below this are exact as doubles, in any order of addition."""
WRAPS = 2**62
"""Integers below this, and noise below it, add up within int64."""
MANY_ROWS = 2**31
"""Rows in one cell that are told apart: a count beyond is cut, which brings no two tables further
apart; to check the true number, or to refuse, would depend on rows (decision 34)."""
ANY = 2**63 - 1
"""The largest count there can be."""
LEAST_LIMB = 4
"""Bits below which splitting integers into limbs is no longer worth it."""
PIECE = 1 << 20
"""Numbers that are handled at once where a whole block would take too much memory."""


def checked(rows: object) -> IntegerRows:
    """Return rows if they are one of the two descriptions known here, over plain int64 arrays.

    A factor of a product may be structured, and is then made again from its numbers.

    Raises: InternalError (E_INTERNAL). Guarantee: a class derived from one of them is refused as
    well, so that no strategy multiplies counts by a method of its own.
    """
    arrays: list[tuple[object, int | None]] = [(None, None)]
    if type(rows) is KronRows:
        pairs = list(zip(rows.matrices, rows.sizes, strict=True))
        arrays = [(m, n) for m, n in pairs if m is not None and not isinstance(m, Structured)]
        if len(arrays) < len(pairs):
            rows = KronRows(tuple(_made_again(m, n) for m, n in pairs), rows.sizes)
    elif type(rows) is OrbitRows and all(type(each) is Orbits for each in rows.orbits):
        arrays = [(each.labels, None) for each in rows.orbits]
        arrays += [(p.rows if type(p) is OrbitPart else None, None) for p in rows.parts]
    if not all(_is_plain(array, columns) for array, columns in arrays):
        raise InternalError("E_INTERNAL", "rows of an unknown kind; nothing was measured")
    assert isinstance(rows, KronRows | OrbitRows)
    return rows


def _made_again(rows: Matrix, columns: int) -> Matrix:
    """Structured rows over so many cells from their numbers alone; others are returned as given.

    Raises: InternalError (E_INTERNAL) for what is of another class, or of numbers that do not fit.
    """
    if not isinstance(rows, Structured):
        return rows
    if type(rows) in STRUCTURED.values() and rows.size == columns:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return structured_of(rows.facts)
    raise InternalError("E_INTERNAL", "rows of an unknown kind; nothing was measured")


def _is_plain(array: object, columns: int | None) -> bool:
    """True if an array is one of numpy's own, of int64, with so many columns where that is told."""
    if type(array) is not np.ndarray or array.dtype != np.int64:
        return False
    return columns is None or (array.ndim == 2 and array.shape[1] == columns)


def working_shape(rows: KronRows) -> tuple[int, ...] | None:
    """The shape in which rows of many cells can take the place of their counts.

    None where they are not worked out slab by slab, or some axis has fewer rows than cells.
    """
    pairs = list(zip(rows.matrices, rows.sizes, strict=True))
    has_slabs = any(m is None for m, _ in pairs)
    has_room = all(m is None or m.shape[0] >= n for m, n in pairs)
    shape = tuple(n if m is None else m.shape[0] for m, n in pairs)
    return shape if has_slabs and has_room else None


def apply_rows(rows: IntegerRows, counts: NDArray[np.int64], most: int = ANY) -> Values:
    """Multiply counts by integer rows; int64, exact modulo 2^64.

    Floating point multiplication is used only where every partial sum of any counts is below 2^53,
    hence exact.

    Args:
        rows: integer rows, as a Kronecker product or as orbits.
        counts: one axis per attribute of the rows; counts may be at the beginning of each axis of
            an array of the shape ``working_shape``. The array may be used up.
        most: bound on the magnitude of every count.

    Returns: the answers of the rows, flat.
    """
    match rows:
        case KronRows(matrices):
            return _apply(matrices, counts, most, np.int64)
        case OrbitRows():
            return rows.apply(counts)


def apply_rows_unbounded(rows: IntegerRows, counts: NDArray[np.int64], most: int = ANY) -> Values:
    """Multiply as ``apply_rows`` does, but exactly: Python integers where int64 could wrap.

    Args:
        rows: integer rows, as a Kronecker product or as orbits.
        counts: one axis per attribute of the rows.
        most: bound on the magnitude of every count; it decides where int64 could wrap.

    Returns: the answers of the rows, flat.
    """
    match rows:
        case KronRows(matrices):
            return apply_unbounded(matrices, counts, most)
        case OrbitRows():
            return _apply_orbits(rows, counts, most)


def apply_unbounded(matrices: Matrices, counts: NDArray[np.int64], most: int = ANY) -> Values:
    """Multiply counts by matrices, axis by axis, exactly; ``None`` is the identity.

    Args:
        matrices: per axis (rows, cells), or None.
        counts: an axis per matrix.
        most: what no count exceeds in magnitude.
    """
    kind = np.int64 if largest_row_sum(matrices) * most < WRAPS else object
    return _apply(matrices, counts, most, kind)


def _apply_orbits(rows: OrbitRows, counts: NDArray[np.int64], most: int) -> Values:
    """Rows over orbits times counts, exact: Python integers where int64 could wrap."""
    reached, clipped = largest(rows) * rows.cells, np.clip(counts, -most, most)
    if reached * most < WRAPS:
        return rows.apply(clipped)
    width = (WRAPS // reached).bit_length() - 1
    if width < LEAST_LIMB:
        return rows.apply(clipped.astype(object))
    return _summed((shift, rows.apply(limb)) for shift, limb in _limbs(clipped, most, width))


def wrap_int64(drawn: Values) -> NDArray[np.int64]:
    """Integers of any size modulo 2^64, as int64.

    >>> wrap_int64(np.array([2**64 + 3, -5, 2**63], dtype=object)).tolist()
    [3, -5, -9223372036854775808]
    """
    if drawn.dtype != object:
        return drawn
    return np.array([(int(z) + 2**63) % 2**64 - 2**63 for z in drawn], dtype=np.int64)


def largest_row_sum(matrices: Iterable[Matrix]) -> int:
    """The largest sum of the magnitudes of a row of a Kronecker product; at least 1.

    Args:
        matrices: (rows, cells) of each attribute; None is the identity, whose row sums are 1.
    """
    return math.prod(max(1, _row_norm(rows)) for rows in matrices if rows is not None)


def largest(rows: IntegerRows) -> int:
    """The largest magnitude of an entry, or more."""
    match rows:
        case KronRows(matrices):
            return math.prod(largest_entry(m) for m in matrices if m is not None)
        case OrbitRows():
            return math.isqrt(rows.sensitivity()) + 1


def _row_norm(rows: NDArray[np.int64] | Structured) -> int:
    if isinstance(rows, Structured):
        return rows.reach
    magnitude = max(abs(int(rows.max(initial=0))), abs(int(rows.min(initial=0))))
    exact: Values = rows if magnitude * max(1, rows.shape[1]) < WRAPS else rows.astype(object)
    return int(np.abs(exact).sum(axis=1).max(initial=0))


def _apply(matrices: Matrices, counts: NDArray[np.int64], most: int, kind: type) -> Values:
    if all(rows is None for rows in matrices):
        return counts.astype(np.int64, copy=False).ravel()
    if any(rows is None for rows in matrices) and counts.size > PIECE and kind is np.int64:
        return _apply_slabs(matrices, counts, most)
    width = (EXACT_FLOAT // largest_row_sum(matrices)).bit_length() - 1
    if width < LEAST_LIMB or any(isinstance(rows, Structured) for rows in matrices):
        return _multiply_integers(matrices, np.clip(counts, -most, most), kind)
    factors = [
        rows.astype(np.float64) if isinstance(rows, np.ndarray) else None for rows in matrices
    ]
    if most < 1 << width:
        floats = [counts.astype(np.float64)]
        del counts  # and the list gives its only reference away: at most two tensors are alive
        np.clip(floats[0], -most, most, out=floats[0])
        return _to_integers(kron_apply(factors, floats.pop())).astype(kind, copy=False)
    products = (
        (shift, _to_integers(kron_apply(factors, limb.astype(np.float64))))
        for shift, limb in _limbs(np.clip(counts, -most, most), most, width)
    )
    return _summed(products, kind)


def _apply_slabs(matrices: Matrices, counts: NDArray[np.int64], most: int) -> Values:
    """Apply a Kronecker product slab by slab of an axis that it leaves as it is.

    Beside counts and rows, only what is worked out of one slab is in memory; rows take the place
    of counts that have room for them.
    """
    sizes = [n if m is None else m.shape[1] for m, n in zip(matrices, counts.shape, strict=True)]
    shape = [n if m is None else m.shape[0] for m, n in zip(matrices, counts.shape, strict=True)]
    out = counts if counts.shape == tuple(shape) else np.empty(shape, dtype=np.int64)
    counts = counts[tuple(map(slice, sizes))]
    axis = max((k for k, rows in enumerate(matrices) if rows is None), key=sizes.__getitem__)
    parts, ones = [_parts(rows) for rows in matrices], np.ones((1,) * out.ndim, dtype=np.int64)
    lead, step = (slice(None),) * axis, max(1, PIECE // (counts.size // sizes[axis]))
    kind = np.float64 if most < EXACT_FLOAT else np.int64

    def put(starts: Sequence[int]) -> None:
        memory = np.empty((*sizes[:axis], step, *sizes[axis + 1 :]), dtype=kind)
        for start in starts:
            slab = counts[(*lead, slice(start, start + step))]
            clipped = memory[(*lead, slice(0, slab.shape[axis]))]  # the same memory for all slabs
            np.clip(slab, -most, most, out=clipped, casting="unsafe")
            _put_rows(out[(*lead, slice(start, start + step))], clipped, most, parts, ones)

    run_on_cores(put, range(0, sizes[axis], step))
    return out.ravel()


@dataclass(frozen=True, slots=True)
class _RowPart:
    """Some rows of a matrix: each a multiple of the cell at its place, or else any rows."""

    where: slice
    multiples: NDArray[np.int64] | None
    rows: Matrix = None


def _parts(rows: Matrix) -> list[_RowPart]:
    """Rows in one part or two: those of single cells at the top, and others.

    Sums of the others alone are far smaller than of all, so that doubles are exact for them.
    """
    if rows is None:
        return [_RowPart(slice(None), np.ones(1, dtype=np.int64))]
    if isinstance(rows, Structured):
        return [_RowPart(slice(None), None, rows)]
    count, columns = rows.shape
    top = columns if count >= columns and has_one_cell_each(rows[:columns]) else 0
    above = _RowPart(slice(0, top), rows.diagonal()[:top])
    below = _RowPart(slice(top, None), None, rows[top:])
    return [*([above] if top else []), *([below] if top < count else [])]


def _put_rows(
    out: NDArray[np.int64],
    tensor: Values,
    most: int,
    parts: list[list[_RowPart]],
    multiples: NDArray[np.int64],
    axis: int = 0,
) -> None:
    """Write the rows of a product over a tensor, from one axis on, times multiples of what is left.

    ``tensor`` has doubles below ``most`` where that is below 2^53, else int64 modulo 2^64;
    ``multiples`` broadcast to its shape.
    """
    if axis == tensor.ndim:
        np.multiply(tensor, multiples, out=out, dtype=np.int64, casting="unsafe")
        return
    for part in parts[axis]:
        place = out[(*(slice(None),) * axis, part.where)]
        if part.multiples is None:
            found, bound = _contract(part.rows, tensor, most, axis)
            _put_rows(place, found, bound, parts, multiples, axis + 1)
        else:
            own = part.multiples.reshape((-1,) + (1,) * (tensor.ndim - axis - 1))
            _put_rows(place, tensor, most, parts, multiples * own, axis + 1)


def _contract(rows: Matrix, tensor: Values, most: int, axis: int) -> tuple[Values, int]:
    """Contract an axis with rows: what is found, as ``_put_rows`` takes it, and its bound."""
    bound = most * largest_row_sum([rows])
    if isinstance(rows, np.ndarray) and tensor.dtype == np.float64 and bound < EXACT_FLOAT:
        return contract(rows.astype(np.float64), tensor, axis), bound
    integers, width = (
        tensor.astype(np.int64),
        (EXACT_FLOAT // largest_row_sum([rows])).bit_length() - 1,
    )
    if width < LEAST_LIMB or not isinstance(rows, np.ndarray):
        assert rows is not None
        return contract(rows, integers, axis), ANY
    floats = rows.astype(np.float64)
    limbs = _limbs(integers, most, width)
    products = (
        (s, _to_integers(contract(floats, each.astype(np.float64), axis))) for s, each in limbs
    )
    shape = (*tensor.shape[:axis], len(rows), *tensor.shape[axis + 1 :])
    return _summed(products, np.int64).reshape(shape), min(bound, ANY)


def _limbs(
    counts: NDArray[np.int64], most: int, width: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield (shift, limb): counts of at most ``most`` are the sum of limbs << shift.

    Each is at most 2^width. The last limb has the sign. There are as many as ``most`` takes,
    whatever the counts are.
    """
    rest, shift = counts, 0
    while shift + width < most.bit_length():
        yield shift, rest & ((1 << width) - 1)
        rest = rest >> width
        shift += width
    yield shift, rest


def _summed(parts: Iterable[tuple[int, Values]], kind: type = object) -> Values:
    out: Values | None = None
    for shift, part in parts:
        own: Values = part.astype(kind, copy=False)
        own <<= shift
        out = own if out is None else np.add(out, own, out=out)
    assert out is not None
    return out


def _multiply_integers(matrices: Matrices, counts: NDArray[np.int64], kind: type) -> Values:
    factors: list[Factor] = [
        rows.astype(kind) if isinstance(rows, np.ndarray) else rows for rows in matrices
    ]
    return np.asarray(kron_apply(factors, counts.astype(kind))).ravel()


def _to_integers(tensor: NDArray[np.float64]) -> NDArray[np.int64]:
    """Turn whole floats into integers within the same memory, flat."""
    floats = np.ascontiguousarray(tensor).ravel()
    integers = floats.view(np.int64)
    for start in range(0, floats.size, PIECE):
        piece = slice(start, start + PIECE)
        integers[piece] = floats[piece].astype(np.int64)
    return integers
