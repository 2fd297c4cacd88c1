"""The second, independent sampler: OpenDP's own measurements, where OpenDP certifies them.

OpenDP takes scales as floats and says by ``map`` what a measurement costs. A scale is therefore
raised, by a few units in its last place, until that cost is at most the exact one that is paid
for; where this fails nothing is measured. OpenDP adds the noise itself, to exact integers clamped
to 64 bits: clamping brings neighbours no further apart, and its saturation comes after the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import OperationalError
from dpsql.records import dataclass
from dpsql.strategy.noise_law import GAUSSIAN, LAPLACE, Noise, law

LOWEST, HIGHEST = -(2**63), 2**63 - 1
"""Ends of the integers that OpenDP takes; to cut at them brings no two tables further apart."""
STEPS = 12
"""Times a scale is raised, by 1, 2, 4, ... units in the last place, before giving up."""


@dataclass(frozen=True, slots=True)
class CertifiedMeasurement:
    """A measurement of integer vectors whose cost OpenDP has bounded.

    ``cost`` is OpenDP's bound as an exact fraction: of epsilon (Laplace), of rho (Gaussian).
    """

    measurement: Callable[[list[int]], list[int]]
    cost: Fraction

    def release(self, exact: NDArray[Any]) -> NDArray[np.int64]:
        """Return exact integers, flat, with noise; of int64 or of Python integers.

        Args:
            exact: integers of any shape, int64 or Python's.
        """
        clamped = [min(max(int(value), LOWEST), HIGHEST) for value in exact.ravel()]
        noisy = self.measurement(clamped) if clamped else []
        if len(noisy) != len(clamped) or not all(type(value) is int for value in noisy):
            raise _refusal("it did not return one integer per cell")
        return np.array(noisy, dtype=np.int64)


def certified(noise: Noise, sensitivity: int, scale: Fraction) -> CertifiedMeasurement:
    """Return OpenDP's measurement for a scale, or one a hair above it.

    ``sensitivity`` is the L1 (Laplace) or the squared L2 (Gaussian) sensitivity, ``scale`` the
    Laplace scale or sigma squared.
    Raises: OperationalError E_BACKEND when OpenDP is missing or does not certify the cost.
    Guarantee: by OpenDP, the release costs at most sensitivity / scale, or half of it in rho.
    """
    if sensitivity <= 0 or scale <= 0:
        raise _refusal("a sensitivity and a scale are positive")
    paid, is_l1 = law(noise).cost(sensitivity, scale), law(noise).norm == 1
    try:
        distance = sensitivity if is_l1 else _root_up(Fraction(sensitivity))
        first = _float_up(scale) if is_l1 else _root_up(scale)
    except OverflowError:
        raise _refusal("a scale is out of range") from None
    if distance > HIGHEST:
        raise _refusal("a sensitivity is out of range")
    candidate = first
    for step in range(STEPS):
        measurement = _make(noise, candidate)
        cost = float(measurement.map(distance))
        if math.isfinite(cost) and 0 < Fraction(cost) <= paid:
            return CertifiedMeasurement(measurement, Fraction(cost))
        candidate = candidate + 2**step * math.ulp(first)
    raise _refusal("it does not certify this cost")


def _make(noise: Noise, scale: float) -> Any:
    try:
        import opendp.prelude as dp  # opendp is optional
    except ImportError:
        raise OperationalError(
            "E_BACKEND",
            "the catalog asks for OpenDP's noise, and OpenDP is not installed",
            hint="pip install dpsql[opendp]",
        ) from None
    if law(noise) not in (LAPLACE, GAUSSIAN):
        raise _refusal("it has no such noise")
    if not math.isfinite(scale) or scale <= 0:
        raise _refusal("a scale is out of range")
    dp.enable_features("contrib")
    cells = dp.vector_domain(dp.atom_domain(T="i64"))
    try:
        if law(noise) is LAPLACE:
            return dp.m.make_laplace(cells, dp.l1_distance(T="i64"), scale=scale)
        return dp.m.make_gaussian(cells, dp.l2_distance(T="f64"), scale=scale)
    except Exception:
        raise _refusal("it does not make this measurement") from None


def _float_up(value: Fraction) -> float:
    """Return the least float that is not below a fraction.

    >>> _float_up(Fraction(1, 3)) > Fraction(1, 3), _float_up(Fraction(3, 4))
    (True, 0.75)
    """
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def _root_up(value: Fraction) -> float:
    """Return a float, at most two above the least, whose square is not below a fraction.

    >>> _root_up(Fraction(9, 4)), Fraction(_root_up(Fraction(2))) ** 2 >= 2
    (1.5, True)
    """
    near = math.sqrt(float(value))
    while Fraction(near) ** 2 < value:
        near = math.nextafter(near, math.inf)
    return near


def _refusal(why: str) -> OperationalError:
    return OperationalError(
        "E_BACKEND",
        f"OpenDP cannot be used for this request: {why}",
        hint='leave backend = "opendp" out of the catalog',
    )
