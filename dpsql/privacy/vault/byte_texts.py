"""Texts of many rows as bytes, and numbers for those that are the same: no object is made of each.

The number of a text is a hash under keys that are drawn anew, so that nobody can write two texts of
one number on purpose; that there are none is checked before numbers stand for texts.
Source: Lemire and Kaser, Strongly universal string hashing is fast (2014), multilinear hashing.

Guarantee: two rows are of one unit if and only if their texts are the same byte by byte. Numbers
and keys stay within the vault. For n texts some two share a number with a chance below n^2 2^-65
(3e-6 for ten million): the rows are not read then, and nothing is charged.
"""

from __future__ import annotations

import hashlib
import os
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
MANY = 1 << 20
"""Texts that wait to be compared with others, and are compared together."""
LONG = 256
"""Bytes from which on a text is looked at by itself."""
HALF = np.uint64(32)
FIRST = np.array([(1 << 8 * size) - 1 for size in range(WORD + 1)], dtype=np.uint64)
"""What keeps the first bytes of a word."""


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
        """How many there are."""
        return (len(self),)

    def tolist(self) -> list[str]:
        """Return Python's texts."""
        return [each.decode("utf-8", "surrogateescape") for each in self.each()]

    def take(self, rows: Counts | Flags | slice) -> ByteTexts:
        """Return the texts of some rows, over the same bytes."""
        return ByteTexts(self.data, self.starts[rows], self.sizes[rows])

    def each(self) -> Iterator[bytes]:
        """Yield the bytes of every text."""
        data = self.data.tobytes()
        pairs = zip(self.starts.tolist(), (self.starts + self.sizes).tolist(), strict=True)
        return (data[one:two] for one, two in pairs)

    def objects(self) -> npt.NDArray[np.object_]:
        """Return Python's texts; bytes that are not UTF-8 stay apart."""
        found = np.empty(len(self), dtype=object)
        found[:] = self.tolist()
        return found

    def packed(self) -> npt.NDArray[np.uint8]:
        """Return the bytes of all texts, one after another."""
        ends = np.cumsum(self.sizes)
        places = np.arange(int(ends[-1]) if len(ends) else 0)
        return self.data[places + np.repeat(self.starts - ends + self.sizes, self.sizes)]

    def words(self) -> Iterator[tuple[Counts, Words]]:
        """Yield the words of texts that are not long: their rows, and the next word of each."""
        rows = np.flatnonzero((self.sizes > 0) & (self.sizes < LONG))
        data = np.concatenate([self.data, np.zeros(WORD, dtype=np.uint8)])
        every: Words = np.ndarray(len(data) - WORD + 1, np.dtype("<u8"), data, strides=(1,))
        first = 0
        while len(rows):
            left = np.minimum(self.sizes[rows] - first, WORD)
            yield rows, every[self.starts[rows] + first] & FIRST[left]
            first += WORD
            rows = rows[self.sizes[rows] > first]

    def same(self, other: ByteTexts) -> bool:
        """Say whether each text is that of another in the same row."""
        if not np.array_equal(self.sizes, other.sizes):
            return False
        pairs = zip(self.words(), other.words(), strict=True)
        is_long = self.sizes >= LONG
        long = zip(self.take(is_long).each(), other.take(is_long).each(), strict=True)
        return all(np.array_equal(one, two) for (_, one), (_, two) in pairs) and all(
            one == two for one, two in long
        )


class TextNumbers:
    """Numbers of 64 bits for texts: two texts share one with a chance of 2^-64."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._keys: list[Words] = []

    def number(self, texts: ByteTexts) -> Counts:
        """Return a number for every text (rows,)."""
        sizes = texts.sizes.astype(np.uint64)
        sums = [self._key(0)[i] + self._key(0)[i + 2] * sizes for i in range(2)]
        for place, (rows, words) in enumerate(texts.words(), start=1):
            keys = self._key(place)
            low, high = words & np.uint64(0xFFFFFFFF), words >> HALF
            every = len(rows) == len(texts)
            for i, total in enumerate(sums):
                more = keys[i] * low + keys[i + 2] * high
                if every:
                    total += more
                else:
                    total[rows] += more
        found = (sums[0] >> HALF << HALF) | (sums[1] >> HALF)
        is_long = texts.sizes >= LONG
        found[is_long] = [self._digest(each) for each in texts.take(is_long).each()]
        numbers: Counts = found.view(np.int64)
        return numbers

    def _key(self, place: int) -> Words:
        while len(self._keys) <= place:
            self._keys.append(np.frombuffer(os.urandom(4 * WORD), np.uint64))
        return self._keys[place]

    def _digest(self, text: bytes) -> int:
        found = hashlib.blake2b(text, digest_size=WORD, key=self._secret).digest()
        return int.from_bytes(found)


class TextNames:
    """The different texts of all batches, by number."""

    def __init__(self) -> None:
        self._numbers = TextNumbers()
        self._known: Counts = np.zeros(0, dtype=np.int64)
        self._names = ByteTexts.of(())
        self._waiting: list[tuple[Counts, ByteTexts]] = []

    def add(self, texts: ByteTexts) -> Counts:
        """Return the numbers of some texts (rows,). Raises: ValueError where two share one."""
        numbers = self._numbers.number(texts)
        self._waiting.append(_each_once(numbers, texts))
        if sum(len(each) for each, _ in self._waiting) > max(MANY, len(self._known)):
            self._merge()
        return numbers

    def named(self, numbers: Counts) -> ByteTexts:
        """Return the text of every number, which are all in order. Raises: ValueError."""
        self._merge()
        if not np.array_equal(numbers, self._known):
            raise ValueError("numbers of other texts")
        return self._names

    def _merge(self) -> None:
        waiting, self._waiting = [(self._known, self._names), *self._waiting], []
        numbers, texts = (np.concatenate([n for n, _ in waiting]), joined([t for _, t in waiting]))
        waiting.clear()
        self._known, self._names = _each_once(numbers, texts)


def joined(parts: Sequence[ByteTexts]) -> ByteTexts:
    """Return the texts of packed parts, one after another."""
    sizes = np.concatenate([each.sizes for each in parts])
    data = np.concatenate([each.data for each in parts])
    return ByteTexts(data, np.cumsum(sizes) - sizes, sizes)


def _each_once(numbers: Counts, texts: ByteTexts) -> tuple[Counts, ByteTexts]:
    """Return different numbers in order, and their texts, packed. Raises: ValueError."""
    order = np.argsort(numbers)
    ordered = numbers[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    first = order[is_first]
    again = np.flatnonzero(~is_first)
    before = first[np.cumsum(is_first)[again] - 1]
    for start in range(0, len(again), MANY):
        some = slice(start, start + MANY)
        if not texts.take(order[again[some]]).same(texts.take(before[some])):
            raise ValueError("two texts have one number")
    found = texts.take(first)
    ends = np.cumsum(found.sizes)
    return ordered[is_first], ByteTexts(found.packed(), ends - found.sizes, found.sizes)
