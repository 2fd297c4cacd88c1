"""Rows of whole numbers are numbered alike if they are alike, whatever their hashes are."""

from __future__ import annotations

from functools import cache
from unittest import mock

import numpy as np
import pytest

from dpsql.privacy.vault.codes import distinct_integers
from dpsql.privacy.vault.codes.distinct_integers import find_distinct, in_groups
from tests.support.effort import effort, first_seed


@pytest.mark.parametrize("collides", [False, True])
@pytest.mark.parametrize("seed", range(effort(4)))
def test_rows_are_told_apart_in_any_blocks(seed: int, collides: bool) -> None:
    """Keys of the hash that are small let different rows have one: they are told apart after it."""
    draw = np.random.default_rng(first_seed(seed))

    def keys(_: int) -> tuple[np.uint64, np.uint64]:
        return np.uint64(draw.choice([0, 1, 3, 1 << 63])), np.uint64(0)

    for _ in range(100):
        rows, width = int(draw.integers(0, 60)), int(draw.integers(1, 4))
        different = int(draw.integers(1, 9))
        scale = draw.choice([1, 1 << 40, -3], width)
        columns = [draw.integers(0, different, rows) * each for each in scale]
        block = int(draw.integers(1, 70))
        run = int(draw.integers(1, 70))
        with mock.patch.multiple(distinct_integers, BLOCK=block, SORTED=run):
            np.testing.assert_array_equal(
                in_groups(abs(columns[0])), np.argsort(abs(columns[0]), kind="stable")
            )
            chosen = cache(keys) if collides else distinct_integers._keys
            with mock.patch.object(distinct_integers, "_keys", chosen):
                first, numbers = find_distinct(*columns)
        table = np.stack(columns, axis=1)
        assert len(first) == len({*map(tuple, table.tolist())})
        np.testing.assert_array_equal(table[first][numbers], table)
