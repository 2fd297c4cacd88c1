"""A look of the membrane of its own kind: the keys that enough privacy units have.

Keys and counts stay inside; out come the keys that a release chose, in sorted order.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.privacy.discovery import Discovery
from dpsql.privacy.entropy import Bits
from dpsql.privacy.ledger import Receipt
from dpsql.privacy.look import sealed_look
from dpsql.privacy.noise import discrete_gaussian, uniform_below
from dpsql.privacy.partitions import CHANCE_BITS, chances, threshold, variance, weight
from dpsql.privacy.vault.distinct import Key, Pairs
from dpsql.privacy.vaults import Vaults
from dpsql.strategy.noise_law import GAUSSIAN, LAPLACE, law

Counts = NDArray[np.int64]


def find_keys(asked: Discovery, receipt: Receipt, vaults: Vaults) -> tuple[Key, ...]:
    """Use a receipt up and return the keys of a column that are released, sorted.

    Raises: LedgerError (E_RECEIPT, E_FORK) unless the receipt is unused and for this release on the
    present data; InternalError when it paid less, or for whatever goes wrong afterwards.
    Guarantee: (amount, delta)-DP, respectively amount-zCDP but for a chance of delta, for one
    privacy unit: no more than ``max_keys`` of its keys count.
    """
    receipt.redeem(asked.fingerprint, vaults.versions([asked.table]), asked.noise)
    paid = law(asked.noise).budget(receipt.epsilon, receipt.rho)
    if asked.noise not in (LAPLACE.name, GAUSSIAN.name) or paid is None or asked.amount > paid:
        raise InternalError("E_INTERNAL", "the keys cost more than was paid; nothing was measured")
    if not 0 < asked.delta <= receipt.cost.delta:
        raise InternalError("E_INTERNAL", "the keys cost more than was paid; nothing was measured")
    vault, what = vaults[asked.table], (asked.column, asked.sought)
    return sealed_look(lambda: _choose(asked, vault.pairs(*what)))


def choose_counted(bits: Bits, counts: Sequence[int], epsilon: Fraction, delta: Fraction) -> Counts:
    """Return the places of the keys that are released, given the number of units that have each.

    Guarantee: (epsilon, delta)-DP for a unit in one of the counts, k times that for one in k: every
    key has a coin of its own, whose chance is exactly that of its count.
    """
    table = chances(epsilon, delta)
    whole = 1 << CHANCE_BITS
    drawn = uniform_below(bits, whole, len(counts))
    kept = [
        i
        for i, (count, each) in enumerate(zip(counts, drawn, strict=True))
        if int(each) < table[min(int(count), len(table) - 1)]
    ]
    return np.array(kept, dtype=np.int64)


def choose_weighed(
    bits: Bits, weights: Counts, rho: Fraction, delta: Fraction, most: int
) -> Counts:
    """Return the places of the keys that are released, given the weights that units add to each.

    ``weights`` has shape (keys,), in whole units as ``weight`` gives them; the places are sorted.

    Guarantee: rho-zCDP but for a chance of delta: the noise on keys of others is Gaussian, with the
    squares of what a unit adds summing to at most one, and keys that it alone has are below the
    threshold. Noise on either is independent. Source: Gopi and others 2020 (Gaussian thresholds).
    """
    noise = discrete_gaussian(bits, variance(rho), len(weights))
    level = threshold(rho, delta, most)
    return np.flatnonzero(weights.astype(object) + noise.astype(object) >= level).astype(np.int64)


def _choose(asked: Discovery, pairs: Pairs) -> tuple[Key, ...]:
    most = asked.sought.max_keys
    if (np.bincount(pairs.units) > most).any():
        raise ValueError("a unit has more keys than may count")
    size = len(pairs.keys)
    if asked.is_pure:
        counts = np.bincount(pairs.places, minlength=size)
        each = Fraction(asked.amount, most), Fraction(asked.delta, most)
        kept = choose_counted(Bits(), counts.tolist(), *each)
    else:
        weights = np.zeros(size, dtype=np.int64)
        np.add.at(weights, pairs.places, _weights(pairs))
        kept = choose_weighed(Bits(), weights, asked.amount, asked.delta, most)
    return tuple(pairs.keys[place] for place in kept.tolist())


def _weights(pairs: Pairs) -> Counts:
    """What every pair adds to its key; the squares of those of a unit sum to at most 2^40."""
    degrees = np.bincount(pairs.units)[pairs.units]
    table = [0, *(weight(degree) for degree in range(1, int(degrees.max(initial=0)) + 1))]
    return np.array(table, dtype=np.int64)[degrees]
