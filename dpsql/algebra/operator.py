"""The list of questions every implicit matrix answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.records import cached_property, dataclass

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]


class Operator(ABC):
    """An implicit matrix Q of shape (rows, n); integer operators answer in exact integers.

    ``column_l1`` and ``column_l2sq`` are the sensitivity of one row of data: how much all answers
    together change when one unit is added to that cell.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Return (rows, n)."""

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """Return a content key, equal for two operators iff they represent the same rows alike."""

    @property
    def integer(self) -> bool:
        """Say whether every entry is an integer."""
        return True

    @abstractmethod
    def matmat(self, X: Array) -> Array:
        """Return Q X; X has shape (n, k)."""

    @abstractmethod
    def rmatmat(self, Y: Array) -> Array:
        """Return Q'Y; Y has shape (rows, k)."""

    @cached_property
    def n(self) -> int:
        """Return the number of columns (cells)."""
        return self.shape[1]

    @cached_property
    def rows(self) -> int:
        """Return the number of rows (queries)."""
        return self.shape[0]

    def apply(self, tensor: Array, axis: int) -> Array:
        """Contract one axis of a tensor with Q: that axis shrinks or grows from n to rows.

        Args:
            tensor: n entries along the axis.
            axis: the axis, from 0, or from -1 backwards.
        """
        axis %= tensor.ndim
        if tensor.shape[axis] != self.n:
            raise ValueError(f"axis {axis} has size {tensor.shape[axis]}, operator has {self.n}")
        before, after = tensor.shape[:axis], tensor.shape[axis + 1 :]
        slabs = tensor.reshape(_size(before), self.n, _size(after))
        return self.apply_slabs(slabs).reshape(*before, self.rows, *after)

    def apply_slabs(self, slabs: Array) -> Array:
        """Contract the middle axis of an array of shape (left, n, right)."""
        left, n, right = slabs.shape
        flat = slabs.transpose(1, 0, 2).reshape(n, left * right)
        return self.matmat(flat).reshape(self.rows, left, right).transpose(1, 0, 2)

    def gram(self) -> Floats:
        """Return Q'Q of shape (n, n)."""
        return np.asarray(self.gram_apply(np.eye(self.n)), dtype=np.float64)

    def gram_apply(self, X: Array) -> Array:
        """Return Q'Q X; X has shape (n, k)."""
        return self.rmatmat(self.matmat(X))

    def column_l1(self) -> Array:
        """Return the L1 norm of every column, shape (n,)."""
        return np.asarray(np.abs(self.dense()).sum(axis=0))

    def column_l2sq(self) -> Array:
        """Return the squared L2 norm of every column, shape (n,): the diagonal of the Gram."""
        return np.asarray(np.square(self.dense()).sum(axis=0))

    @property
    def l1(self) -> int | float:
        """Return the L1 sensitivity, an exact int for integer operators."""
        return _scalar(self.column_l1().max())

    @property
    def l2sq(self) -> int | float:
        """Return the squared L2 sensitivity, an exact int for integer operators."""
        return _scalar(self.column_l2sq().max())

    def row_sums(self) -> Array:
        """Return Q 1 of shape (rows,)."""
        ones = np.ones((self.n, 1), dtype=np.int64 if self.integer else np.float64)
        return self.matmat(ones)[:, 0]

    def frobenius2(self) -> float:
        """Return the squared Frobenius norm, the trace of the Gram."""
        return float(self.column_l2sq().sum(dtype=np.float64))

    @property
    def only_counts(self) -> bool:
        """True if its entries are 0 and 1, by the sums of its columns: nothing is written out.

        A whole number is its own square where it is 0 or 1, and less than it otherwise.
        """
        if not self.integer:
            return False
        sums = self.rmatmat(np.ones((self.rows, 1), dtype=np.int64))[:, 0]
        return np.array_equal(sums, self.column_l2sq())

    def dense(self) -> Array:
        """Return the explicit matrix, int64 when integer, else float64.

        It is asked for by its shorter side: a square of the longer one may not fit in memory.
        """
        kind = np.int64 if self.integer else np.float64
        if self.rows < self.n:
            return np.ascontiguousarray(self.rmatmat(np.eye(self.rows, dtype=kind)).T)
        return self.matmat(np.eye(self.n, dtype=kind))

    def take_columns(self, index: NDArray[np.integer[Any]]) -> Operator:
        """Return the operator of the chosen columns, rows unchanged.

        Args:
            index: (k,) the columns, in the order of those of the result.
        """
        if len(index) == self.n and np.array_equal(index, np.arange(self.n)):
            return self
        return Columns(self, np.asarray(index, dtype=np.int64))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operator) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, eq=False)
