"""Keys and their counts from one release: its exact distribution keeps the promise of its price."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.catalog.discovery import Sought
from dpsql.privacy.doors import find_keys
from dpsql.privacy.doors.discovery import CountedDiscovery
from dpsql.privacy.doors.find_keys import _count, choose_weighed
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.partition_selection import count_threshold
from dpsql.privacy.noise.samplers import SAMPLERS
from dpsql.privacy.noise.tail_bounds import gaussian_tail, laplace_tail
from dpsql.privacy.vault.unit.key_counts import NO_KEY, NO_VALUE, Pairs
from tests.privacy.seam import Paths

DELTA = Fraction(1, 50)
World = Mapping[str, tuple[str | int, ...]]
"""The keys of every unit; NO_KEY and NO_VALUE stand for rows without one."""
Chances = Mapping[Any, float]


def asked(
    most: int, rest: Fraction = Fraction(0), null: bool = False, alone: bool = False
) -> CountedDiscovery:
    """Counts of keys; NULL has no count beside those of keys where a unit has one row ``alone``."""
    what = ("t", "k", Sought("keys", most), "laplace", 3 - rest, DELTA)
    return CountedDiscovery(*what, rest, most + (null and not alone), null, "other", 10**6)


def pairs_of(world: World, most: int) -> Pairs:
    """What the vault would say of a world: of each unit its first keys count."""
    keys = sorted({k for own in world.values() for k in own[:most] if isinstance(k, str)})
    every, kept = [], []
    for unit, own in enumerate(world.values()):
        for place, key in enumerate(own):
            known = keys.index(key) if key in keys else NO_KEY
            every.append((unit, key if isinstance(key, int) else known))
            if isinstance(key, str) and place < most:
                kept.append((unit, known))
    found = np.array(kept, dtype=np.int64).reshape(-1, 2)
    units, codes = np.array(every).reshape(-1, 2).T
    return Pairs(tuple(keys), found[:, 0], found[:, 1], (units, codes))


def distribution(what: CountedDiscovery, world: World) -> Chances:
    """The chance of everything that can come out, over all values of all noise."""
    pairs = pairs_of(world, what.sought.max_keys)
    paths, found = Paths(1e-9), defaultdict[Any, float](float)

    def draw(bits: Bits, scale: Fraction, size: int) -> NDArray[np.int64]:
        reach = math.ceil(float(scale) * 12)
        mass = np.exp(-np.abs(np.arange(-reach, reach + 1)) / float(scale))
        chances = (mass / mass.sum()).tolist()
        return np.array([paths.choose(chances) - reach for _ in range(size)], dtype=np.int64)

    with mock.patch.dict(SAMPLERS, {"laplace": draw}):
        for chance, kept in paths.walk(lambda: _count(what, pairs)):
            found[kept.keys, kept.counts, kept.null, kept.other] += chance
    return found


def excess(one: Chances, other: Chances, epsilon: float) -> float:
    """The delta that two distributions need: how much of one lies above e times the other."""
    return sum(max(0.0, p - math.exp(epsilon) * other.get(o, 0.0)) for o, p in one.items())


NOBODY: World = {"a": ("x", NO_VALUE), "b": ("x",), "c": (NO_VALUE,)}
WORLDS: dict[str, tuple[CountedDiscovery, World]] = {
    "counts of rows": (asked(1), {"a": ("x",), "b": ("x",), "c": ("y",)}),
    "and of others": (asked(1, Fraction(1)), {"a": ("x",), "b": ("x",), "c": (NO_KEY,)}),
    "and of nobody": (asked(1, null=True), NOBODY),
    "or of nobody": (asked(1, null=True, alone=True), NOBODY),
    "two keys each": (asked(2), {"a": ("x", "y"), "b": ("x",), "c": ("x", "y")}),
    "one of three counts": (asked(1, Fraction(1)), {"a": ("x", "y", "z"), "b": ("x",)}),
}


def worst(name: str) -> float:
    """The largest delta that any unit of a world needs, in either direction."""
    what, world = WORLDS[name]
    whole = distribution(what, world)
    found = []
    for unit in world:
        fewer = distribution(what, {key: own for key, own in world.items() if key != unit})
        found += [excess(whole, fewer, 3.0), excess(fewer, whole, 3.0)]
    return max(found)


@pytest.mark.parametrize("name", WORLDS)
def test_no_unit_needs_more_than_what_is_paid(name: str) -> None:
    assert worst(name) <= float(DELTA) + 1e-6


def test_a_key_of_one_unit_is_shown_about_as_often_as_it_may() -> None:
    what = asked(1)
    alone = distribution(what, {"a": ("x",)})
    shown = sum(chance for out, chance in alone.items() if out[0])
    assert float(DELTA) / math.exp(3) < shown <= float(DELTA)


def _leveled(change: int) -> Callable[[], AbstractContextManager[Any]]:
    level = CountedDiscovery.level.fget  # type: ignore[attr-defined]
    lower = property(lambda self: level(self) + change)
    return lambda: mock.patch.object(CountedDiscovery, "level", lower)


def _free(asked: Any, pairs: Pairs, shown: Any, nobody: Any) -> int:
    units, codes = pairs.every
    return len(np.unique(units[~np.isin(codes, shown)]))


def _half(self: CountedDiscovery) -> Fraction:
    return Fraction(1) / self.amount


FAULTS: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "a threshold too low by one": ("counts of rows", _leveled(-1)),
    "keys of nobody are shown": ("counts of rows", _leveled(-100)),
    "others are told without noise": (
        "and of others",
        lambda: mock.patch.object(find_keys, "_others", _free),
    ),
    "noise for one key where two count": (
        "two keys each",
        lambda: mock.patch.object(CountedDiscovery, "scale", property(_half)),
    ),
    "NULL is not counted as a key": (
        "and of nobody",
        lambda: mock.patch.object(CountedDiscovery, "scale", property(_half)),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    world, plant = FAULTS[name]
    with plant():
        assert worst(world) > float(DELTA) * 1.2


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_threshold_is_the_least_whose_chance_is_certain(noise: str) -> None:
    tail = laplace_tail if noise == "laplace" else gaussian_tail
    for scale, most in itertools.product((Fraction(1, 3), Fraction(1), Fraction(9)), (1, 5)):
        level = count_threshold(noise, scale, DELTA, most)
        assert most * tail(scale, level - 1) <= DELTA
        assert level <= 2 or most * tail(scale, level - 2) > DELTA


def test_the_tail_of_the_discrete_laplace_law_is_exact() -> None:
    for scale in (Fraction(1, 2), Fraction(1), Fraction(7, 2)):
        mass = np.exp(-np.abs(np.arange(-400, 401)) / float(scale))
        tails = (mass / mass.sum())[::-1].cumsum()[::-1]
        for t in (1, 2, 5, 9):
            assert float(laplace_tail(scale, t)) == pytest.approx(tails[400 + t], rel=1e-9)


def test_units_in_more_counts_than_are_paid_for_stop_the_release() -> None:
    crowded = pairs_of({"a": ("x", "y")}, 2)
    with pytest.raises(ValueError, match="more keys"):
        _count(replace(asked(1), spread=1), crowded)


def test_keys_that_do_not_count_are_never_released() -> None:
    """Each would have a small chance of its own, of which one unit may have any number."""
    kept = choose_weighed(Bits(), np.zeros(10**5, dtype=np.int64), Fraction(1, 10**9), DELTA, 1)
    assert len(kept) == 0
