"""The obvious alternative: noise on every number that is asked for, by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Operator
from dpsql.algebra.worst import worst_cell
from dpsql.plan.layout import Layout
from dpsql.plan.noise_law import Noise, law

Floats = NDArray[np.float64]


def plain_sensitivity(layouts: Sequence[Layout], noise: Noise) -> tuple[float, bool]:
    """Return the largest column norm of all answers, weighted, and whether it is exact.

    The L1 norm, or the squared L2 norm for Gaussian noise. The first layout in which every answer
    is a single product is used; without one, the norms of the products of an answer are added up.
    """
    layout = next((each for each in layouts if each.is_single), layouts[-1])
    power = law(noise).norm
    summands: dict[tuple[tuple[str, int], ...], float] = {}
    operators: dict[int, Operator] = {}
    for reading in layout.products.values():
        total = sum(product.weight for _, product in reading)
        for _, product in reading:
            key = tuple((name, id(factor)) for name, factor in product.factors.items())
            size = product.weight * total ** (power - 1)
            summands[key] = summands.get(key, 0.0) + size
            operators.update((id(factor), factor) for factor in product.factors.values())
    tables = [_table(name, list(summands), operators, power) for name in layout.workload.domain]
    largest, exact = worst_cell(tables, np.array(list(summands.values())))
    return float(largest), bool(exact) and layout.is_single


def plain_variance(sensitivity: float, weight: float, noise: Noise) -> float:
    """Return the variance of every number of a weight at a unit budget, by plain noise."""
    return law(noise).squared(sensitivity) / weight**2


def _table(
    name: str,
    summands: Sequence[tuple[tuple[str, int], ...]],
    operators: dict[int, Operator],
    power: int,
) -> Floats:
    """Per summand (rows) and cell (columns) the column norm on one attribute."""
    used = [dict(summand).get(name) for summand in summands]
    distinct = [key for key in dict.fromkeys(used) if key is not None]
    if not distinct:
        return np.ones((len(used), 1))
    found = [operators[key] for key in distinct]
    norms = np.array([op.column_l1() if power == 1 else op.column_l2sq() for op in found])
    norms = np.unique(norms.astype(np.float64), axis=1)
    table = np.vstack([norms, np.ones(norms.shape[1])])
    place = {key: row for row, key in enumerate(distinct)}
    return np.asarray(table[[-1 if key is None else place[key] for key in used]])
