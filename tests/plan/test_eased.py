"""Pieces of a request that share a budget: plans of a little more error that leave others more."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.plan import division
from dpsql.plan.division import eased
from dpsql.plan.plan import shared_error
from dpsql.records import dataclass


@dataclass(frozen=True)
class Alone:
    """What is read of a plan: its error, and the part of the budget that its limits take."""

    error: float
    least: float
    easier: tuple[Alone, ...] = ()
    free: float = 1.0


@dataclass(frozen=True)
class Whole:
    """Columns that are read of all that is asked."""

    limits: None = None


@dataclass(frozen=True)
class Piece:
    """What is read of a piece."""

    chosen: Alone
    noise: str
    whole: Whole = Whole()

    @property
    def least(self) -> float:
        """As of a piece that is planned."""
        return self.chosen.least


def random_piece(rng: np.random.Generator, noise: str) -> Piece:
    """A piece of which each plan has more error than the one before, and takes less."""
    count = int(rng.integers(0, 4))
    errors = np.cumprod(1 + rng.random(count + 1)) * 10 ** rng.uniform(0, 6)
    least = np.sort(rng.random(count + 1))[::-1]
    found = [Alone(float(e), float(m)) for e, m in zip(errors, least, strict=True)]
    first = Alone(found[0].error, found[0].least, tuple(found[1:]), 7.0)
    return Piece(first, noise)


def together(pieces: list[Piece], noise: str) -> tuple[float, float]:
    """What is missing for limits, and the error."""
    least = [each.least for each in pieces]
    whole = max(1.0, sum(least))
    fitted = [part / whole * (1 - division.ROUNDING) for part in least]
    return whole, shared_error([each.chosen.error for each in pieces], fitted, noise)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_no_other_plan_of_one_piece_is_better(noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "plain_cost", lambda *_: 1.0)
    rng = np.random.default_rng(113)
    gained = 0
    for _ in range(300):
        pieces = [random_piece(rng, noise) for _ in range(int(rng.integers(1, 5)))]
        (found,) = eased([pieces])  # type: ignore[list-item]
        error = together(found, noise)  # type: ignore[arg-type]
        assert error <= together(pieces, noise)
        gained += error < together(pieces, noise)
        for place, piece in enumerate(pieces):
            assert found[place].chosen.free == piece.chosen.free
            for other in (piece.chosen, *piece.chosen.easier):
                tried = [*found[:place], Piece(other, noise), *found[place + 1 :]]
                assert error <= together(tried, noise)  # type: ignore[arg-type]
    assert gained > 100
