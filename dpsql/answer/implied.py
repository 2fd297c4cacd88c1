"""Which release determines a request, decided from public structure alone.

A stored strategy lives on merged cells. It answers a product exactly when every factor treats the
cells of a class alike, counts no cell that was left out, and the strategy supports what results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Total
from dpsql.algebra.operator import Operator
from dpsql.answer.stored import Release
from dpsql.plan.cells import Cells, cells_of
from dpsql.plan.coarsen import DISTINCT, Coarsening
from dpsql.plan.plan import Part, Plan
from dpsql.plan.request import Place, Request
from dpsql.plan.workload import Product
from dpsql.privacy.accounting import rho_for

DENSE_LIMIT = 1 << 24
"""Largest factor that is compared column by column."""


@dataclass(frozen=True, slots=True)
class Implied:
    """A release that determines a request: its name, and every product on its merged cells."""

    name: str
    release: Release
    products: Mapping[Place, Product]
    tables: Mapping[Place, str]

    def error(self) -> float:
        """The expected squared error of all answers together."""
        total = 0.0
        for part in self.release.plan.parts:
            asked = [p for place, p in self.products.items() if self.tables[place] == part.table]
            total += sum(float(v.sum()) for v in part.forecast.variances(asked))
        return total


def find_implied(request: Request, candidates: Iterable[tuple[str, Release]]) -> Implied | None:
    """Return the release that determines a request with the least expected error, if any does.

    Only releases that cost at least what the request offers count: whoever offers more asks for
    more accuracy, and gets a measurement of their own. Ties go to the earlier candidate.
    """
    found = [
        implied
        for name, release in candidates
        if _is_worth(request, release.plan)
        and (implied := imply(request, name, release)) is not None
    ]
    return min(found, key=Implied.error, default=None)


def imply(request: Request, name: str, release: Release) -> Implied | None:
    """Return how a release answers a request; None when it does not determine every answer."""
    parts = {part.table: part for part in release.plan.parts}
    products: dict[Place, Product] = {}
    for table, places in request.places.items():
        if table not in parts:
            return None
        mapped = _as_planned(request.coarse[table], parts[table])
        if mapped is None:
            mapped = _map(request.workloads[table].products, parts[table])
        if mapped is None:
            return None
        products.update(zip(places, mapped, strict=True))
    tables = {place: request.table_of(place) for place in products}
    return Implied(name, release, products, tables)


def _is_worth(request: Request, plan: Plan) -> bool:
    if plan.noise not in request.noises:
        return False
    if plan.rho is None:
        return plan.epsilon >= request.epsilon
    return plan.rho >= rho_for(request.epsilon, request.delta)


def _as_planned(coarse: Coarsening, part: Part) -> list[Product] | None:
    """Return the request's own merged products, if the part was planned on the same cells."""
    if part.units or dict(part.strategy.domain) != coarse.workload.domain:
        return None
    for name, cells in coarse.classes.items():
        here, there = cells_of(name, cells), part.resolutions.get(name)
        if cells.any() if there is None else here != there:
            return None
    mapped = list(coarse.workload.products)
    return mapped if all(map(part.forecast.supports, mapped)) else None


def _map(products: Iterable[Product], part: Part) -> list[Product] | None:
    """Return products on the merged cells of a part, None when one of them is not supported."""
    known: dict[tuple[str, object], Operator | None] = {}
    classes = {
        name: each.classes[0]
        for name, each in part.resolutions.items()
        if isinstance(each, Cells) and each.columns == (name,)
    }
    if part.units:
        return None
    mapped = []
    for product in products:
        asked = {a: f for a, f in product.factors.items() if not isinstance(f, Total)}
        if not asked.keys() <= classes.keys():
            return None
        if any(each.leaves_out for a, each in part.resolutions.items() if a not in asked):
            return None
        factors = {}
        for name, factor in asked.items():
            place = (name, factor.key)
            if place not in known:
                known[place] = merge_columns(factor, classes[name])
            merged = known[place]
            if merged is None:
                return None
            factors[name] = merged
        small = Product(factors, product.weight)
        if not part.forecast.supports(small):
            return None
        mapped.append(small)
    return mapped


def merge_columns(factor: Operator, classes: NDArray[np.int64]) -> Operator | None:
    """Return a factor on merged cells; None unless it is alike within classes, zero outside.

    >>> from dpsql.algebra.blocks import Dense
    >>> merged = merge_columns(Dense(np.array([[1, 1, 2, 0]])), np.array([0, 0, 1, -1]))
    >>> merged.dense().tolist()
    [[1, 2]]
    >>> merge_columns(Dense(np.array([[1, 0, 2, 0]])), np.array([0, 0, 1, -1])) is None
    True
    """
    if np.array_equal(classes, np.arange(classes.size)):
        return factor
    if isinstance(factor, DISTINCT) or factor.rows * classes.size > DENSE_LIMIT:
        return None
    kept = np.flatnonzero(classes >= 0)
    first = kept[np.unique(classes[kept], return_index=True)[1]]
    rows = factor.dense()
    alike = np.where(classes >= 0, rows[:, first][:, classes], 0)
    return factor.take_columns(first) if np.array_equal(rows, alike) else None
