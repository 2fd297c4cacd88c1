"""Components: weights of all subsets of attributes against the sums that define them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsql.algebra.operator import Floats
from dpsql.search.marginals.components import Components

SIZES = {
    "one attribute": ([3], 2),
    "supports of every size, one product each or several": ([2, 3, 4], 40),
    "many attributes, few products": ([1, 2, 1, 2, 1], 9),
    "the total alone": ([1, 1], 0),
}


def draw(name: str) -> tuple[Components, list[Floats], list[Floats]]:
    """Return products over random supports, and tables (t, r) of their factors and of Total."""
    sizes, count = SIZES[name]
    rng = np.random.default_rng(count)
    rows = [[-1] * len(sizes)] + [[int(rng.integers(-1, n)) for n in sizes] for _ in range(count)]
    index = np.unique(np.array(rows), axis=0)[rng.permutation(len(np.unique(rows, axis=0)))]
    used = index.max(axis=0) + 2
    t, r = ([rng.random(n) for n in used] for _ in range(2))
    for a, b in zip(t, r, strict=True):
        a[-1], b[-1] = 1, 0
    return Components(index, rng.random(len(index))), t, r


def weight(components: Components, mask: int, t: list[Floats], r: list[Floats]) -> float:
    """Return R_c as it is defined, product by product."""
    total = 0.0
    for row, weight2 in zip(components.index, components.weights2, strict=True):
        inside = [bool(mask & components.bit(i)) for i in range(components.d)]
        if any(chosen and f < 0 for chosen, f in zip(inside, row, strict=True)):
            continue
        pairs = zip(inside, row, t, r, strict=True)
        total += weight2 * math.prod((b[f] if chosen else a[f]) for chosen, f, a, b in pairs)
    return float(total)


@pytest.mark.parametrize("name", SIZES)
def test_weights_are_the_sums_that_define_them(name: str) -> None:
    components, t, r = draw(name)
    expected = [weight(components, mask, t, r) for mask in components.masks]
    np.testing.assert_allclose(components.values(t, r), expected, rtol=1e-12)
    found = np.zeros(len(components.masks))
    for group in components.groups:
        found[group.positions] += components.group_values(group, t, r)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", SIZES)
def test_sums_in_two_halves_are_those_that_are_written_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    components, t, r = draw(name)
    expected = components.values(t, r)
    monkeypatch.setattr("dpsql.search.marginals.components.WRITTEN", 0)
    np.testing.assert_allclose(components.values(t, r), expected, rtol=1e-12)


def test_components_of_more_attributes_than_a_word_has_bits() -> None:
    index = np.full((70, 70), -1)
    for j in range(70):
        index[j, [j, (j + 1) % 70]] = 0
    components = Components(index, np.ones(70))
    assert len(components.masks) == 1 + 70 + 70
    assert all(len(group.positions) == 4 for group in components.groups)
    top = components.groups[0]
    assert [components.masks[c] for c in top.positions] == [0, 1 << 68, 1 << 69, 3 << 68]


@pytest.mark.parametrize("name", SIZES)
def test_derivatives_are_differences(name: str) -> None:
    """A weight is linear in every single entry, so that a difference is the derivative."""
    components, t, r = draw(name)
    g = np.random.default_rng(1).random(len(components.masks))
    before = g @ components.values(t, r)
    for tables, found in zip((t, r), components.pull(g, t, r), strict=True):
        assert [len(each) for each in found] == [len(each) - 1 for each in tables]
        for table, slopes in zip(tables, found, strict=True):
            for place, slope in enumerate(slopes):
                table[place] += 1
                assert g @ components.values(t, r) - before == pytest.approx(slope, abs=1e-9)
                table[place] -= 1
