"""Sets of attributes as masks: the first of d attributes is the highest of d bits.

Searches ask for the same sets time and again: on 286 three-way tables, working their names and
sizes out anew each time took a fifth of planning.
"""

from __future__ import annotations

import math
from functools import lru_cache

KEPT = 1 << 15
"""Sets that are remembered: all those of 13 attributes, four times."""


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
    """Return the size of the extended tensor over a mask: prod (n_i + 1) where n_i > 1.

    Of one cell the sum is the cell.

    >>> cells_of((2, 3, 4), 0b101)
    15
    """
    return math.prod(sizes[i] + 1 for i in axes_of(len(sizes), mask) if sizes[i] > 1)
