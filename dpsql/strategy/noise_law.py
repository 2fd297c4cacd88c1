"""Noise laws as numbers: what noise costs, how large it is, how budgets are shared under it.

Nothing here draws noise: samplers are in ``dpsql.privacy.noise``, tied to a law by its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.plugins import plugged
from dpsql.errors import DataError, OperationalError, printable
from dpsql.records import dataclass, field

Noise: TypeAlias = str
"""The name of a noise law, as settings and stored files write it."""

Norm: TypeAlias = Literal[1, 2]
"""The L1 norm, or the squared L2 norm."""

GROUP = "dpsql.noise_laws"
"""The entry points by which other packages add laws."""

FINE = 2.0**30
"""A scale beside which integers are fine: the limit of a law's variance is read there."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)

AUTO = "auto"
"""The setting that leaves the law to dpsql: that of the least expected error."""

NO_NOISE = 2.0**-100
"""The least variance that is told from none, so that precisions are finite and can be added up."""


def is_name(name: object) -> bool:
    """Say whether a name is one that noise laws may have, installed or not."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """A law of integer noise: its cost in budget, and its size.

    Under norm 1 a sensitivity is the largest L1 norm of a column, a budget is epsilon, and
    ``scale`` is a length; under norm 2 it is the largest squared L2 norm, a budget is rho, and
    ``scale`` is a variance. ``rate`` is what noise of scale one costs at a sensitivity of one.
    ``variance`` gives the variance of noise of a scale; a 95 % interval is ``interval`` standard
    errors wide on either side.
    Guarantee: independent noise of a scale on integers of a sensitivity costs at most
    rate * sensitivity / scale, in exact fractions. Under norm 1 that is so if P(z) and P(z + 1)
    differ by a factor of at most exp(rate / scale) for every integer z; under norm 2, if noise on
    one integer that moves by d is (rate * d^2 / scale)-zCDP for every integer d.
    Raises: ValueError unless the name is a plain word, and rate and interval are positive.
    """

    name: Noise
    norm: Norm
    rate: Fraction
    variance: Callable[[float], float]
    interval: float
    is_pure: bool = field(init=False)
    """True if budgets are epsilons, without a delta; else they are rhos."""

    def __post_init__(self) -> None:
        if not is_name(self.name) or self.name == AUTO:
            raise ValueError("the name of a noise law is a plain word in lower case")
        if self.norm not in (1, 2) or type(self.rate) is not Fraction or self.rate <= 0:
            raise ValueError("a noise law has norm 1 or 2, and a positive fraction as rate")
        if not 0 < self.interval < math.inf:
            raise ValueError("the interval of a noise law is a positive number")
        object.__setattr__(self, "is_pure", self.norm == 1)

    def budget(self, epsilon: Fraction, rho: Fraction | None) -> Fraction | None:
        """Return the one of the two that this law spends."""
        return epsilon if self.is_pure else rho

    def cost(self, sensitivity: int | Fraction, scale: Fraction) -> Fraction:
        """Return the exact epsilon or rho that noise of a scale costs.

        >>> LAPLACE.cost(6, Fraction(3)), GAUSSIAN.cost(6, Fraction(3))
        (Fraction(2, 1), Fraction(1, 1))
        """
        return self.rate * sensitivity / scale

    def scale(self, sensitivity: int | Fraction, amount: Fraction) -> Fraction:
        """Return the exact scale that costs an amount of budget; larger ones cost less."""
        return self.rate * sensitivity / amount

    def powers(self, entries: NDArray[Any]) -> NDArray[Any]:
        """Return what entries, of any shape, add to the norm of their column."""
        return np.asarray(np.abs(entries) if self.norm == 1 else entries * entries)

    def stddev(self, scale: float) -> float:
        """Return the standard error of noise; that of Laplace noise as of fine integers."""
        return math.sqrt(2) * scale if self is LAPLACE else math.sqrt(self.variance(scale))

    def squared(self, sensitivity: float) -> float:
        """Return a sensitivity, or a sensitivity over a share of the budget, as a variance.

        >>> LAPLACE.squared(3.0), GAUSSIAN.squared(3.0)
        (9.0, 3.0)
        """
        return sensitivity**2 if self.norm == 1 else sensitivity

    @property
    def share_power(self) -> float:
        """Shares in proportion to this power of the errors make their sum least."""
        return 1 / 3 if self.norm == 1 else 1 / 2

    def unit_variance(self, amount: float) -> float:
        """Return the variance at a sensitivity of one, in the limit of fine integers."""
        power = 3 - self.norm
        limit = self.variance(FINE) / FINE**power
        return limit * (float(self.rate) ** power) / amount**power

    def spread(self, sensitivity: float, amount: float) -> float:
        """Return the Laplace scale, or the standard error under norm 2, in that limit."""
        return sensitivity / amount if self.norm == 1 else math.sqrt(sensitivity / (2 * amount))

    def spread_of(self, stddev: float) -> float:
        """Return the spread of noise of a standard error."""
        return stddev / math.sqrt(2) if self.norm == 1 else stddev

    @property
    def mean_size(self) -> float:
        """The expected absolute noise at a spread of one."""
        return 1.0 if self.norm == 1 else math.sqrt(2 / math.pi)

    def highest(self, spread: float, count: float) -> float:
        """Return what the largest of so many noise variables is about."""
        return spread * (math.log(count) if self.norm == 1 else math.sqrt(2 * math.log(count)))

    def exceeded(self, stddev: float, chance: float) -> float:
        """Return what one noise variable is above with a chance below one half."""
        if self.norm == 1:
            return self.spread_of(stddev) * -math.log(2 * chance)
        from statistics import NormalDist  # few statements ask for a threshold

        return -stddev * NormalDist().inv_cdf(chance)


def laplace_variance(scale: float) -> float:
    """Return the variance of the discrete Laplace law of a scale, or NO_NOISE if it has less.

    It is 2a/(1-a)^2 with a = exp(-1/scale).

    >>> round(laplace_variance(1.0), 6), round(laplace_variance(1e6) / 2e12, 9)
    (1.841347, 1.0)
    >>> laplace_variance(1e-6) == laplace_variance(0.01) == NO_NOISE
    True
    """
    # sinh(300) squared is still a double, and far beyond where NO_NOISE is returned.
    half = min(0.5 / scale, 300.0)
    return max(0.5 / math.sinh(half) ** 2, NO_NOISE)


def gaussian_variance(scale: float) -> float:
    """Return sigma^2, which the variance of the discrete Gaussian is at most.

    Source: Canonne, Kamath and Steinke 2020, section 2.
    """
    return scale


# Sums of independent Laplace variables have their 95 % point between the normal one (1.96) and
# that of a single Laplace variable (2.12), which is taken.
LAPLACE = NoiseLaw("laplace", 1, Fraction(1), laplace_variance, 2.1184)
GAUSSIAN = NoiseLaw("gaussian", 2, Fraction(1, 2), gaussian_variance, 1.96)

LAWS = {each.name: each for each in (LAPLACE, GAUSSIAN)}


@cache
def law(name: str) -> NoiseLaw:
    """Return the noise law of a name, of ours or of an installed package.

    Raises: DataError (E_SETTING) where there is none; OperationalError (E_NOISE) for one of an
    installed package that cannot be used.
    """
    return LAWS[name] if name in LAWS else _installed(name)


def read_noise(value: object) -> Noise:
    """Return a setting of the noise: the name of a law, or AUTO. Raises: DataError (E_SETTING)."""
    return AUTO if value == AUTO else law(str(value)).name


def is_law(name: object) -> bool:
    """Say whether there is a noise law of a name that can be used."""
    try:
        return isinstance(name, str) and law(name).name == name
    except (DataError, OperationalError):
        return False


def _installed(name: str) -> NoiseLaw:
    found = plugged(GROUP, name, unusable) if is_name(name) else None
    if found is None:
        from importlib.metadata import entry_points  # only where a name is unknown

        known = (AUTO, *LAWS, *sorted(entry_points(group=GROUP).names))
        hint = f"one of {', '.join(known)}"
        raise DataError("E_SETTING", f"noise = {printable(name)}", hint=hint)
    if not isinstance(found, NoiseLaw) or found.name != name:
        raise unusable(name, "its entry point names no NoiseLaw of that name")
    return found


def unusable(name: str, why: str) -> OperationalError:
    """Return the error for a noise law of an installed package that is not used."""
    return OperationalError(
        "E_NOISE",
        f"the noise law {name!r} of an installed package cannot be used: {why}",
        hint=f"use noise = {LAPLACE.name}, or mend or remove that package",
    )


def needs_delta(name: Noise) -> bool:
    """Say whether a setting asks for noise that is not drawn at a delta of 0."""
    return name != AUTO and not law(name).is_pure


def admitted(name: Noise, delta: Fraction) -> tuple[Noise, ...]:
    """Return the laws that a setting leaves open, at a delta.

    >>> admitted(AUTO, Fraction(0)), admitted(GAUSSIAN.name, Fraction(0))
    (('laplace',), ('gaussian',))
    """
    if name != AUTO:
        return (name,)
    return tuple(each.name for each in LAWS.values() if delta or each.is_pure)
