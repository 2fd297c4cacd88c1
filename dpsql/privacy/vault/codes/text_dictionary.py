"""The different texts of many rows, each with a number of its own: a hash table in arrays.

The rows of a batch look for their texts together: in places that follow from the texts and from
keys that are drawn anew, so that nobody can write many texts of one place on purpose. Texts of one
place are a chain. The table grows by as many places as a batch may need, and only the texts of
those that are halved for it are placed again, so that no text costs more than the one before.
Sources: Litwin, Linear hashing (1980); Lemire and Kaser, Strongly universal string hashing is fast
(2014), multilinear hashing.

Guarantee: two rows have one number if and only if their texts are the same byte by byte. Numbers
and keys stay within the vault.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpsql.privacy.vault.codes.byte_texts import HALF, LONG, WORD, ByteTexts, Counts, Flags, Words
from dpsql.privacy.vault.codes.spill import SLACK

Numbers = npt.NDArray[np.uint32]
Spelled = Sequence[tuple[Counts, Words]]
"""The words of some texts; see ``ByteTexts.words``."""

FREE = 0
"""The mark of a free place, and of the end of a chain: records start after it."""
LAST = (1 << 32) - 1
"""Largest position at which a record may end."""
SPARE = 2
"""Places for every text, at least."""
RECORD = 4
"""Words of a record of a text of some 20 bytes."""
LOW = np.uint64((1 << 32) - 1)
MIX = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, an odd number by which low bits reach all higher ones."""


