"""Statistical verdicts on samples: a fault is called only when two independent runs agree."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
SUSPICIOUS = 1e-4
"""A p-value below this in each of two runs is a failure: a false alarm in 1e8 checks."""


def agrees(p_value: Callable[[], float]) -> bool:
    """Say whether a test passes, giving it one repetition."""
    return p_value() > SUSPICIOUS or p_value() > SUSPICIOUS


def laplace_masses(scale: float, reach: int) -> Floats:
    """Return P(Z = z) for z in -reach..reach of the discrete Laplace law."""
    z = np.abs(np.arange(-reach, reach + 1))
    return np.asarray(np.exp(-z / scale) * np.tanh(0.5 / scale))


def gaussian_masses(sigma2: float, reach: int) -> Floats:
    """Return P(Z = z) for z in -reach..reach of the discrete Gaussian law."""
    far = max(reach, int(40 * sigma2**0.5) + 40)
    z = np.arange(-far, far + 1, dtype=np.float64)
    weights = np.exp(-(z**2) / (2 * sigma2))
    return np.asarray((weights / weights.sum())[far - reach : far + reach + 1])


def chi_square(sample: NDArray[Any], masses: Floats, least: float = 8.0) -> float:
    """Return the p-value of a sample against masses on -reach..reach, tails pooled.

    Neighbouring values are pooled until each group expects at least ``least``.
    """
    reach = masses.size // 2
    clipped = np.clip(sample.astype(np.int64), -reach - 1, reach + 1) + reach + 1
    seen = np.bincount(clipped, minlength=2 * reach + 3).astype(np.float64)
    tail = max(0.0, (1.0 - float(masses.sum())) / 2)
    expected = np.concatenate(([tail], masses, [tail])) * sample.size
    group = np.zeros(expected.size, dtype=np.int64)
    total, label = 0.0, 0
    for place, value in enumerate(expected):
        group[place] = label
        total += float(value)
        if total >= least:
            label, total = label + 1, 0.0
    group = np.minimum(group, max(0, label - 1))
    o, e = np.bincount(group, weights=seen), np.bincount(group, weights=expected)
    return float(stats.chi2.sf(((o - e) ** 2 / e).sum(), o.size - 1))


def ks_laplace(sample: NDArray[Any], scale: Fraction) -> float:
    """Return the two-sided Kolmogorov p-value against a discrete Laplace law of large scale."""
    s = float(scale)
    return float(stats.kstest(sample.astype(np.float64), stats.laplace(scale=s).cdf).pvalue)


def two_sample(first: NDArray[Any], second: NDArray[Any], groups: int = 30) -> float:
    """Return the chi-square p-value that two samples have one law."""
    edges = np.unique(np.quantile(np.concatenate((first, second)), np.linspace(0, 1, groups)))
    rows = [
        np.bincount(np.searchsorted(edges, s), minlength=edges.size + 1) for s in (first, second)
    ]
    table = np.array(rows)[:, np.array(rows).sum(axis=0) > 0]
    return float(stats.chi2_contingency(table).pvalue)


def lag_one(sample: NDArray[Any]) -> float:
    """Return the p-value that neighbours are uncorrelated."""
    x = sample.astype(np.float64)
    if x.std() == 0:
        return 0.0
    r = float(np.corrcoef(x[:-1], x[1:])[0, 1])
    return float(2 * stats.norm.sf(abs(r) * (x.size - 1) ** 0.5))
