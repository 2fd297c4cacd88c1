"""Orbits of interchangeable cells and the parts of queries on them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity, Prefix, Total
from dpsql.algebra.orbits import Orbits, find_orbits


def by_exchange(grams: list[NDArray[np.float64]]) -> list[set[int]]:
    """Orbits by trying every exchange of two cells on every Gram matrix."""
    n = len(grams[0])
    orbits: list[set[int]] = []
    for a in range(n):
        for orbit in orbits:
            b = min(orbit)
            swap = np.arange(n)
            swap[[a, b]] = b, a
            if all(np.allclose(G[np.ix_(swap, swap)], G, rtol=1e-13) for G in grams):
                orbit.add(a)
                break
        else:
            orbits.append({a})
    return orbits


def as_sets(orbits: Orbits) -> list[set[int]]:
    return [set(orbits.cells(o).tolist()) for o in range(len(orbits.sizes))]


def test_orbits_are_those_of_exchanges() -> None:
    rng = np.random.default_rng(0)
    seen = set()
    for rows, trial in itertools.product((1, 2, 4), range(20)):
        n = 3 + trial % 4
        grams = [np.asarray(Dense(rng.integers(0, 2, (rows, n))).gram()) for _ in range(2)]
        grams.append(2.5 * np.eye(n))
        found = find_orbits(grams, n)
        assert as_sets(found) == by_exchange(grams)
        seen.add(len(found.sizes) == n)
    assert seen == {True, False}


def test_named_orbits() -> None:
    assert len(find_orbits([Prefix(7).gram()], 7).sizes) == 7
    assert find_orbits([], 5).sizes.tolist() == [5]
    marked = find_orbits([Dense(np.array([[0, 1, 1, 0, 0]])).gram(), np.eye(5)], 5)
    assert marked.labels.tolist() == [0, 1, 1, 0, 0]
    assert marked.wide.tolist() == [0, 1]
    assert marked.cells(0).tolist() == [0, 3, 4]


def test_parts_of_queries_and_grams() -> None:
    rng = np.random.default_rng(1)
    orbits = Orbits(np.array([0, 1, 0, 2, 2, 2]))
    Q = Dense(rng.integers(-3, 4, (5, 6)))
    R = Dense(rng.normal(size=(5, 6)))
    means, spread = orbits.query_parts(Q)
    dense = Q.dense().astype(float)
    indicator = np.eye(3)[orbits.labels]
    constant = indicator / orbits.sizes
    assert np.allclose(means, dense @ constant)
    for column, orbit in enumerate(orbits.wide):
        cells = orbits.cells(int(orbit))
        P = np.eye(len(cells)) - 1 / len(cells)
        part = dense[:, cells]
        assert np.allclose(spread[:, column], np.diag(part @ P @ part.T))
        other = R.dense()[:, cells]
        assert np.allclose(orbits.cross(Q, R)[:, column], np.diag(part @ P @ other.T))
    core, inside = orbits.gram_parts(Q.gram())
    assert np.allclose(core, means.T @ means)
    assert np.allclose(inside, spread.sum(axis=0))


def test_parts_that_vanish_are_exactly_zero() -> None:
    orbits = Orbits(np.array([0, 0, 0, 1]))
    means, spread = orbits.query_parts(Total(4))
    assert not spread.any()
    assert means.tolist() == [[1.0, 1.0]]
    contrast, _ = orbits.query_parts(Dense(np.array([[1, 1, -2, 0]])))
    assert not contrast.any()
    assert not orbits.gram_parts(np.full((4, 4), 1 / 3))[1].any()


def test_identity_parts() -> None:
    orbits = Orbits(np.array([0, 1, 1, 1]))
    means, spread = orbits.query_parts(Identity(4))
    assert means[:, 1].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    assert spread[:, 0].tolist() == pytest.approx([0, 2 / 3, 2 / 3, 2 / 3])
