"""Reconstruction of a symmetric strategy: one table of estimated cells, by exact least squares."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats, Operator
from dpsql.strategy.forecast import group_single_rows
from dpsql.strategy.orbits import Orbits
from dpsql.strategy.symmetric import SymmetricStrategy, slot, wide_cells
from dpsql.strategy.symmetric_forecast import SymmetricForecast
from dpsql.workload.workload import Product

CHUNK = 1 << 22
"""Numbers handled at once when one-row products are answered."""


@dataclass(frozen=True, slots=True)
class SymmetricEstimate:
    """What a release says: estimated cells, exact for every supported query, and their errors.

    ``cells`` has one axis per measured attribute. Components that no query asks for are zero.
    """

    forecast: SymmetricForecast
    cells: Floats
    tables: dict[tuple[str, ...], Floats] = field(default_factory=dict, compare=False, repr=False)

    def is_whole(self, product: Product) -> bool:
        """Whether the answers are known to be whole: least squares over orbits has fractions."""
        return False

    def answer(self, product: Product) -> Floats:
        """Return the answers to a product, flat and row-major over its factors' rows.

        Raises ProgrammingError E_NOT_MEASURED where the release does not support it.
        """
        self.forecast.check(product)
        names = self._names(product)
        tensor = self._table(names)
        for axis, name in enumerate(names):
            tensor = np.asarray(product.factors[name].apply(tensor, axis), dtype=np.float64)
        return tensor.reshape(-1)

    def answers(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``answer`` of many products; one-row products are answered together."""
        items = list(products)
        out: list[Floats] = [np.empty(0)] * len(items)
        for members in group_single_rows(items).values():
            values = self._single_rows([items[j] for j in members])
            for j, value in zip(members, values, strict=True):
                out[j] = np.array([value])
        for j, product in enumerate(items):
            if not len(out[j]):
                out[j] = self.answer(product)
        return out

    def _names(self, product: Product) -> list[str]:
        return [name for name in self.forecast.attributes if name in product.factors]

    def _table(self, names: Sequence[str]) -> Floats:
        """Return the marginal of the estimated cells on some attributes, remembered."""
        key = tuple(names)
        if key not in self.tables:
            dropped = tuple(i for i, a in enumerate(self.forecast.attributes) if a not in key)
            self.tables[key] = np.asarray(self.cells.sum(axis=dropped))
        return self.tables[key]

    def _single_rows(self, products: list[Product]) -> Floats:
        """Return the answers of one-row products over the same attributes."""
        for product in products:
            self.forecast.check(product)
        names = self._names(products[0])
        tensor = self._table(names)
        if not names:
            return np.full(len(products), float(tensor))
        rows = [_distinct([product.factors[name] for product in products]) for name in names]
        first, places = rows[0]
        head = (first @ tensor.reshape(len(tensor), -1)).reshape(-1, *tensor.shape[1:])
        out = np.empty(len(products))
        step = max(1, CHUNK // max(1, head.size // len(head)))
        for start in range(0, len(out), step):
            stop = start + step
            part = head[places[start:stop]]
            for table, place in rows[1:]:
                part = np.einsum("ni...,ni->n...", part, table[place[start:stop]])
            out[start:stop] = part.reshape(-1)
        return out


def reconstruct_symmetric(
    strategy: SymmetricStrategy, values: Sequence[NDArray[Any]], variances: Sequence[float]
) -> SymmetricEstimate:
    """Return the least-squares estimate of a release of a symmetric strategy.

    ``values`` has one flat array, the noisy integers of its block in the order of ``apply``;
    ``variances`` the noise variance of each. Kinds of components are solved one by one.
    """
    forecast = SymmetricForecast(strategy, variances)
    block = strategy.block
    noisy = np.asarray(values[0]).astype(np.float64)
    tensor = np.zeros([len(o.sizes) + len(wide_cells(o)) for o in block.orbits])
    position = 0
    for part in block.parts:
        shape = block.shape(part)
        count = int(np.prod(shape, dtype=np.int64))
        own = noisy[position : position + count].reshape(shape)
        position += count
        solved = forecast.inverse(part).solve @ own.reshape(shape[0], -1)
        constant = [len(block.orbits[i].sizes) for i in part.constant]
        found = solved.reshape(*constant, *shape[1:])
        for axis in range(len(constant), found.ndim):
            found = found - found.mean(axis=axis, keepdims=True)
        order = np.argsort([*part.constant, *part.resolved])
        where = tuple(slot(o, k) for o, k in zip(block.orbits, part.kinds, strict=True))
        tensor[where] = found.transpose(order)
    if position != len(noisy):
        raise ValueError(f"{len(noisy)} values for {position} rows")
    for axis, orbits in enumerate(block.orbits):
        tensor = _join(tensor, axis, orbits)
    return SymmetricEstimate(forecast, tensor)


def _join(tensor: Floats, axis: int, orbits: Orbits) -> Floats:
    """Return cells from [sum of every orbit, deviation of every cell of a wide orbit]."""
    shape = (-1,) + (1,) * (tensor.ndim - axis - 1)
    means = tensor.take(np.arange(len(orbits.sizes)), axis) / orbits.sizes.reshape(shape)
    out = np.moveaxis(means.take(orbits.labels, axis), axis, 0)
    wide = wide_cells(orbits)
    if len(wide):
        out[wide] += np.moveaxis(tensor, axis, 0)[len(orbits.sizes) :]
    return np.moveaxis(out, 0, axis)


def _distinct(operators: Sequence[Operator]) -> tuple[Floats, NDArray[np.intp]]:
    """Return the distinct rows of one-row operators, and which one each uses."""
    known: dict[Hashable, int] = {}
    table: list[Floats] = []
    places = np.empty(len(operators), dtype=np.intp)
    for j, operator in enumerate(operators):
        places[j] = known.setdefault(operator.key, len(table))
        if places[j] == len(table):
            table.append(np.asarray(operator.dense()[0], dtype=np.float64))
    return np.array(table), places
