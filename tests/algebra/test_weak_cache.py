"""Results that are remembered with the object that they are of, and go with it."""

from __future__ import annotations

import gc

import numpy as np

from dpsql.algebra.blocks import Dense
from dpsql.algebra.weak_cache import WeakCache


def test_a_result_is_found_once_and_goes_with_its_object() -> None:
    kept: WeakCache[list[int]] = WeakCache(10)
    owner = np.ones(3)
    first = kept.of(owner, 4, lambda: [1])
    assert kept.of(owner, 4, lambda: [2]) is first
    assert kept.put(owner, 4, [3]) == [3] == kept.of(owner, 4, lambda: [4])
    assert len(kept) == 1
    del owner
    gc.collect()
    assert len(kept) == 0


def test_the_oldest_go_where_numbers_are_too_many_but_for_one() -> None:
    kept: WeakCache[int] = WeakCache(10)
    owners = [np.ones(1) for _ in range(4)]
    for number, owner in enumerate(owners):
        kept.of(owner, 4, lambda number=number: number)  # type: ignore[misc]
    assert len(kept) == 2
    assert kept.of(owners[3], 4, lambda: -1) == 3
    assert kept.of(owners[0], 400, lambda: -1) == -1
    assert len(kept) == 1


def test_a_gram_is_shared_and_cannot_be_changed() -> None:
    rows = Dense(np.arange(6).reshape(2, 3))
    assert rows.gram() is rows.gram()
    assert not rows.gram().flags.writeable
    assert np.array_equal(rows.gram(), rows.matrix.T @ rows.matrix)
