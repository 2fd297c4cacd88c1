"""A lower bound of epsilon from outputs alone: train a score on one half, bound on the other."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Rows = NDArray[np.float64]
ALPHA = 1e-4


def epsilon_lower_bound(
    first: Rows, second: Rows, delta: float = 0.0, alpha: float = ALPHA
) -> float:
    """Return an epsilon that the mechanism exceeds, wrong with probability at most alpha.

    ``first`` and ``second`` are outputs on neighbouring tables, one row each. The score is a
    logistic regression on y, |y - median of first| and |y - median of second|; its threshold is
    chosen on the training half. Both directions count. Source: Clopper and Pearson 1934 bounds.
    """
    half = len(first) // 2
    medians = [np.median(rows[:half], axis=0) for rows in (first, second)]
    spread = np.median(np.abs(first[:half] - medians[0]), axis=0) + 1
    features = [_features(rows, medians, spread) for rows in (first, second)]
    weights = _logistic(features[0][:half], features[1][:half])
    scores = [rows @ weights for rows in features]
    best = 0.0
    for sign in (1.0, -1.0):
        one, two = (sign * score for score in scores)
        above, below = (two, one) if sign > 0 else (one, two)
        cut = _threshold(above[:half], below[:half], delta, alpha)
        hits, misses = int((above[half:] > cut).sum()), int((below[half:] > cut).sum())
        best = max(best, _bound(hits, misses, len(above) - half, delta, alpha))
    return best


def _features(rows: Rows, medians: list[Rows], spread: Rows) -> Rows:
    parts = [rows / spread, *(np.abs(rows - median) / spread for median in medians)]
    return np.hstack([*parts, np.ones((len(rows), 1))])


def _logistic(zeros: Rows, ones: Rows, steps: int = 12, ridge: float = 1.0) -> Rows:
    """Fit by Newton steps with a small ridge."""
    x = np.vstack([zeros, ones])
    y = np.concatenate([np.zeros(len(zeros)), np.ones(len(ones))])
    w = np.zeros(x.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + ridge * np.eye(x.shape[1])
        w = w + np.linalg.solve(hessian, x.T @ (y - p) - ridge * w)
    return np.asarray(w)


def _threshold(above: Rows, below: Rows, delta: float, alpha: float) -> float:
    cuts = np.unique(np.quantile(np.concatenate([above, below]), np.linspace(0.02, 0.98, 49)))
    n = len(above)
    counts = [(int((above > c).sum()), int((below > c).sum())) for c in cuts]
    bounds = [_bound(hits, misses, n, delta, alpha) for hits, misses in counts]
    return float(cuts[int(np.argmax(bounds))])


def _bound(hits: int, misses: int, runs: int, delta: float, alpha: float) -> float:
    """Return ln((least chance of a hit - delta) / largest chance of a miss)."""
    level = alpha / 4
    low = float(stats.beta.ppf(level, hits, runs - hits + 1)) if hits else 0.0
    high = float(stats.beta.ppf(1 - level, misses + 1, runs - misses)) if misses < runs else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf
