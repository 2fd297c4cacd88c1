"""The membrane's third door: the keys that enough privacy units have, and their noisy counts.

All keys and exact counts stay inside; out come the keys that a release chose, in sorted order.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.discovery import Key
from dpsql.errors import InternalError
from dpsql.privacy.budget.ledger import Receipt
from dpsql.privacy.doors.discovery import CountedDiscovery, Discovery, KeyCounts
from dpsql.privacy.doors.look import sealed_look
from dpsql.privacy.doors.vaults import Vaults
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.partition_selection import (
    CHANCE_BITS,
    chances,
    threshold,
    variance,
    weights,
)
from dpsql.privacy.noise.samplers import SAMPLERS, discrete_gaussian, uniform_below
from dpsql.privacy.vault.unit.key_counts import NO_VALUE, Pairs
from dpsql.strategy.noise_law import GAUSSIAN, LAPLACE, law

Counts = NDArray[np.int64]


def find_keys(asked: Discovery, receipt: Receipt, vaults: Vaults) -> tuple[Key, ...]:
    """Use a receipt up and return the keys of a column that are released, sorted.

    Args:
        asked: column, declaration and amount of the release, which the receipt pays for.
        receipt: used up, whatever becomes of the release.
        vaults: of the catalog; that of the table reads the keys.

    Raises: LedgerError (E_RECEIPT, E_FORK) unless the receipt is unused and for this release on the
    present data; InternalError when it paid less, or for whatever goes wrong afterwards.
    Guarantee: (amount, delta)-DP, respectively amount-zCDP but for a chance of delta, for one
    privacy unit: no more than ``max_keys`` of its keys count.
    """
    _redeem(asked, receipt, vaults)
    vault, what = vaults[asked.table], (asked.column, asked.sought)
    return sealed_look(lambda: _choose(asked, vault.pairs(*what)))


def count_keys(asked: CountedDiscovery, receipt: Receipt, vaults: Vaults) -> KeyCounts:
    """Use a receipt up and return the keys that reach a threshold, with their noisy counts.

    Args:
        asked: column, declaration, threshold and amount of the release, which the receipt pays for.
        receipt: used up, whatever becomes of the release.
        vaults: of the catalog; that of the table reads the keys.

    Raises: as ``find_keys``.
    Guarantee: (paid, delta)-DP, respectively paid-zCDP but for a chance of delta, for one privacy
    unit. It is in at most ``spread`` of the counts, at most ``max_keys`` of them of keys; keys that
    it alone has pass with a chance of delta together, and else nothing is shown of them. Given the
    keys that passed, it adds at most one to the count of all others, whose noise is independent.
    """
    _redeem(asked, receipt, vaults)
    vault, what = vaults[asked.table], (asked.column, asked.sought)
    return sealed_look(lambda: _count(asked, vault.pairs(*what)))


def _redeem(asked: Discovery, receipt: Receipt, vaults: Vaults) -> None:
    receipt.redeem(asked.fingerprint, vaults.versions([asked.table]), asked.noise)
    paid = law(asked.noise).budget(receipt.epsilon, receipt.rho)
    if asked.noise not in (LAPLACE.name, GAUSSIAN.name) or paid is None or asked.paid > paid:
        raise InternalError("E_INTERNAL", "the keys cost more than was paid; nothing was measured")
    if not 0 < asked.delta <= receipt.cost.delta:
        raise InternalError("E_INTERNAL", "the keys cost more than was paid; nothing was measured")


def choose_counted(bits: Bits, counts: Sequence[int], epsilon: Fraction, delta: Fraction) -> Counts:
    """Return the places of the keys that are released, given the number of units that have each.

    Args:
        bits: randomness, of which each key takes the same number of bits.
        counts: (keys,), units that have each key.
        epsilon, delta: for a unit in one of the counts.

    Returns: sorted places among ``counts``.

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

    Args:
        bits: randomness of the noise.
        weights: (keys,), in whole units as ``weight`` gives them.
        rho, delta: of the whole release, for one unit.
        most: keys of one unit that count, by which the threshold is set.

    Returns: sorted places among ``weights``.

    Guarantee: rho-zCDP but for a chance of delta: the noise on keys of others is Gaussian, with the
    squares of what a unit adds summing to at most one, and keys that it alone has are below the
    threshold; those without a weight, of which it may have any number, are never released. Noise on
    either is independent. Source: Gopi and others 2020 (Gaussian thresholds).
    """
    noise = discrete_gaussian(bits, variance(rho), len(weights))
    level = threshold(rho, delta, most)
    passed = (weights > 0) & (weights.astype(object) + noise.astype(object) >= level)
    return np.flatnonzero(passed).astype(np.int64)


def _choose(asked: Discovery, pairs: Pairs) -> tuple[Key, ...]:
    most = asked.sought.max_keys
    _check(pairs.units, most)
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


def _check(units: Counts, most: int) -> None:
    # The vault has bounded them; here as well, since the guarantee of a release rests on it.
    if (np.bincount(units) > most).any():
        raise ValueError("a unit has more keys than may count")


def _count(asked: CountedDiscovery, pairs: Pairs) -> KeyCounts:
    """Add noise to the counts of all keys; those that reach the threshold are shown."""
    nobody = _without_value(asked, pairs)
    _check(pairs.units, asked.sought.max_keys)
    _check(np.concatenate([pairs.units, nobody]), asked.spread)
    true = np.bincount(pairs.places, minlength=len(pairs.keys))
    cells = np.append(true, len(nobody)) if asked.null else true
    noisy = _with_noise(asked, cells, asked.scale)
    passed = np.flatnonzero((true > 0) & (noisy[: len(true)] >= asked.level))
    place = {pairs.keys[each]: int(each) for each in passed}
    shown = asked.shown(tuple(place))
    null = int(noisy[-1]) if asked.null else None
    counts = tuple(int(noisy[place[key]]) for key in shown)
    others = _others(asked, pairs, [place[key] for key in shown], nobody)
    return KeyCounts(shown, counts, null, others)


def _without_value(asked: CountedDiscovery, pairs: Pairs) -> Counts:
    """The units that count under NULL: those of them that are in fewer counts than they may be."""
    units, codes = pairs.every
    nobody: Counts = units[codes == NO_VALUE] if asked.null else units[:0]
    has_room = np.bincount(pairs.units, minlength=_size(pairs))[nobody] < asked.spread
    return nobody[has_room]


def _others(
    asked: CountedDiscovery, pairs: Pairs, shown: Sequence[int], nobody: Counts
) -> int | None:
    """The noisy number of units with a value that is no key shown, and not NULL.

    Those that are in one count at most are not in this one too.
    """
    if not asked.rest:
        return None
    units, codes = pairs.every
    is_shown = np.zeros(len(pairs.keys) + 2, dtype=np.bool_)  # the last two are those of no key
    is_shown[shown] = True
    rest = np.zeros(_size(pairs), dtype=np.bool_)
    rest[units[(codes != NO_VALUE) & ~is_shown[codes]]] = True
    if asked.spread == 1:
        rest[pairs.units[is_shown[pairs.places]]] = False
        rest[nobody] = False
    count = np.array([np.count_nonzero(rest)])
    return int(_with_noise(asked, count, asked.rest_scale)[0])


def _size(pairs: Pairs) -> int:
    """One more than the largest number of a unit."""
    return int(max(pairs.every[0].max(initial=-1), pairs.units.max(initial=-1))) + 1


def _with_noise(asked: Discovery, true: Counts, scale: Fraction) -> NDArray[np.object_]:
    noise = SAMPLERS[asked.noise](Bits(), scale, len(true))
    return np.asarray(true.astype(object) + noise.astype(object))


def _weights(pairs: Pairs) -> Counts:
    """Return the weight of every pair in its key; the squares of a unit's sum to at most 2^40."""
    return weights(np.bincount(pairs.units)[pairs.units])
