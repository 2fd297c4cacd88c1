"""Whole runs of every mechanism through the real membrane: epsilon of the model, from below.

A false alarm has probability below 1e-6. With so few runs only a gross fault shows, so each
mechanism is also audited with the noise taken out, and must be found.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.learn.task import make_task, run_task
from dpsql.privacy.doors import look
from dpsql.privacy.noise.samplers import SAMPLERS
from tests.audit.lower_bound import epsilon_lower_bound
from tests.privacy.looks import World, whole

DOMAIN = {"a": 2, "b": 2}
COUNTS = np.array([[4, 0], [0, 3]])
EPSILON = Fraction(1, 10)
RUNS = {"mwem": 120, "mixture": 50, "pgm": 50, "rap": 60}
ALPHA = 1e-6


pytestmark = pytest.mark.usefixtures("short_runs")


def cells(world: World, model: str) -> list[float]:
    """What one run learned: the four cells of its model."""
    candidates = [whole(DOMAIN, "a", "b"), whole(DOMAIN, "a"), whole(DOMAIN, "b")]
    task = make_task(DOMAIN, candidates, "laplace", EPSILON, model=model, hint=7.0)
    handle = world.opened(EPSILON, settings=task.settings())
    found = run_task(task, handle).model.answer(candidates[0])
    assert handle.remaining() == 0
    return [float(each) for each in found]


def audit(model: str) -> float:
    """Bound epsilon from below, on a table and with one row more in an empty cell."""
    worlds = [World(DOMAIN, COUNTS) for _ in range(2)]
    worlds[1].cells.counts[0, 1] += 1
    runs = RUNS[model]
    rows = [np.array([cells(world, model) for _ in range(runs)]) for world in worlds]
    return epsilon_lower_bound(rows[0], rows[1], alpha=ALPHA)


@pytest.mark.parametrize("model", RUNS)
def test_models_keep_their_epsilon(model: str) -> None:
    assert audit(model) <= EPSILON


@pytest.mark.parametrize("model", ["mwem", "pgm"])
def test_models_without_noise_are_found(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(bits: Any, scale: Any, size: int) -> Any:
        return np.zeros(size, dtype=np.int64)

    def best(bits: Any, scores: Any, epsilon: Any, spread: int, count: int) -> list[int]:
        return list(np.argsort([-int(each) for each in scores], kind="stable")[:count])

    monkeypatch.setitem(SAMPLERS, "laplace", nothing)
    monkeypatch.setattr(look, "top_choices", best)
    assert audit(model) > EPSILON
