"""Comparison strategies of the literature beside ours: what simpler mechanisms would have cost."""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks import published
from dpsql.algebra.operator import Operator
from dpsql.plan import Workload, baselines
from dpsql.plan.greedy import greedy_hierarchy
from dpsql.strategy.noise_law import Noise

NAMES = ("Identity", "Workload", "H2", "HB", "Wavelet", "GreedyH", "DataCube")
"""Noise on each cell, noise on each query, then the strategies by their published names."""

LARGEST = 4096
"""Most cells for which a strategy of one attribute is formed as a matrix."""


def compare(workload: Workload, noise: Noise) -> dict[str, float]:
    """Return the root mean squared error of every comparison strategy that applies.

    Epsilon 1 and delta 1e-6, as in the published tables. H2 (Hay and others 2010), HB (Qardaji and
    others 2013), Wavelet (Xiao and others 2010) and GreedyH (Li and others 2014) are strategies of
    one attribute; DataCube (Ding and others 2011) is one of marginals.
    """
    return {
        name: published.published_rmse(error, workload.rows, noise)
        for name, error in _errors(workload, noise)
    }


def _errors(workload: Workload, noise: Noise) -> Iterator[tuple[str, float]]:
    yield "Identity", baselines.identity_error(workload, noise)
    yield "Workload", baselines.workload_error(workload, noise)
    for name, strategy, asked in _one_attribute(workload):
        yield name, published.strategy_error(strategy, asked, noise)
    cube = published.data_cube_error(workload, noise)
    if cube is not None and len(workload.attributes) > 1:
        yield "DataCube", cube


def _one_attribute(workload: Workload) -> Iterator[tuple[str, Operator, Operator]]:
    """The strategies of one attribute, with the queries of a workload of one product over it."""
    sizes = list(workload.domain.values())
    if len(sizes) > 1 or len(workload.products) > 1 or math.prod(sizes) > LARGEST:
        return
    (asked,) = workload.products[0].factors.values()
    for name in ("H2", "HB", "Wavelet"):
        yield name, published.STRATEGIES[name](sizes[0]), asked
    yield "GreedyH", greedy_hierarchy(asked.gram()), asked
