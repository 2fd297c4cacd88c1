"""The different texts of many rows, each with a number of its own: a hash table in arrays.

The rows of a batch look for their texts together: in places that follow from the texts and from
keys that are drawn anew, so that nobody can write many texts of one place on purpose. Where another
text has a place, they look in another one.
Source: Lemire and Kaser, Strongly universal string hashing is fast (2014), multilinear hashing.

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

FREE = (1 << 32) - 1
"""The mark of a free place: records start before."""
PLACES = 1 << 10
"""Places to begin with."""
SPARE = 2
"""Places for every text, at least."""
MANY = 1 << 18
"""Texts that get their places in a larger table together."""
LOW = np.uint64((1 << 32) - 1)
MIX = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, an odd number by which low bits reach all higher ones."""


class TextNames:
    """The different texts of all batches, numbered from 0 on as they come.

    Each has a record: a word with its size in bytes and its number, and the words of the text. A
    place of the table says where a record starts.
    """

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._keys: list[Words] = []
        self._table = np.full(PLACES, FREE, dtype=np.uint32)
        self._starts = np.zeros(0, dtype=np.uint32)
        self._hashes = np.zeros(0, dtype=np.uint32)
        self._count = 0
        self._records = np.zeros(LONG, dtype=np.uint64)
        self._written = 0

    def add(self, texts: ByteTexts) -> Numbers:
        """Return the number of every text (rows,). Raises: MemoryError beyond 32 GiB of records."""
        self._make_room(self._count + len(texts))
        found = np.zeros(len(texts), dtype=np.uint32)
        rows, spelled = np.arange(len(texts)), [*texts.words()]
        hashes = self._hash(texts, spelled)
        places, turn = self._places(hashes), 0
        while len(rows):
            free = np.flatnonzero(self._table[places] == FREE)
            self._append(texts.take(free), hashes[rows[free]], places[free])
            starts = self._table[places].astype(np.int64)
            heads = self._records[starts]
            found[rows] = heads & LOW
            late = np.flatnonzero(~self._same(texts, spelled, heads, starts))
            turn += 1
            rows, texts, places = rows[late], texts.take(late), self._next(places[late], turn)
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

    def _append(self, texts: ByteTexts, hashes: Numbers, places: Counts) -> None:
        """Number texts whose places are free; of those with one place, one."""
        order = np.arange(len(texts), dtype=np.uint32)
        self._table[places] = order
        first = np.flatnonzero(self._table[places] == order)
        texts, count = texts.take(first), self._count + len(first)
        lengths = 1 + (texts.sizes + WORD - 1) // WORD
        ends = self._written + np.cumsum(lengths)
        starts, written = ends - lengths, self._written + int(lengths.sum())
        if written >= FREE:
            raise MemoryError
        _lengthen(self._starts, count)
        _lengthen(self._hashes, count)
        _lengthen(self._records, written + LONG)  # a longer text is compared with the last ones
        self._table[places[first]] = self._starts[self._count : count] = starts
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
        """Have a table for so many texts; those that are there have places in it."""
        if count * SPARE <= len(self._table):
            return
        self._table = np.full(1 << (count * SPARE - 1).bit_length(), FREE, dtype=np.uint32)
        for first in range(0, self._count, MANY):
            some = slice(first, min(first + MANY, self._count))
            starts, places, turn = self._starts[some], self._places(self._hashes[some]), 0
            while len(starts):
                is_free = self._table[places] == FREE
                self._table[places[is_free]] = starts[is_free]
                late = np.flatnonzero(self._table[places] != starts)
                turn += 1
                starts, places = starts[late], self._next(places[late], turn)

    def _next(self, places: Counts, turn: int) -> Counts:
        """Return the next places to look in, all of them sooner or later."""
        return (places + turn) & (len(self._table) - 1)

    def _places(self, hashes: Numbers) -> Counts:
        """Return the places in which texts are looked for first."""
        return (hashes >> np.uint32(33 - len(self._table).bit_length())).astype(np.int64)

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
