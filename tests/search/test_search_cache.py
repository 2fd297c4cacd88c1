"""What is remembered of searches: the work that it took is counted, and nothing cut is kept."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from dpsql.search.search_cache import SearchCache
from dpsql.search.work_limit import limited, may_go_on, metered, portion, spend


def search(steps: int, asked: list[int]) -> list[int]:
    """Take so many steps of one unit of work, while there is any left."""
    asked.append(steps)
    taken: list[int] = []
    while len(taken) < steps and may_go_on():
        spend(1.0)
        taken.append(len(taken))
    return taken


@pytest.mark.parametrize("seed", range(60))
def test_what_is_found_does_not_depend_on_what_was_found_before(seed: int) -> None:
    random = np.random.default_rng(seed)
    recall: SearchCache[list[int]] = SearchCache(100)
    for _ in range(12):
        asked: list[int] = []
        keys = random.integers(1, 8, 6).tolist()
        most, in_all = (float(random.choice([3, 9, 20, math.inf])) for _ in range(2))
        part = float(random.choice([0.3, 1.0]))
        found = []
        for remembers in (True, False):
            with limited(in_all), metered(most) as meter:
                spend(1.0)
                with portion(part):
                    rows = [
                        recall.of(key, key, partial(search, key, asked))
                        if remembers
                        else search(key, asked)
                        for key in keys
                    ]
                found.append((rows, meter.done, meter.is_cut))
        assert found[0] == found[1]


def test_the_same_is_searched_for_once() -> None:
    recall: SearchCache[list[int]] = SearchCache(100)
    asked: list[int] = []
    with metered(100.0) as meter:
        for key in (3, 4, 3, 3, 4):
            assert len(recall.of(key, 1, partial(search, key, asked))) == key
    assert asked == [3, 4]
    assert meter.done == 17.0


def test_the_latest_are_kept() -> None:
    recall: SearchCache[list[int]] = SearchCache(10)
    asked: list[int] = []
    for key in (6, 3, 6, 7, 3):
        recall.of(key, key, partial(search, key, asked))
    assert asked == [6, 3, 7, 3]
