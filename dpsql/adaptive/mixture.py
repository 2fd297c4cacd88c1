"""Fit a mixture of product distributions to noisy answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpsql.adaptive.adam import Adam
from dpsql.adaptive.handle import Floats, Measured
from dpsql.adaptive.relaxed import ProductMixture
from dpsql.adaptive.simplices import layout
from dpsql.adaptive.targets import Targets

COMPONENTS = 200
STEPS = 100
RATE = 0.1
SPREAD = 0.5
SMALLEST = 1e-12


def softmax_blocks(theta: Floats, domain: Mapping[str, int]) -> Floats:
    """Return the softmax of every block of columns, shape (C, sum of sizes)."""
    out = np.empty_like(theta)
    for columns in layout(domain).values():
        part = theta[:, columns]
        part = np.exp(part - part.max(axis=1, keepdims=True))
        out[:, columns] = part / part.sum(axis=1, keepdims=True)
    return out


def softmax_pull(p: Floats, gradient: Floats, domain: Mapping[str, int]) -> Floats:
    """Return the gradient with respect to theta, given the one with respect to the softmax."""
    scaled = p * gradient
    for columns in layout(domain).values():
        scaled[:, columns] -= p[:, columns] * scaled[:, columns].sum(axis=1, keepdims=True)
    return scaled


def fit_mixture(
    domain: Mapping[str, int],
    measurements: Sequence[Measured],
    total: float,
    *,
    warm: ProductMixture | None = None,
    components: int = COMPONENTS,
    steps: int = STEPS,
    rate: float = RATE,
    rng: np.random.Generator,
    progress: Callable[[int, float], None] | None = None,
) -> ProductMixture:
    """Return a mixture of products near the measurements, weighted by 1 / variance.

    Adam with cosine decay on softmax blocks, from ``warm`` or from small random blocks. The best
    iterate is returned. Source: GEM (Liu, Vietri, Wu 2021) with a fixed set of components.
    """
    targets = Targets.read(
        domain,
        [m.candidate for m in measurements],
        [m.values for m in measurements],
        [m.stddev for m in measurements],
        total,
        np.float32,
    )
    width = sum(domain.values())
    theta: Any
    if warm is None:
        theta = SPREAD * rng.standard_normal((components, width), dtype=np.float32)
    else:
        theta = np.log(np.maximum(warm.table, SMALLEST)).astype(np.float32)
    adam = Adam(rate)
    best, least = softmax_blocks(theta, domain), math.inf
    for step in range(steps + 1):
        p = softmax_blocks(theta, domain)
        loss, gradient = targets.value_and_gradient(p)
        if loss < least:
            best, least = p, loss
        if progress is not None:
            progress(step, loss)
        if step < steps:
            scale = 0.5 * (1 + math.cos(math.pi * step / steps))
            adam.step(theta, softmax_pull(p, gradient, domain), scale)
    return ProductMixture(
        dict(domain), float(total), _normal(best, domain), "mixture", float(least)
    )


def _normal(table: Floats, domain: Mapping[str, int]) -> Floats:
    out = table.astype(np.float64)
    for columns in layout(domain).values():
        out[:, columns] /= out[:, columns].sum(axis=1, keepdims=True)
    return out