class Columns(Operator):
    """The chosen columns of an operator, in the order given; rows unchanged."""

    op: Operator
    index: NDArray[np.int64]

    def __post_init__(self) -> None:
        index = freeze(np.asarray(self.index, dtype=np.int64))
        if index.ndim != 1 or len(index) == 0:
            raise ValueError("at least one column must be chosen")
        if index.min() < 0 or index.max() >= self.op.n:
            raise ValueError(f"columns must lie within [0, {self.op.n})")
        object.__setattr__(self, "index", index)

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.op.rows, len(self.index)

    @cached_property
    def key(self) -> Hashable:
        return ("columns", self.op.key, self.index.tobytes())

    @property
    def integer(self) -> bool:
        return self.op.integer

    @property
    def permutes(self) -> bool:
        """Say whether every column is chosen exactly once."""
        return np.array_equal(np.sort(self.index), np.arange(self.op.n))

    def matmat(self, X: Array) -> Array:
        return self.op.matmat(self._scatter(X))

    def rmatmat(self, Y: Array) -> Array:
        return np.asarray(self.op.rmatmat(Y)[self.index])

    def gram(self) -> Floats:
        return self.op.gram()[np.ix_(self.index, self.index)]

    def gram_apply(self, X: Array) -> Array:
        return np.asarray(self.op.gram_apply(self._scatter(X))[self.index])

    def column_l1(self) -> Array:
        return np.asarray(self.op.column_l1()[self.index])

    def column_l2sq(self) -> Array:
        return np.asarray(self.op.column_l2sq()[self.index])

    def take_columns(self, index: NDArray[np.integer[Any]]) -> Operator:
        return self.op.take_columns(self.index[index])

    def _scatter(self, X: Array) -> Array:
        full = np.zeros((self.op.n, X.shape[1]), dtype=X.dtype)
        np.add.at(full, self.index, X)
        return full


def freeze(array: Array) -> Array:
    """Return a read-only C-contiguous copy of an array of any shape.

    >>> freeze(np.zeros(2)).flags.writeable
    False
    """
    copy = np.array(array, order="C")
    copy.setflags(write=False)
    return copy


def exact(array: Any) -> Array:
    """Return an array as int64 when every entry is an integer of at most 52 bits, else float64.

    Raises ValueError for NaN, infinity or entries that are not numbers.

    >>> exact([[1.0, 2.0]]).dtype, exact([[0.5]]).dtype
    (dtype('int64'), dtype('float64'))
    """
    given = np.asarray(array)
    if given.dtype.kind not in "biuf":
        raise ValueError(f"entries must be real numbers, not {given.dtype}")
    if given.dtype.kind == "b":
        return given.astype(np.int64)
    values = given.astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("entries must be finite")
    if (np.abs(values) < 2.0**52).all() and (values == np.rint(values)).all():
        return values.astype(np.int64)
    return values + 0.0


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _scalar(value: Any) -> int | float:
    return int(value) if np.issubdtype(type(value), np.integer) else float(value)


def Permuted(  # noqa: N802
    op: Operator, permutation: NDArray[np.integer[Any]]
) -> Operator:
    """Return an operator with its columns permuted: column j is column permutation[j] of ``op``.

    Args:
        permutation: (n,) every column of ``op`` once.

    Raises ValueError when the index is not a permutation of the columns.

    >>> from dpsql.algebra.blocks import Prefix
    >>> Permuted(Prefix(2), np.array([1, 0])).dense().tolist()
    [[0, 1], [1, 1]]
    """
    chosen = Columns(op, np.asarray(permutation, dtype=np.int64))
    if not chosen.permutes:
        raise ValueError(f"not a permutation of {op.n} columns")
    return op.take_columns(chosen.index)


@dataclass(frozen=True, eq=False)
class Weighted(Operator):
    """Every row of an operator multiplied by one positive weight."""

    op: Operator
    weight: int | float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.weight) and self.weight > 0):
            raise ValueError(f"weight must be positive and finite, not {self.weight}")

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.op.shape

    @cached_property
    def key(self) -> Hashable:
        return ("weighted", self.weight, self.op.key)

    @property
    def integer(self) -> bool:
        return self.op.integer and isinstance(self.weight, int)

    def matmat(self, X: Array) -> Array:
        return self.op.matmat(X) * self.weight

    def rmatmat(self, Y: Array) -> Array:
        return self.op.rmatmat(Y) * self.weight

    def apply_slabs(self, slabs: Array) -> Array:
        return self.op.apply_slabs(slabs) * self.weight

    def gram(self) -> Floats:
        return self.op.gram() * float(self.weight**2)

    def gram_apply(self, X: Array) -> Array:
        return self.op.gram_apply(X) * self.weight**2

    def column_l1(self) -> Array:
        return self.op.column_l1() * self.weight

    def column_l2sq(self) -> Array:
        return self.op.column_l2sq() * self.weight**2

    def take_columns(self, index: NDArray[np.integer[Any]]) -> Operator:
        return Weighted(self.op.take_columns(index), self.weight)
