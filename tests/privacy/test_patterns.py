"""Patterns behind the door: counted exactly, of sensitivity one, refused when they are none."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.privacy.doors import exact_counts, look
from dpsql.privacy.noise.samplers import SAMPLERS
from dpsql.strategy.noise_law import Noise
from dpsql.workload.term import Pattern
from tests.privacy.looks import World, dense, some_candidate

DOMAIN = {"a": 3, "c": 4, "b": 2}
COUNTS = np.random.default_rng(0).integers(0, 50, (3, 4, 2))
LABELS = {"a": np.array([0, 1, 0]), "c": np.array([2, 0, 0, 1])}
TRUTH = np.array([[True, False, True], [False, True, False]])
PATTERN = Pattern(LABELS, TRUTH)
EXACT = sum(
    int(COUNTS[a, c].sum())
    for a in range(3)
    for c in range(4)
    if TRUTH[LABELS["a"][a], LABELS["c"][c]]
)


def silent(bits: object, scale: Fraction, size: int) -> NDArray[np.int64]:
    """Noise of zero."""
    return np.zeros(size, dtype=np.int64)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("c", [1, 3])
def test_a_pattern_is_counted_with_sensitivity_one(
    noise: Noise, c: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SAMPLERS, noise, silent)
    handle = World(DOMAIN, COUNTS).opened(1, noise, c)
    amount = Fraction(1, 4)
    both = PATTERN.within({"b": np.array([True, False])})
    one, two = handle.measure([PATTERN, both], amount)
    assert (one.values.tolist(), one.pattern, one.candidate) == ([EXACT], PATTERN, ())
    assert two.values[0] <= EXACT
    # two counts at once, each of which one row changes by one
    scale = math.sqrt(2) * 2 * c * 4 if noise == "laplace" else math.sqrt(2 * c * c / 2 * 4)
    assert one.stddev == pytest.approx(scale, rel=1e-6)


def test_scores_of_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, int]] = []

    def watch(_: object, scores: Any, epsilon: Fraction, spread: int, count: int) -> list[int]:
        seen.append(([int(s) for s in scores], spread))
        return [0]

    monkeypatch.setattr(look, "top_choices", watch)
    handle = World(DOMAIN, COUNTS).opened(1, c=2)
    handle.select([PATTERN, PATTERN], [np.array([10.4]), np.array([1e4])], amount=Fraction(1))
    assert seen == [([abs(EXACT - 10), 10**4 - EXACT], 4)]


@pytest.mark.parametrize(
    "bad",
    [
        Pattern(LABELS, np.array([[2, 0, 1], [0, 1, 0]])),
        Pattern(LABELS, TRUTH[:, :2]),
        Pattern({**LABELS, "a": np.array([0, -1, 0])}, TRUTH),
        Pattern({**LABELS, "a": np.array([0, 1])}, TRUTH),
        Pattern({"z": LABELS["a"], "c": LABELS["c"]}, TRUTH),
        Pattern({"a": LABELS["a"]}, TRUTH),
        Pattern({}, np.array(True)),
    ],
)
def test_what_is_no_pattern_costs_nothing(bad: Pattern) -> None:
    handle = World(DOMAIN, COUNTS).opened(1)
    if bad.truth.ndim == 0:
        assert handle.measure([bad], Fraction(1))[0].stddev > 1  # the number of rows
        return
    with pytest.raises(InternalError):
        handle.measure([bad], Fraction(1))
    assert handle.remaining() == 1


def test_wide_products_are_counted_by_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    monkeypatch.setattr(exact_counts, "LISTED", 1)
    monkeypatch.setitem(SAMPLERS, "laplace", silent)
    for _ in range(40):
        candidate = some_candidate(rng, DOMAIN)
        exact = dense(candidate, DOMAIN) @ COUNTS.ravel()
        (found,) = World(DOMAIN, COUNTS).opened(1).measure([candidate], Fraction(1))
        assert found.values.tolist() == exact.tolist()
