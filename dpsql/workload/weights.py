"""Weights: the integers that one row adds to the cells of a block, and how they are split.

The sum, ``unit``, is split between the nodes of one attribute after the other: first those whose
values are whole steps and that come out even, then the others, whose moments are rounded. What has
more than one number column shares no bits: each is rounded to steps of the sum of the block.
Guarantee: what a row adds is not negative and sums to ``unit``, whatever is in it, or is nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpsql.records import dataclass
from dpsql.workload.cells import AnyResolution, Nodes

TOTAL_BITS = 30
"""Bits of the weights of one row over all nodes of a block, where some are rounded."""

REAL_BITS = 24
"""Bits of the moments of one real number, for each degree, where there is room for them.

A real number alone could have more: rows of many integers over it would no longer add up in int64.
"""

MOST_WEIGHT = (1 << 31) - 1
"""Most that one row adds to all cells of a block together.

A cell with 2^31 rows then holds less than 2^62: sums stay within int64. Servers add up integers of
32 bits (decision 104).
"""

LOST = {1: 2, 2: 5}
"""By degree, more than what rounding moves between the nodes of one number, in L1: decision 104.

A weight W at the place w is split into W - m and m with m = rint(W w), which moves at most 2 |e|
for an error |e| <= 1/2 of m. For squares m = rint(2 W w), and s = rint(W w^2) is held within
[max(0, m - W), m // 2]; W - m + s, m - 2 s and s then differ from the exact weights by e - f,
e - 2 f and f in absolute value, at most 4 together with |e| <= 1/2 and |f| <= 3/4. Doubles lose
below .001. It is lost once for every combination of the nodes that were split before.
"""


@dataclass(frozen=True, slots=True)
class Weights:
    """The split of the weight of a row between the cells of one block.

    ``order`` are the places of the nodes among the resolutions, in the order in which the weight is
    split; the weights of the first ``even`` of them are exact. ``rounding`` is the largest share of
    the weight that is in other cells than for exact moments: the total variation distance.
    """

    unit: int
    order: tuple[int, ...]
    even: int
    rounding: Fraction


def weights_of(resolutions: Sequence[AnyResolution]) -> Weights:
    """Return how the weight of a row is split in a block.

    All columns keep their own steps where those fit together, so that sums are exact; else those
    of few steps do.

    >>> [weights_of([Nodes("v", 1, 1, 90)]).unit, weights_of([Nodes("v", 2, 1, 0)]).unit]
    [90, 1073741824]
    >>> found = weights_of([Nodes("v", 1, 1, 0), Nodes("w", 2, 1, 10)])
    >>> found.unit, found.order, found.even, float(found.rounding)
    (1073741800, (1, 0), 1, 2.793967786296482e-09)
    """
    places = [i for i, each in enumerate(resolutions) if isinstance(each, Nodes)]
    nodes = {i: each for i, each in enumerate(resolutions) if isinstance(each, Nodes)}
    if any(each.grid for each in nodes.values()):
        unit = math.prod(each.grid**each.degree for each in nodes.values())
        return Weights(unit, tuple(places), len(places), Fraction(0))
    own = {i: each.steps**each.degree for i, each in nodes.items() if each.steps}
    fits = len(own) == len(nodes) and math.prod(own.values()) <= MOST_WEIGHT
    unit, even = 1, []
    for i in sorted(own, key=own.__getitem__):
        if fits or unit * own[i] <= 1 << TOTAL_BITS:
            unit *= own[i]
            even.append(i)
    others = [i for i in places if i not in even]
    if others:
        bits = REAL_BITS * sum(nodes[i].degree for i in others)
        unit *= min((1 << TOTAL_BITS) // unit, 1 << bits)
    lost, split = 0, math.prod(nodes[i].degree + 1 for i in even)
    for i in others:
        lost += split * LOST[nodes[i].degree]
        split *= nodes[i].degree + 1
    return Weights(unit, (*even, *others), len(even), Fraction(lost, 2 * unit))


def block_unit(resolutions: Sequence[AnyResolution]) -> int:
    """The L1 sensitivity of a block's data: the sum that one row adds to all of its cells."""
    return weights_of(resolutions).unit


def joint_excess(blocks: Sequence[Sequence[AnyResolution]]) -> Fraction:
    """Return how much more all blocks together may cost than in the cell where they cost most.

    What a row adds to a block is a mixture of cells, of which a cost is at most the mean. Where all
    blocks that have nodes have the same, these are mixtures of one kind: nothing more. Else each is
    ``rounding`` away from that of the exact moments, which is one for all blocks; no block costs
    more than the worst cell: as a share of that, the excess is the sum of ``rounding``.
    """
    over = [tuple(each for each in block if isinstance(each, Nodes)) for block in blocks]
    if len({each for each in over if each}) < 2:
        return Fraction(0)
    return sum((weights_of(each).rounding for each in over), Fraction(0))
