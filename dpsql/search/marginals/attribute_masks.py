"""Sets of attributes as masks: the first of d attributes is the highest of d bits.

Searches ask for the same sets time and again: on 286 three-way tables, working their names and
sizes out anew each time took a fifth of planning.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.strategy.product_block import estimated

KEPT = 1 << 15
"""Sets that are remembered: all those of 13 attributes, four times."""

WORDS = 62
"""Attributes whose masks are numbers of a word; those of more are Python's."""


def as_array(masks: Collection[int]) -> NDArray[Any]:
    """Return masks as an array, (masks,)."""
    is_long = max(masks, default=0).bit_length() > WORDS
    return np.array(list(masks), dtype=object if is_long else np.int64)


def subsets_of(masks: NDArray[Any]) -> NDArray[Any]:
    """Return the subsets of masks (m,) of e bits each in ascending order, (m, 2^e).

    >>> subsets_of(np.array([0b101, 0b110])).tolist()
    [[0, 1, 4, 5], [0, 2, 4, 6]]
    """
    found, rest = np.zeros((len(masks), 1), dtype=masks.dtype), masks
    while rest.any():
        bit = rest & -rest
        found = np.concatenate([found, found | bit[:, np.newaxis]], axis=1)
        rest = rest ^ bit
    return found


def bits_of(masks: Sequence[int], d: int) -> Floats:
    """Return which of d attributes are in every mask, (masks, d)."""
    width = -(-d // 8)
    written = b"".join(int(mask).to_bytes(width, "big") for mask in masks)
    table = np.frombuffer(written, dtype=np.uint8).reshape(-1, width)
    return np.unpackbits(table, axis=1)[:, 8 * width - d :].astype(np.float64)


@lru_cache(KEPT)
def axes_of(d: int, mask: int) -> tuple[int, ...]:
    """Return the positions of the attributes of a mask.

    >>> axes_of(3, 0b101)
    (0, 2)
    """
    return tuple(i for i in range(d) if mask >> (d - 1 - i) & 1)


@lru_cache(KEPT)
def names_of(names: tuple[str, ...], mask: int) -> tuple[str, ...]:
    """Return the attributes of a mask.

    >>> names_of(("age", "sex", "race"), 0b011)
    ('sex', 'race')
    """
    return tuple(names[i] for i in axes_of(len(names), mask))


@lru_cache(KEPT)
def cells_of(sizes: tuple[int, ...], mask: int) -> int:
    """Return how many numbers the estimate of a table over a mask keeps.

    >>> cells_of((2, 3, 10), 0b101)
    22
    """
    return estimated([sizes[i] for i in axes_of(len(sizes), mask)])
