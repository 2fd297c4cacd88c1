"""A strategy of the matrix mechanism measured through a handle: one joint release, no choices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.algebra.blocks import Dense
from dpsql.algebra.integer_rows import operator_of
from dpsql.algebra.operator import Integers, Operator
from dpsql.learn.antipodes import JointCost, together
from dpsql.learn.candidates import rows
from dpsql.pgm.measurements import Candidate, Handle, Measured
from dpsql.records import replace
from dpsql.search.strategy_cache import cached_choice
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import law
from dpsql.workload.workload import Product, Workload

STEPS = 1 << 16
"""Largest integer weight of a block relative to the lightest: noise is shared among all blocks."""


def measure_strategy(
    handle: Handle, candidates: Sequence[Candidate], power: float
) -> list[Measured]:
    """Measure the best strategy for a workload with all that the handle has left.

    ``power`` weights every product by its number of rows to minus this power. All blocks share
    one noise scale, so each gets a whole weight for its share of the budget.
    Source: HDMM, sections 6 and 7.
    """
    _, strategy = _strategy(handle, candidates, power)
    weights = [_weight(strategy, k) for k in range(len(strategy.blocks))]
    least = min(weights)
    blocks = [
        (_candidate(strategy, k, max(1, round(min(STEPS, w / least)))),)
        for k, w in enumerate(weights)
    ]
    return handle.measure(blocks, handle.remaining())


def better_together(
    handle: Handle, candidates: Sequence[Candidate], power: float
) -> JointCost | None:
    """Return how differences of opposite cells are measured where they beat the best strategy.

    Guarantee: a function of public facts.
    """
    found = together(candidates, handle.noise)
    if found is None or (power and any(rows(each) != 2 for each in candidates)):
        return None
    workload, strategy = _strategy(handle, candidates, 0.0)
    return found if found.error < strategy.unit_error(workload) else None


def _strategy(
    handle: Handle, candidates: Sequence[Candidate], power: float
) -> tuple[Workload, Strategy]:
    """The workload of all candidates, and the best strategy for it."""
    products = [
        replace(product, weight=float(product.rows) ** -power)
        for candidate in candidates
        for product in candidate
    ]
    workload = Workload(dict(handle.domain), products)
    return workload, cached_choice(workload, handle.noise, "joint").strategy


def _weight(strategy: Strategy, index: int) -> float:
    """The precision that a block is to have: the inverse of its noise at a unit budget."""
    block = strategy.blocks[index]
    weight = float(block.share) / strategy.sensitivity(block)
    return weight if law(strategy.noise).norm == 1 else math.sqrt(weight)


def _candidate(strategy: Strategy, index: int, weight: int) -> Product:
    """The rows of a block, times a whole weight."""
    block = strategy.blocks[index]
    factors: dict[str, Operator] = {}
    for name, given in block.factors.items():
        factors[name] = operator_of(given, strategy.domain[name])
    if weight > 1:
        name = block.attributes[0] if block.attributes else next(iter(strategy.domain))
        known = factors.get(name)
        factors[name] = Dense(_dense(known, strategy.domain[name]) * weight)
    return Product(factors)


def _dense(factor: Operator | None, size: int) -> Integers:
    if factor is None:
        return np.ones((1, size), dtype=np.int64)
    return np.asarray(factor.dense(), dtype=np.int64)
