"""The noise of one number in the convention of the published tables, for comparison only."""

from __future__ import annotations

import math

from dpsql.strategy.noise_law import Noise, law


def unit_variance(noise: Noise, epsilon: float, delta: float) -> float:
    """Return the variance of one number of unit sensitivity, analytic for Gaussian noise.

    Args:
        epsilon: of the release.
        delta: of the release; a pure law has none.

    >>> unit_variance("laplace", 1.0, 0.0), round(unit_variance("gaussian", 1.0, 1e-6) ** 0.5, 6)
    (2.0, 4.224679)
    """
    if law(noise).is_pure:
        return 2 / epsilon**2
    # Delta falls with sigma. Bisected by ratio: the answer may be of any order of magnitude.
    low, high = 1e-9, 1e9
    # 18 decades halved so often are at one double long before.
    for _ in range(200):
        middle = math.sqrt(low * high)
        if _gaussian_delta(middle, epsilon) > delta:
            low = middle
        else:
            high = middle
    return high**2


def _gaussian_delta(sigma: float, epsilon: float) -> float:
    """Return delta of the Gaussian mechanism. Source: Balle and Wang 2018, theorem 8."""
    half, far = 1 / (2 * sigma), epsilon * sigma
    beyond = math.exp(-0.5 * (half - far) ** 2) * 0.5 * _erfcx((half + far) / math.sqrt(2))
    return 0.5 * math.erfc((far - half) / math.sqrt(2)) - beyond


def _erfcx(x: float) -> float:
    """Return exp(x^2) erfc(x) for x >= 0, which neither overflows nor vanishes.

    >>> round(_erfcx(24.999) / _erfcx(25.0), 4), 0 < _erfcx(1e9) < 1e-9
    (1.0, True)
    """
    # exp(x^2) overflows a little above 26; from 25 on two terms of the series are right to 2e-6.
    if x < 25:
        return math.exp(x * x) * math.erfc(x)
    return (1 - 1 / (2 * x * x)) / (x * math.sqrt(math.pi))
