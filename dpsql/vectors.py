"""Vectors: the values of a column of a result, from noise to those who write or fetch them.

Keys repeat, so that a vector may keep distinct values and the place of each row's among them;
numbers are arrays. Python's objects are made of a batch of rows at a time, for who asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from dpsql.records import dataclass

BATCH = 1 << 14
"""Rows of which Python objects are made at a time."""

LARGEST = 2.0**62
"""Doubles below this are 64 bit integers once they are rounded."""

_NONE = type(None)


@dataclass(frozen=True, slots=True, eq=False)
class Vector(Sequence[Any]):
    """A column: as a sequence, the Python value of every row, None for NULL.

    ``values`` are doubles, 64 bit integers or a tuple of objects, of which None is NULL;
    ``missing`` says which of an array are NULL, None where none is. ``places`` (rows,) are the
    places of the rows' values among them; None where every row has one of its own, in order.
    """

    values: NDArray[Any] | tuple[Any, ...]
    missing: NDArray[np.bool_] | None = None
    places: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, values: Iterable[Any], places: NDArray[np.int32] | None = None) -> Vector:
        """Python's values as a vector: an array where all are doubles, or 64 bit integers.

        Args:
            values: None is NULL.
            places: (rows,), the value of each row among ``values``; None where rows and values are
                one to one.

        >>> Vector.of([1, None]).values.dtype, Vector.of([2**64, 1]).values, Vector.of([.5, None])
        (dtype('int64'), (18446744073709551616, 1), (0.5, None))
        """
        if isinstance(values, Vector) and places is None:
            return values
        listed = values if isinstance(values, list | tuple) else list(values)
        kinds = set(map(type, listed))
        missing = None
        if _NONE in kinds and kinds <= {int, float, _NONE}:
            missing = np.fromiter((each is None for each in listed), np.bool_, len(listed))
        if kinds <= {float, _NONE}:
            return cls(np.array(listed, dtype=np.float64), missing, places)
        if kinds <= {int, _NONE}:
            whole = listed if missing is None else [0 if each is None else each for each in listed]
            try:
                return cls(np.array(whole, dtype=np.int64), missing, places)
            except OverflowError:
                pass
        return cls(tuple(listed), None, places)

    @classmethod
    def finite(cls, values: NDArray[np.float64]) -> Vector:
        """Doubles (rows,) as a vector; what is not finite is NULL.

        Args:
            values: (rows,); infinite and NaN ones are kept, but marked as missing.
        """
        known = np.isfinite(values)
        return cls(values, None if known.all() else ~known)

    @classmethod
    def joined(cls, vectors: Sequence[Vector]) -> Vector:
        """Vectors one after the other.

        Args:
            vectors: at least one; arrays of one type stay arrays, others become a tuple.

        >>> one = Vector(("a", "b"), None, np.array([1, 1, 0], dtype=np.int32))
        >>> [*Vector.joined([one, Vector.of([1, None])])]
        ['b', 'b', 'a', 1, None]
        """
        if len(vectors) == 1:
            return vectors[0]
        arrays = [each.values for each in vectors if isinstance(each.values, np.ndarray)]
        if len(arrays) == len(vectors) and len({each.dtype for each in arrays}) == 1:
            values: NDArray[Any] | tuple[Any, ...] = np.concatenate(arrays)
            missing = np.concatenate([each._holes() for each in vectors])
        else:
            values = tuple(itertools.chain.from_iterable(each.distinct() for each in vectors))
            missing = None
        if all(each.places is None for each in vectors):
            return cls(values, missing)
        starts = itertools.accumulate((len(each.values) for each in vectors), initial=0)
        places = [
            start + (np.arange(len(each)) if each.places is None else each.places)
            for start, each in zip(starts, vectors, strict=False)
        ]
        return cls(values, missing, np.concatenate(places).astype(np.int32))

    def __len__(self) -> int:
        return len(self.values) if self.places is None else len(self.places)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> Vector: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            if self.places is not None:
                return Vector(self.values, self.missing, self.places[row])
            missing = None if self.missing is None else self.missing[row]
            return Vector(self.values[row], missing)
        place = row if self.places is None else self.places[row]
        if self.missing is not None and self.missing[place]:
            return None
        found = self.values[place]
        return found if isinstance(self.values, tuple) else found.item()

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.batches())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vector | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(
            one is two or one == two for one, two in zip(self, other, strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Vector:
        """The values of some rows, in their order.

        Args:
            rows: row numbers (taken,), from 0; a row may be taken more than once.
        """
        wanted = np.asarray(rows, dtype=np.int32)
        places = wanted if self.places is None else self.places[wanted]
        return Vector(self.values, self.missing, places)

    def distinct(self) -> list[Any]:
        """The values that rows may have, as Python's: each once, where rows have places."""
        if isinstance(self.values, tuple):
            return list(self.values)
        found: list[Any] = self.values.tolist()
        for place in () if self.missing is None else np.flatnonzero(self.missing).tolist():
            found[place] = None
        return found

    def mapped(self, change: Callable[[Any], Any]) -> Vector:
        """The vector of what becomes of every value; a value that many rows have is asked once."""
        return Vector.of(map(change, self.distinct()), self.places)

    def rounded(self, array: Callable[[Any], Any], one: Callable[[Any], Any]) -> Vector:
        """The vector of whole numbers nearest to its numbers.

        Args:
            array: rounds doubles.
            one: rounds one value of another kind, or that is beyond 64 bits.
        """
        if isinstance(self.values, np.ndarray):
            if self.values.dtype == np.int64:
                return self
            known = self.values if self.missing is None else np.where(self.missing, 0, self.values)
            if not len(known) or float(np.abs(known).max()) < LARGEST:
                return Vector(array(known).astype(np.int64), self.missing, self.places)
        return self.mapped(lambda each: None if each is None else one(each))

    def batches(self, change: Callable[[Any], Any] | None = None) -> Iterator[list[Any]]:
        """Python values of the rows, a batch at a time, each changed if that is asked for."""
        parts = (self[start : start + BATCH] for start in range(0, len(self), BATCH))
        if self.places is None or len(self.values) > len(self.places):
            for part in parts:
                own = part._compact() if change is None else part._shared()
                yield own._listed(own._known(change))
            return
        known = self._known(change)
        for part in parts:
            yield part._listed(known)

    def _known(self, change: Callable[[Any], Any] | None) -> list[Any]:
        return self.distinct() if change is None else list(map(change, self.distinct()))

    def _listed(self, known: list[Any]) -> list[Any]:
        """The value of every row, of the values that every one of ``values`` has."""
        if self.places is None:
            return known
        return list(map(known.__getitem__, self.places.tolist()))

    def _compact(self) -> Vector:
        """The same with the values alone that rows have."""
        if self.places is None:
            return self
        used, found = np.unique(self.places, return_inverse=True)
        back = found.astype(np.int32)
        if isinstance(self.values, tuple):
            return Vector(tuple(self.values[at] for at in used.tolist()), None, back)
        missing = None if self.missing is None else self.missing[used]
        return Vector(self.values[used], missing, back)

    def placed(self, found: NDArray[Any]) -> NDArray[Any]:
        """The value of every row, shape (rows,), of the values that every one of ``values`` has.

        Args:
            found: (values,), one entry for each of ``values``.
        """
        return found if self.places is None else found[self.places]

    def objects(self) -> NDArray[np.object_]:
        """The Python values of the rows, shape (rows,)."""
        return self.placed(np.fromiter(self.distinct(), np.object_, len(self.values)))

    def _shared(self) -> Vector:
        """The same with as few values as rows have, or all integers of a range no longer than that.

        Counts are alike: a text for each row takes longer than one for each number.
        """
        if self.places is not None or self.missing is not None:
            return self._compact()
        if not isinstance(self.values, np.ndarray) or self.values.dtype != np.int64:
            return self
        least, most = int(self.values.min()), int(self.values.max())
        if most - least >= len(self):
            return self
        return Vector(np.arange(least, most + 1), None, (self.values - least).astype(np.int32))

    def numbers(self) -> NDArray[np.float64]:
        """The values of the rows (rows,) as doubles, NaN where NULL; decimals to the nearest."""
        if isinstance(self.values, tuple):
            known = (np.nan if each is None else float(each) for each in self.values)
            found = np.fromiter(known, np.float64, len(self.values))
        else:
            found = self.values.astype(np.float64, copy=self.missing is not None)
            if self.missing is not None:
                found[self.missing] = np.nan
        return self.placed(found)

    def nulls(self) -> NDArray[np.bool_]:
        """The rows that are NULL, shape (rows,)."""
        return self.placed(self._holes())

    def _holes(self) -> NDArray[np.bool_]:
        """The values that are NULL, shape (values,)."""
        if isinstance(self.values, tuple):
            return np.fromiter((each is None for each in self.values), np.bool_, len(self.values))
        return np.zeros(len(self.values), np.bool_) if self.missing is None else self.missing


