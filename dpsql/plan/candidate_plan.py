"""A layout with a strategy for it, and how such are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from dpsql.errors import ProgrammingError
from dpsql.plan.target import Target, mean_variances
from dpsql.records import dataclass
from dpsql.search.select import CERTIFIED
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.product import assemble
from dpsql.workload.cells import unit_reach
from dpsql.workload.layout import Layout, Place
from dpsql.workload.workload import Product, Workload

WORTHWHILE = 2e-3
"""Relative gain below which columns are not joined: what is measured there answers little else."""
EASIER = 2e-3
"""Part by which the worst of variances has to be less for a plan to be easier than another."""
TOLD = 9
"""Decimal places of errors that are compared: least squares are exact to some fifteen."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidatePlan:
    """A layout of a target with a strategy.

    ``means`` are the mean variances of the rows of every answer at a unit budget, ``error`` the
    weighted total, ``lower`` a certified bound on it, 0 where none is known. ``coarse`` are other
    strategies of the layout that may be better where noise is not fine beside whole numbers.
    ``free`` is the least error that was found without limits, 0 where that was not looked for.
    ``easier`` are other plans that stay further within limits for more error, in that order.
    """

    layout: Layout
    strategy: Strategy
    lower: float
    means: Mapping[Place, float]
    error: float
    coarse: tuple[Strategy, ...] = ()
    free: float = 0.0
    easier: tuple[CandidatePlan, ...] = ()

    @property
    def is_optimal(self) -> bool:
        """True if no strategy of the layout can have an error that is noticeably less."""
        return self.error <= self.lower * (1 + CERTIFIED)


def total_error(target: Target, layout: Layout, means: Mapping[Place, float]) -> float:
    """The weighted total error of all rows of a target, from the mean variances of its answers."""
    asked, rows = target.asked, layout.rows
    return sum(asked[p].weight ** 2 * rows[p] * mean for p, mean in means.items())


def by_error(chosen: CandidatePlan) -> float:
    """The error, without what is rounding: of equal ones the first is taken, which is simpler.

    What is measured on joined columns answers little else and has to be worth it.
    """
    joined = any(len(each.columns) > 1 for each in chosen.layout.resolutions.values())
    return float(f"{chosen.error * (1 + WORTHWHILE * joined):.{TOLD}e}")


@contextmanager
def where_it_fits() -> Iterator[None]:
    """Go on after what does not fit a workload: a family that is refused with E_TOO_LARGE."""
    try:
        yield
    except ProgrammingError as error:
        if error.code != "E_TOO_LARGE":
            raise


def least_error(found: Iterable[CandidatePlan]) -> float:
    """The least of their errors, infinite where there are none."""
    return min((each.error for each in found), default=math.inf)


def worst_of(chosen: CandidatePlan, limits: Mapping[Place, float]) -> float:
    """The largest mean variance of an answer, as a multiple of its limit."""
    return max(mean / limits[place] for place, mean in chosen.means.items())


def emphasised(layout: Layout, emphasis: Mapping[Place, float]) -> Workload:
    """Return the workload of a layout with the weights of answers multiplied."""
    workload = layout.workload
    products = [
        Product(product.factors, product.weight * emphasis[place])
        for place, reading in layout.products.items()
        for _, product in reading
    ]
    return Workload(workload.domain, products, pinned=workload.pinned)


def easier_than(
    best: CandidatePlan, found: Iterable[CandidatePlan], limits: Mapping[Place, float]
) -> tuple[CandidatePlan, ...]:
    """Return plans in the order of their errors, of which each stays further within limits."""
    out, worst = [], worst_of(best, limits)
    for each in sorted(found, key=by_error):
        if worst_of(each, limits) < worst * (1 - EASIER):
            out.append(each)
            worst = worst_of(each, limits)
    return tuple(out)


def count_units(target: Target, noise: Noise) -> CandidatePlan:
    """One number per union of cells: counts of units do not add up.

    Different values do, each of them a union that has a row: so many change with a unit that it
    may be better to measure each, or what they add up to.
    """
    from dpsql.workload.unions import sum_coefficients  # few count units

    (layout,) = target.layouts
    workload, resolutions = layout.workload, layout.resolutions
    names = workload.attributes
    reach = unit_reach([resolutions[name] for name in names], target.rows_per_unit)
    found = []
    for rows in ({}, *([sum_coefficients(workload)] if target.occupied else [])):
        strategy = assemble(workload.domain, rows, {names: 1.0}, noise, "one count per group")
        moved = int(reach ** law(noise).norm) if rows else reach
        times = law(noise).squared(moved)
        forecast = strategy.forecast(strategy.unit_variances())
        means = mean_variances(forecast, layout.products)
        means = {place: mean * times for place, mean in means.items()}
        error = strategy.unit_error(workload) * times
        found.append(CandidatePlan(layout, strategy, 0.0, means, error))
    return min(found, key=lambda chosen: chosen.error)
