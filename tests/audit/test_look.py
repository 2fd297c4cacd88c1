"""The second door passes the audit of whole runs, and the audit finds what is planted there."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.privacy.doors import look
from dpsql.privacy.doors.sensitivity import joint_norm
from dpsql.strategy.noise_law import Noise
from tests.audit.lower_bound import epsilon_lower_bound
from tests.privacy.looks import World, whole

DOMAIN = {"a": 3, "b": 2}
COUNTS = np.array([[5, 0], [2, 7], [1, 1]])
ANSWERS = [np.array([6.0, 9.0, 3.0]), np.array([9.0, 8.0])]
"""Answers of a model: with one row more in cell (0, 1) another marginal is the worse one."""


def transcript(world: World, noise: Noise, amount: Fraction) -> list[float]:
    """A small adaptive run: choose a marginal, measure it, and the total."""
    handle = world.opened(amount, noise)
    candidates = [whole(DOMAIN, "a"), whole(DOMAIN, "b")]
    part = amount / 4
    (best,) = handle.select(candidates, ANSWERS, amount=part)
    (found,) = handle.measure([candidates[best]], 2 * part)
    values = np.zeros(4)
    values[: found.values.size] = found.values
    return [best, *values, *handle.total(part).values]


def audit(runs: int = 800) -> float:
    """Bound epsilon of whole runs from below, on a table and with one row more."""
    worlds = [World({"a": 3, "b": 2}, COUNTS) for _ in range(2)]
    worlds[1].cells.counts[0, 1] += 1
    rows = [
        np.array([transcript(world, "laplace", Fraction(2)) for _ in range(runs)])
        for world in worlds
    ]
    return epsilon_lower_bound(rows[0], rows[1])


def test_epsilon_of_whole_runs_from_below() -> None:
    assert audit() <= 2


def narrow(*given: Any) -> Fraction:
    return Fraction(joint_norm(*given), 5)


def eager(bits: Any, scores: Any, epsilon: Fraction, spread: int, count: int) -> list[int]:
    return [int(np.argmax(scores))]


@pytest.mark.parametrize("fault", [("joint_norm", narrow), ("top_choices", eager)])
def test_faults_of_the_second_door(
    fault: tuple[str, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, *fault)
    assert audit() > 2