class TextNames:
    """The different texts of all batches, numbered from 0 on as they come.

    Each has a record: a word with its size in bytes and its number, and the words of the text. A
    place of the table says where the first record of its chain starts, and ``_nexts`` by number
    where the next one does. There is room for so many texts; memory is used as they come.
    """

    def __init__(self, room: int = 0) -> None:
        self._secret = os.urandom(32)
        self._keys: list[Words] = []
        self._table = np.zeros(SPARE * room, dtype=np.uint32)
        self._size = 1
        self._nexts, self._starts, self._hashes = (
            np.zeros(room, dtype=np.uint32) for _ in range(3)
        )
        self._count = 0
        self._records = np.zeros(RECORD * room + LONG, dtype=np.uint64)
        self._written = 1

    def add(self, texts: ByteTexts) -> Numbers:
        """Return the number of every text (rows,). Raises: MemoryError beyond 32 GiB of records."""
        self._make_room(self._count + len(texts))
        found = np.zeros(len(texts), dtype=np.uint32)
        rows, spelled = np.arange(len(texts)), [*texts.words()]
        hashes = self._hash(texts, spelled)
        cells, places = self._table, self._places(hashes)
        while len(rows):
            free = np.flatnonzero(cells[places] == FREE)
            self._append(texts.take(free), hashes[rows[free]], cells, places[free])
            starts = cells[places].astype(np.int64)
            heads = self._records[starts]
            found[rows] = numbers = heads & LOW
            late = np.flatnonzero(~self._same(texts, spelled, heads, starts))
            rows, texts = rows[late], texts.take(late)
            cells, places = self._nexts, numbers[late].view(np.int64)
            spelled = [*texts.words()]
        return found

    def names(self) -> ByteTexts:
        """Return the texts by number."""
        starts = self._starts[: self._count].astype(np.int64)
        sizes = (self._records[starts] >> HALF).view(np.int64)
        return ByteTexts(self._records[: self._written].view(np.uint8), (starts + 1) * WORD, sizes)

    def _same(self, texts: ByteTexts, spelled: Spelled, heads: Words, starts: Counts) -> Flags:
        """Say whether each text is that of a record."""
        found: Flags = heads >> HALF == texts.sizes.view(np.uint64)
        for place, (rows, words) in enumerate(spelled, start=1):
            if len(rows) == len(texts):
                found &= self._records[starts + place] == words
            else:
                found[rows] &= self._records[starts[rows] + place] == words
        for row in np.flatnonzero(found & (texts.sizes >= LONG)):
            text = texts.bytes_of(row)
            found[row] = (
                self._records[starts[row] + 1 :].view(np.uint8)[: len(text)].tobytes() == text
            )
        return found

    def _append(self, texts: ByteTexts, hashes: Numbers, cells: Numbers, places: Counts) -> None:
        """Number texts whose places in some cells are free; of those with one place, one."""
        order = np.arange(len(texts), dtype=np.uint32)
        cells[places] = order
        first = np.flatnonzero(cells[places] == order)
        texts, count = texts.take(first), self._count + len(first)
        lengths = 1 + (texts.sizes + WORD - 1) // WORD
        ends = self._written + np.cumsum(lengths)
        starts, written = ends - lengths, self._written + int(lengths.sum())
        if written >= LAST:
            raise MemoryError
        _lengthen(self._nexts, count)
        _lengthen(self._starts, count)
        _lengthen(self._hashes, count)
        _lengthen(self._records, written + LONG)  # a longer text is compared with the last ones
        cells[places[first]] = self._starts[self._count : count] = starts
        self._hashes[self._count : count] = hashes[first]
        numbers = np.arange(self._count, count, dtype=np.uint64)
        self._records[starts] = texts.sizes.view(np.uint64) << HALF | numbers
        for place, (rows, words) in enumerate(texts.words(), start=1):
            self._records[starts[rows] + place] = words
        for row in np.flatnonzero(texts.sizes >= LONG):
            text = np.frombuffer(texts.bytes_of(row), np.uint8)
            self._records[starts[row] + 1 :].view(np.uint8)[: len(text)] = text
        self._count, self._written = count, written

    def _make_room(self, count: int) -> None:
        """Have places for so many texts; those that are there stay in them or get new ones.

        A new place has the number of an old one but for its first bits, and takes texts from it.
        """
        needed = max(self._size, count * SPARE)
        _lengthen(self._table, needed)
        numbers = self._emptied(self._places(np.arange(self._size, needed)))
        self._size = needed
        self._place_again(numbers)

    def _emptied(self, places: Counts) -> Counts:
        """Take all texts out of some chains, and return their numbers."""
        order, starts = np.arange(len(places), dtype=np.uint32), self._table[places]
        self._table[places] = order
        starts = starts[self._table[places] == order]  # each chain once
        self._table[places] = FREE
        found = [np.zeros(0, dtype=np.int64)]
        while len(starts := starts[starts != FREE]):
            found.append((self._records[starts] & LOW).view(np.int64))
            starts = self._nexts[found[-1]]
        numbers = np.concatenate(found)
        self._nexts[numbers] = FREE
        return numbers

    def _place_again(self, numbers: Counts) -> None:
        """Put texts that are in no chain at the end of their own."""
        starts, cells = self._starts[numbers], self._table
        places = self._places(self._hashes[numbers])
        while len(starts):
            is_free = cells[places] == FREE
            cells[places[is_free]] = starts[is_free]
            late = np.flatnonzero(cells[places] != starts)
            others = (self._records[cells[places[late]]] & LOW).view(np.int64)
            starts, cells, places = starts[late], self._nexts, others

    def _places(self, hashes: Numbers | Counts) -> Counts:
        """Return the places of the first texts of chains."""
        mask = (1 << (self._size - 1).bit_length()) - 1
        found = hashes.astype(np.int64) & mask
        return np.where(found < self._size, found, found & mask >> 1)

    def _hash(self, texts: ByteTexts, spelled: Spelled) -> Numbers:
        """Return a hash of every text (rows,)."""
        sums = self._key(0)[0] + self._key(0)[1] * texts.sizes.view(np.uint64)
        for place, (rows, words) in enumerate(spelled, start=1):
            key = self._key(place)
            more = key[0] * (words & LOW) + key[1] * (words >> HALF)
            if len(rows) == len(texts):
                sums += more
            else:
                sums[rows] += more
        for row in np.flatnonzero(texts.sizes >= LONG):
            sums[row] = self._digest(texts.bytes_of(row))
        found: Numbers = ((sums ^ sums >> HALF) * MIX >> HALF).astype(np.uint32)
        return found

    def _key(self, place: int) -> Words:
        while len(self._keys) <= place:
            self._keys.append(np.frombuffer(os.urandom(2 * WORD), np.uint64))
        return self._keys[place]

    def _digest(self, text: bytes) -> int:
        found = hashlib.blake2b(text, digest_size=WORD, key=self._secret).digest()
        return int.from_bytes(found)


def _lengthen(array: npt.NDArray[np.generic], size: int) -> None:
    """Make an array at least so long, in place where it can be: nobody else has seen it."""
    if size > len(array):
        array.resize(size + size // SLACK, refcheck=False)
