"""Texts of many rows as bytes, so that no object is made of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.records import dataclass

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

WORD = 8
"""Bytes that are looked at together."""
LONG = 256
"""Bytes from which on a text is looked at by itself."""
HALF = np.uint64(32)
FIRST = np.array([(1 << 8 * size) - 1 for size in range(WORD + 1)], dtype=np.uint64)
"""Masks that keep the first bytes of a word."""


@dataclass(frozen=True, slots=True)
class ByteTexts:
    """Texts of rows, that of row i in ``sizes[i]`` bytes of ``data`` from ``starts[i]`` on."""

    data: npt.NDArray[np.uint8]
    starts: Counts
    sizes: Counts

    @classmethod
    def of(cls, objects: Sequence[Any] | npt.NDArray[Any]) -> ByteTexts:
        """Return texts as bytes; what is no text is written as one.

        >>> ByteTexts.of(["a", "", "\\u00e9"]).objects().tolist()
        ['a', '', 'é']
        """
        parts = [f"{each}".encode("utf-8", "surrogatepass") for each in objects]
        sizes = np.array([len(each) for each in parts], dtype=np.int64)
        return cls(np.frombuffer(b"".join(parts), np.uint8), np.cumsum(sizes) - sizes, sizes)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def dtype(self) -> np.dtype[np.object_]:
        """The type of their objects."""
        return np.dtype(np.object_)

    @property
    def shape(self) -> tuple[int]:
        """The number of texts."""
        return (len(self),)

    def tolist(self) -> list[str]:
        """Return Python's texts."""
        return [each.decode("utf-8", "surrogateescape") for each in self.each()]

    def take(self, rows: Counts | Flags | slice) -> ByteTexts:
        """Return the texts of some rows, over the same bytes."""
        return ByteTexts(self.data, self.starts[rows], self.sizes[rows])

    def each(self) -> Iterator[bytes]:
        """Yield the bytes of every text."""
        first = int(self.starts.min(initial=len(self.data)))
        starts, ends = self.starts - first, self.starts + self.sizes - first
        data = self.data[first : first + int(ends.max(initial=0))].tobytes()
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return (data[one:two] for one, two in pairs)

    def objects(self) -> npt.NDArray[np.object_]:
        """Return Python's texts; bytes that are not UTF-8 stay apart."""
        found = np.empty(len(self), dtype=object)
        found[:] = self.tolist()
        return found

    def bytes_of(self, row: int | np.integer[Any]) -> bytes:
        """Return the bytes of one text."""
        return self.data[self.starts[row] :][: self.sizes[row]].tobytes()

    def words(self) -> Iterator[tuple[Counts, Words]]:
        """Yield the words of texts that are not long: their rows, and the next word of each."""
        data, rows = self.data, np.flatnonzero((self.sizes > 0) & (self.sizes < LONG))
        starts, sizes = self.starts[rows], self.sizes[rows]
        if int((self.starts + self.sizes).max(initial=0)) + WORD > len(data):
            data = np.concatenate([data, np.zeros(WORD, dtype=np.uint8)])
        every: Words = np.ndarray(len(data) - WORD + 1, np.dtype("<u8"), data, strides=(1,))
        while len(rows):
            yield rows, every[starts] & FIRST[np.minimum(sizes, WORD)]
            more = np.flatnonzero(sizes > WORD)
            rows, starts, sizes = rows[more], starts[more] + WORD, sizes[more] - WORD
