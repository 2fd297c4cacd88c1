"""Different whole numbers, and which of them each one is, by the same steps whatever they are."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import numpy.typing as npt

from dpsql.privacy.vault.data_engine import Codes, Counts

Words = npt.NDArray[np.uint64]
HALF = np.uint64(32)


def find_distinct(*columns: Counts) -> tuple[Counts, Counts]:
    """Return a place of every different row of some columns, and which of them each row is, (n,).

    The first bits of a hash and places are sorted as one number, in a quarter of the time that it
    takes to sort places by values. Rows of one hash that are not the same are told apart
    afterwards: of two, with a chance of 2^-33 at most, and of 2^-43 for a million rows.
    Source: Lemire and Kaser, Strongly universal string hashing is fast (2014), multilinear hashing.

    Guarantee: which steps are taken, and on how many rows, follows from how many there are and how
    many are different, and from keys of this process that nobody knows who writes values.

    >>> rows, places = find_distinct(np.array([7, 5, 7]), np.array([1, 1, 1]))
    >>> sorted(rows.tolist()), bool(places[0] == places[2] != places[1])
    ([0, 1], True)
    """
    count = len(columns[0])
    bits = max(1, (count - 1).bit_length())
    first, *others = [np.asarray(each, dtype=np.int64).view(np.uint64) for each in columns]
    pairs = first << np.uint64(bits)
    part = first >> np.uint64(64 - bits)
    part *= _keys(0)[0]  # ids with the same first bits stay in order, as they do in most files
    pairs += part
    for i, words in enumerate(others, start=1):
        pairs += np.multiply(words, _keys(i)[0], out=part)
        np.right_shift(words, HALF, out=part)
        part *= _keys(i)[1]
        pairs += part
    pairs >>= np.uint64(bits)
    order = _in_place(pairs, bits, part)
    begins = np.ones(count, dtype=np.bool_)
    np.not_equal(pairs[1:], pairs[:-1], out=begins[1:])
    heads, runs = np.flatnonzero(begins), np.cumsum(begins, dtype=np.int64)
    runs -= 1
    differs = np.zeros(count, dtype=np.bool_)
    for values in columns:
        ordered = np.take(values, order, out=pairs.view(np.int64), mode="clip")
        differs |= ordered != ordered[heads][runs]
    late = np.flatnonzero(differs)
    rows = np.stack([values[order[late]] for values in columns], axis=1)
    _, more, places = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    runs[late] = len(heads) + places.ravel()
    pairs.view(np.int64)[order] = runs
    return order[np.append(heads, late[more])], pairs.view(np.int64)


def in_groups(numbers: Codes | Counts) -> Counts:
    """Return the places (n,) of numbers in their order, places of the same number in theirs.

    Numbers are not negative, and below 2^64 / 2n; a number is sorted with its place as one, which
    takes a fifth of the time.

    >>> in_groups(np.array([7, 5, 7, 0])).tolist()
    [3, 1, 0, 2]
    """
    pairs, bits = numbers.astype(np.uint64), max(0, len(numbers) - 1).bit_length()
    return _in_place(pairs, bits, np.empty_like(pairs))


def _in_place(numbers: Words, bits: int, room: Words) -> Counts:
    """Sort numbers, and return, in ``room``, the places (n,) that they had, of so many bits."""
    numbers <<= np.uint64(bits)
    numbers |= np.arange(len(numbers), dtype=np.uint64)
    numbers.sort()
    order = np.bitwise_and(numbers, np.uint64((1 << bits) - 1), out=room)
    numbers >>= np.uint64(bits)
    return order.view(np.int64)


@cache
def _keys(column: int) -> tuple[np.uint64, np.uint64]:
    """The keys of the hash of a column, for its words and for their upper halves."""
    low, high = np.frombuffer(os.urandom(16), dtype=np.uint64)
    return low | np.uint64(1), high
