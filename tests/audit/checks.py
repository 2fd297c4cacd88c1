"""The audits: each raises AssertionError when the membrane breaks its promise."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.privacy.budget.accounting import Policy, laplace_cost
from dpsql.privacy.budget.ledger import Ledger
from dpsql.strategy.noise_law import Noise
from tests.audit.door import empty, plan_for, with_unit
from tests.audit.lower_bound import epsilon_lower_bound
from tests.privacy.judge import chi_square, gaussian_masses, lag_one, laplace_masses

SIDE = 1000
CERTAIN = 1e-6
HEAVY = 5
"""The column of the audited matrix with the largest norm."""


def residuals(noise: Noise, amount: Fraction, side: int = SIDE) -> None:
    """Measure an empty table of side^2 cells and compare what came with the declared law.

    Once more where that fails, since a sound sampler fails one run in a million.
    """
    worst = [residual_p_values(noise, amount, side)]
    if min(worst[0]) <= CERTAIN:
        worst.append(residual_p_values(noise, amount, side))
    assert min(worst[-1]) > CERTAIN, worst


def residual_p_values(noise: Noise, amount: Fraction, side: int) -> tuple[float, float, float]:
    """Return p-values of the shape, the spread and the independence of one measurement's noise."""
    plan = plan_for(noise, {"a": side, "b": side}, amount)
    (scale,) = plan.parts[0].scales
    z = empty(plan).measured()
    assert z.dtype.kind in "iO"
    reach = int(12 * scale) + 12 if noise == "laplace" else int(7 * scale**0.5) + 7
    law = laplace_masses if noise == "laplace" else gaussian_masses
    far = law(float(scale), 4 * reach)
    support = np.abs(np.arange(-4 * reach, 4 * reach + 1)).astype(np.float64)
    power = 1 if noise == "laplace" else 2
    mean, second = (float((support ** (k * power) * far).sum()) for k in (1, 2))
    found = float((np.abs(z.astype(np.float64)) ** power).mean())
    score = (found - mean) / ((second - mean**2) / z.size) ** 0.5
    shape = chi_square(z, law(float(scale), reach))
    return shape, float(2 * stats.norm.sf(abs(score))), lag_one(z)


def matrix() -> NDArray[np.int64]:
    """Return a 16-column matrix like an optimised strategy's; one column is heavier than all."""
    rows = np.vstack([900 * np.eye(16), np.triu(np.full((16, 16), 3)), np.full((1, 16), 40)])
    rows[:, HEAVY] *= 3
    return np.asarray(rows, dtype=np.int64)


def sensitivity(noise: Noise) -> None:
    """Add one unit to every cell in turn, and compare the change with what the noise covers."""
    for c in (1, 3):
        plan = plan_for(noise, {"a": matrix(), "b": 2}, Fraction(1, 2), c)
        (scale,) = plan.parts[0].scales
        for cell in itertools.product(range(16), range(2)):
            change = [abs(int(v)) for v in _exact(plan, cell, c)]
            if noise == "laplace":
                assert Fraction(sum(change)) / scale <= Fraction(1, 2), cell
            else:
                assert Fraction(sum(v * v for v in change)) / (2 * scale) <= Fraction(1, 2), cell


def _exact(plan: Any, cell: tuple[int, ...], rows: int) -> NDArray[np.int64]:
    from dpsql.privacy.doors.exact_products import apply_rows

    door, part = with_unit(plan, cell, rows), plan.parts[0]
    (block,) = part.strategy.blocks
    counts = door.cells.tally([part.resolutions[name] for name in block.attributes])
    return apply_rows(block.integer_rows, counts)


def scalar(noise: Noise = "laplace", runs: int = 4000) -> None:
    """Bound epsilon of a count from below by its outputs on an empty table and on one unit."""
    plan = plan_for(noise, {"a": 1}, Fraction(1))
    one, two = (door.measured for door in (empty(plan), with_unit(plan, (0,))))
    without = np.array([one() for _ in range(runs)], dtype=np.float64)
    present = np.array([two() for _ in range(runs)], dtype=np.float64)
    assert epsilon_lower_bound(without, present) <= 1.0


def columns(only: list[int] | None = None, runs: int = 600) -> None:
    """Bound epsilon from below for one unit in each column of a matrix measurement."""
    plan = plan_for("laplace", {"a": matrix()}, Fraction(1))
    base = empty(plan)
    without = np.array([base.measured() for _ in range(runs)], dtype=np.float64)
    for column in range(16) if only is None else only:
        near = with_unit(plan, (column,))
        present = np.array([near.measured() for _ in range(runs)], dtype=np.float64)
        assert epsilon_lower_bound(without, present) <= 1.0, column


def large_counts() -> None:
    """Measure counts so large that the exact rows wrap; nothing may be raised."""
    for rows in (2**20, 2**33, 2**52, 2**62):
        plan = plan_for("laplace", {"a": matrix()}, Fraction(1))
        assert with_unit(plan, (HEAVY,), rows).measured().size == 33


def single_use() -> None:
    """Measure twice with one receipt."""
    door = empty(plan_for("laplace", {"a": 4}, Fraction(1)))
    receipt = door.receipt()
    door.measured(receipt)
    try:
        door.measured(receipt)
    except LedgerError:
        return
    raise AssertionError("a receipt was used twice")


def transcript(directory: Path) -> None:
    """Ask for the whole budget until refused; add up what was granted."""
    policy = Policy(Fraction(1), Fraction(0))
    ledger = Ledger.create(directory / "ledger", directory / "anchors", policy, "audit")
    granted = Fraction(0)
    for epsilon in (Fraction(1, 2), Fraction(1), Fraction(1, 2), Fraction(1), Fraction(1, 10**6)):
        try:
            ledger.debit(laplace_cost(policy, epsilon), "plan", "data")
        except BudgetExceeded:
            continue
        granted += epsilon
    assert granted == 1
    assert ledger.verify().remaining_epsilon == 0


def no_refund(directory: Path) -> None:
    """Fail after a debit; the charge must stay."""
    policy = Policy(Fraction(1), Fraction(0))
    ledger = Ledger.create(directory / "ledger", directory / "anchors", policy, "audit")
    receipt = ledger.debit(laplace_cost(policy, Fraction(1, 2)), "plan", "data")
    ledger.settle(receipt, "failed")
    again = Ledger.open(directory / "ledger", directory / "anchors", policy, "audit")
    assert again.verify().spent_epsilon == Fraction(1, 2)
