"""Comparison of errors: whether a release answers as accurately as a new measurement would."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np

from dpsql.answer.assemble import find_errors, read_variances
from dpsql.answer.implied import ImpliedRelease
from dpsql.answer.synthetic_tables import Synthetic
from dpsql.plan.plan import Plan
from dpsql.plan.request import PlannedRequest, Request
from dpsql.plan.target import Readings
from dpsql.records import dataclass
from dpsql.sealed import SealedConnection
from dpsql.vectors import Vector

TIE = 1e-6
"""Relative difference of standard errors that means nothing: strategies are found numerically."""

Errors = tuple[tuple[Vector | None, ...], ...]


@dataclass(frozen=True, slots=True)
class ComparedErrors:
    """The errors of a release beside those of a new measurement.

    ``old`` and ``new`` are root mean squares over all numbers that are read off; ``least`` and
    ``most`` bound old over new, number by number. ``mixed`` says that counts and sums are among
    them, so that one figure for all means little.
    """

    old: float
    new: float
    least: float
    most: float
    mixed: bool

    @property
    def is_no_worse(self) -> bool:
        """True if no number has a larger error."""
        return self.most <= 1 + TIE

    def __str__(self) -> str:
        if self.least >= 1 - TIE and self.is_no_worse:
            return "with the errors of a new measurement"
        # A ratio of three digits would read as 1.
        if not self.is_no_worse and self.most < 1.001:
            return "with errors slightly above those of a new measurement"
        if not self.mixed:
            return f"with an error of {self.old:.4g} where a new measurement has {self.new:.4g}"
        span = f"{self.least:.3g} to {self.most:.3g}"
        if math.isclose(self.least, self.most, rel_tol=1e-3):
            span = f"{self.most:.3g}"
        return f"with errors {span} times those of a new measurement"


def compare(request: Request, known: ImpliedRelease, planned: PlannedRequest) -> ComparedErrors:
    """Compare the expected errors of every number that is measured: public facts only.

    Args:
        known: the release that would answer.
        planned: the new measurement.
    """
    old = _variances(request, known.release.plan, known.readings)
    new = _variances(request, planned.plan, planned.readings)
    pairs = [(old[place], new[place]) for place in old]
    left, right = (np.concatenate(each) for each in zip(*pairs, strict=True))
    ratios = np.sqrt(np.divide(left, right, out=np.full(left.shape, np.inf), where=right > 0))
    ratios[left <= right] = np.minimum(ratios, 1)[left <= right]  # also where both are nothing
    return ComparedErrors(
        math.sqrt(left.mean()),
        math.sqrt(right.mean()),
        float(ratios.min()),
        float(ratios.max()),
        request.is_mixed,
    )


def shown_ratio(
    request: Request,
    known: ImpliedRelease,
    planned: PlannedRequest,
    sealed: SealedConnection,
    synthetics: Mapping[str, Synthetic],
) -> float:
    """Return the largest ratio of a shown number's error to that under a new plan.

    Errors of ratios and the like depend on the answers; those of the release are taken for both.
    0 where nothing is shown but what is measured.

    Args:
        known: the release that would answer.
        planned: the new measurement.
        synthetics: the models that statements are about, by table.
    """
    if not any(_derives(request, index) for index in range(len(request.statements))):
        return 0.0
    estimates = dict(enumerate(known.release.plan.estimates(known.release.values)))
    found: list[Errors] = []
    for plan, readings in (
        (known.release.plan, known.readings),
        (planned.plan, planned.readings),
    ):
        other = (readings, dict(enumerate(plan.forecasts)))
        found.append(
            find_errors(request, known.readings, estimates, other, plan.noise, sealed, synthetics)
        )
    columns = (zip(*each, strict=True) for each in zip(*found, strict=True))
    return max((_ratio(*pair) for pair in itertools.chain(*columns)), default=0.0)


def _derives(request: Request, index: int) -> bool:
    """True if a statement shows more than the numbers that are measured."""
    item = request.statements[index]
    outputs = [output for select in item.selects for output in select.query.shell.outputs]
    return item.outer is not None or any(
        o.stddev is not None and o.aggregate is None for o in outputs
    )


def _ratio(left: Vector | None, right: Vector | None) -> float:
    """The largest ratio of the known errors of a column; 0 where there is none.

    Where rows depend on errors, nothing is alike.
    """
    if left is None or right is None:
        return 0.0
    if len(left) != len(right):
        return math.inf
    known = ~(left.nulls() | right.nulls())
    one, two = left.numbers()[known], right.numbers()[known]
    ratios = np.divide(one, two, out=np.where(one > 0, np.inf, 1.0), where=two > 0)
    return float(ratios.max(initial=0.0))


def _variances(
    request: Request, plan: Plan, readings: Readings
) -> dict[tuple[int, int], np.ndarray]:
    forecasts = dict(enumerate(plan.forecasts))
    return read_variances(request, readings, forecasts)
