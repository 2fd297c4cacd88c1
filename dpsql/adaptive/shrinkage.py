"""Counts drawn towards a smooth tail by empirical Bayes, after measuring and free."""

from __future__ import annotations

import numpy as np

from dpsql.adaptive.handle import Floats
from dpsql.answer.project import project_monotone

REACH = 2
"""Bins on either side that the tail is averaged over."""
LEAST = 0.5
"""What every bin is expected to deviate by at least."""


def draw_in(estimate: Floats, covariance: Floats, variance: float) -> Floats:
    """Return least squares counts (m,) drawn towards their own smoothed monotone tail.

    The estimate has covariance ``variance * covariance``. With mu the tail and P the diagonal of
    (mu + 1/2)^2, it is mu + P (P + covariance)^-1 (estimate - mu): counts that stand out from the
    noise stay. Guarantee: a function of its arguments alone.
    Source: Efron and Morris 1973, with a prior mean from isotonic regression of the tail sums.
    """
    noise = variance * covariance
    mean = smooth_tail(estimate, noise)
    prior = np.diag((mean + LEAST) ** 2)
    drawn = mean + prior @ np.linalg.solve(prior + noise, estimate - mean)
    return np.asarray(drawn)


def smooth_tail(estimate: Floats, noise: Floats) -> Floats:
    """Return non-negative counts whose tail sums fit those of the estimate, averaged over bins.

    ``noise`` (m, m) is the covariance of the estimate.

    >>> smooth_tail(np.array([9.0, 9.0, 9.0, 9.0]), np.eye(4)).round(6).tolist()
    [9.0, 9.0, 9.0, 9.0]
    """
    backwards = noise[::-1, ::-1]
    variances = np.diag(np.cumsum(np.cumsum(backwards, axis=0), axis=1))
    tails = project_monotone(np.cumsum(estimate[::-1]), np.maximum(variances, 1e-300))
    counts = np.diff(tails, prepend=0.0)[::-1]
    padded = np.pad(counts, REACH, mode="edge")
    return np.convolve(padded, np.full(2 * REACH + 1, 1 / (2 * REACH + 1)), mode="valid")