def repeated(value: Any, rows: int) -> Vector:
    """One value in all of so many rows."""
    return Vector.of((value,), np.zeros(rows, dtype=np.int32))


def vectors_of(rows: Iterable[Sequence[Any]], count: int) -> tuple[Vector, ...]:
    """Rows as vectors, of so many columns."""
    columns = list(zip(*rows, strict=True))
    return tuple(map(Vector.of, columns)) if columns else (Vector(()),) * count


def rows_of(
    vectors: Sequence[Vector],
    changes: Sequence[Callable[[Any], Any] | None] | None = None,
    rows: slice = slice(None),
) -> Iterator[tuple[Any, ...]]:
    """The rows of some columns, by default all; Python's objects are made a batch at a time.

    Args:
        vectors: the columns.
        changes: by column, what is made of its values.
        rows: which of them.
    """
    wanted = vectors if rows == slice(None) else [each[rows] for each in vectors]
    return itertools.chain.from_iterable(batches_of(wanted, changes))


def batches_of(
    vectors: Sequence[Vector], changes: Sequence[Callable[[Any], Any] | None] | None = None
) -> Iterator[Iterator[tuple[Any, ...]]]:
    """The rows of some columns, batch by batch.

    Args:
        changes: by column, what is made of its values.
    """
    wanted = (None,) * len(vectors) if changes is None else changes
    parts = [each.batches(change) for each, change in zip(vectors, wanted, strict=True)]
    for part in zip(*parts, strict=True):
        yield zip(*part, strict=True)


class PublicValues(Sequence[Any]):
    """The values of one column of a public table, read when the first is looked at."""

    __slots__ = ("_count", "_read", "_values")

    def __init__(self, count: int, read: Callable[[], list[Any]]) -> None:
        self._count = count
        self._read = read
        self._values: list[Any] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._known()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._known())

    def _known(self) -> list[Any]:
        if self._values is None:
            self._values = self._read()
        return self._values
