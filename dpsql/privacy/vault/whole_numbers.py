"""Different whole numbers, and which of them each one is, by the same steps whatever they are."""

from __future__ import annotations

import numpy as np

from dpsql.privacy.vault.data_engine import Counts


def find_distinct(values: Counts) -> tuple[Counts, Counts]:
    """Return the different values, and the place of every one among them, both (n,).

    Last bits and places are sorted as one number, in a quarter of the time that it takes to sort
    places by values. Values of the same last bits, all but as many as places take, are told apart
    afterwards: there are none where values are below 2^40, and hardly any others.

    Guarantee: neither where the values lie nor how far apart they are chooses another way. To mark
    those that lie close together, as a table of all between them, takes half as long, and one
    value far away would show.

    >>> [each.tolist() for each in find_distinct(np.array([7, 5, 7]))]
    [[5, 7], [1, 0, 1]]
    >>> [each.tolist() for each in find_distinct(np.array([7, 7 + (1 << 62), 7, 5]))]
    [[5, 7, 4611686018427387911], [1, 2, 1, 0]]
    """
    count = len(values)
    bits = np.uint64(max(0, count - 1).bit_length())
    pairs = np.asarray(values, dtype=np.int64).view(np.uint64) << bits
    pairs |= np.arange(count, dtype=np.uint64)
    pairs.sort()
    order = pairs.view(np.int64) & ((1 << int(bits)) - 1)
    pairs >>= bits
    begins = np.ones(count, dtype=np.bool_)
    np.not_equal(pairs[1:], pairs[:-1], out=begins[1:])
    ordered = np.take(values, order, out=pairs.view(np.int64), mode="clip")
    heads, runs = np.flatnonzero(begins), np.cumsum(begins, dtype=np.int64)
    runs -= 1
    begins[1:] |= ordered[1:] == ordered[:-1]
    mixed = np.zeros(len(heads), dtype=np.bool_)
    mixed[runs[~begins]] = True
    late = np.flatnonzero(mixed[runs])
    late = late[ordered[late] != ordered[heads[runs[late]]]]
    more, places = np.unique(ordered[late], return_inverse=True)
    runs[late] = len(heads) + places
    names = np.append(ordered[heads], more)
    pairs.view(np.int64)[order] = runs
    return names, pairs.view(np.int64)
