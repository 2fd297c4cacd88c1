"""Estimates of all tables -> one result per statement, each number with its standard error."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpsql.answer.estimate import AnyEstimate
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.answer.shell import build_result
from dpsql.plan.request import Place, Request
from dpsql.plan.workload import Product
from dpsql.sealed import Sealed
from dpsql.sql.products import Compiled

Column = NDArray[np.float64]


def assemble_results(
    request: Request,
    products: Mapping[Place, Product],
    estimates: Mapping[str, AnyEstimate],
    cost: CostInfo | None,
    receipt: ReceiptInfo | None,
    sealed: Sealed,
) -> tuple[Result, ...]:
    """Answer every aggregate from the estimate of its table, then run the outer shells.

    ``products`` are the aggregates on the cells that the estimates are about. Statements that
    the catalog alone determines need no estimate, cost nothing and carry no noise.
    """
    answers: dict[tuple[int, int], Column] = {}
    variances: dict[tuple[int, int], Column] = {}
    for table, estimate in estimates.items():
        places = [place for place in products if request.table_of(place) == table]
        asked = [products[place] for place in places]
        answers.update(zip(places, estimate.answers(asked), strict=True))
        variances.update(zip(places, estimate.forecast.variances(asked), strict=True))
    results = []
    for index, item in enumerate(request.statements):
        static = item.is_static
        columns = [
            _arranged(item, answers.get((index, j))) for j in range(len(item.query.aggregates))
        ]
        covariances = {
            (i, j): _arranged(item, variances.get((index, i)))
            if i == j
            else _arranged(item, _covariance(products, estimates, item, index, i, j))
            for i, j in _pairs(item)
        }
        paid, proof = (None, None) if static else (cost, receipt)
        results.append(build_result(item, columns, covariances, paid, proof, sealed))
    return tuple(results)


def _arranged(item: Compiled, flat: Column | None) -> Column:
    return np.zeros(item.rows) if flat is None else item.arrange(flat)


def _pairs(item: Compiled) -> list[tuple[int, int]]:
    """The pairs of aggregates whose covariance the shell needs."""
    if item.query.shell.plain:
        return [(j, j) for j in range(len(item.query.aggregates))]
    return sorted(item.query.shell.covariances)


def _covariance(
    products: Mapping[tuple[int, int], Product],
    estimates: Mapping[str, AnyEstimate],
    item: Compiled,
    index: int,
    i: int,
    j: int,
) -> Column | None:
    left, right = products.get((index, i)), products.get((index, j))
    if left is None or right is None:
        return None
    return estimates[item.query.table].forecast.covariance(left, right)
