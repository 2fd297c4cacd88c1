"""Baselines, the cost of simpler mechanisms: plain noise on every answer, noise on every cell.

Errors are total squared errors of all workload rows at unit noise: the variance of each measured
row is the squared L1 (Laplace) or L2 (Gaussian) sensitivity of what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.algebra.kron import outer_sum
from dpsql.algebra.largest_cell import worst_cell
from dpsql.algebra.operator import Floats, Operator
from dpsql.records import dataclass
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.coarsen import label_rows
from dpsql.workload.layout import Layout
from dpsql.workload.workload import Workload


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
    norms = norms.astype(np.float64)
    norms = norms[:, np.unique(label_rows(norms.T), return_index=True)[1]]
    table = np.vstack([norms, np.ones(norms.shape[1])])
    place = {key: row for row, key in enumerate(distinct)}
    return np.asarray(table[[-1 if key is None else place[key] for key in used]])


COLUMN_LIMIT = 2.0**27
"""Most multiplications spent on the exact sensitivity of a workload."""
KIND_LIMIT = 512
"""Most kinds of cells of one attribute that are compared with each other."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The L1 norm (Laplace) or squared L2 norm (Gaussian) of the workload's columns.

    ``exact`` says whether it is the maximum over all columns, or the sum over the products of
    each product's own maximum, which may be larger.
    """

    value: float
    exact: bool


def identity_error(workload: Workload, noise: Noise) -> float:
    """Return the error of measuring every cell: sensitivity 1 under either noise, so tr V."""
    total = 0.0
    for product in workload.products:
        away = [n for name, n in workload.domain.items() if name not in product.factors]
        inside = [operator.frobenius2() for operator in product.factors.values()]
        total += product.weight**2 * math.prod(map(float, away)) * math.prod(inside)
    return total


def workload_error(workload: Workload, noise: Noise) -> float:
    """Return the error of adding noise to every query row, at the workload's own sensitivity."""
    sensitivity = workload_sensitivity(workload, noise).value
    return workload.rows * law(noise).squared(sensitivity)


def workload_sensitivity(workload: Workload, noise: Noise) -> Sensitivity:
    """Return the largest column norm of all rows together, duplicates counted.

    Cells of an attribute with equal column norms in every factor are one kind of cell, and a kind
    below another one in every factor is never the worst; the combinations of the kinds that
    remain are enumerated unless they are too many.

    >>> workload_sensitivity(Workload({"a": 3}, [{"a": "prefix"}, {}]), "laplace")
    Sensitivity(value=4.0, exact=True)
    """
    power = law(noise).norm
    weights = np.array([product.weight**power for product in workload.products])
    tables = []
    for name in workload.attributes:
        table = _kinds(workload, name, power)
        if table.shape[1] == 1:
            weights = weights * table[:, 0]
        else:
            tables.append(table)
    if len(weights) * math.prod(float(table.shape[1]) for table in tables) <= COLUMN_LIMIT:
        return Sensitivity(float(outer_sum(weights, tables).max()), True)
    for table in tables:
        weights = weights * table.max(axis=1)
    return Sensitivity(float(weights.sum()), False)


def _kinds(workload: Workload, name: str, power: int) -> Floats:
    """Return per product (rows) and kind of cell (columns) the column norm on one attribute."""
    used = [product.factors.get(name) for product in workload.products]
    distinct = {operator.key: operator for operator in used if operator is not None}
    if not distinct:
        return np.ones((len(used), 1))
    norms = np.array(
        [op.column_l1() if power == 1 else op.column_l2sq() for op in distinct.values()],
        dtype=np.float64,
    )
    norms = np.unique(norms, axis=1)
    if norms.shape[1] <= KIND_LIMIT:
        above = (norms[:, :, None] <= norms[:, None, :]).all(axis=0)
        norms = norms[:, above.sum(axis=1) == 1]
    place = {key: row for row, key in enumerate(distinct)}
    table = np.vstack([norms, np.ones(norms.shape[1])])
    return np.asarray(table[[-1 if op is None else place[op.key] for op in used]])
