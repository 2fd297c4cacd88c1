"""A strategy that treats interchangeable cells alike: integer rows on orbits of cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.integer_rows import CONSTANT, OrbitPart, OrbitRows, slot, wide_cells
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.algebra.orbits import Orbits
from dpsql.records import dataclass, field
from dpsql.strategy.base import (
    Block,
    Estimate,
    Keep,
    Strategy,
    array_digest,
    by_single_rows,
    decode_domain,
    digest_of,
    distinct_rows,
)
from dpsql.strategy.noise_law import GAUSSIAN, Noise, is_law, law
from dpsql.strategy.registry import register
from dpsql.strategy.symmetric_forecast import SymmetricForecast
from dpsql.workload.workload import Product

CHUNK = 1 << 22
"""Numbers handled at once, 32 MiB, when one-row products are answered."""


@dataclass(frozen=True, slots=True)
class OrbitBlock(Block):
    """The rows of a symmetric strategy: they share one noise scale and all of the budget."""

    attributes: tuple[str, ...]
    orbit_rows: OrbitRows
    share: Fraction = Fraction(1)

    @property
    def integer_rows(self) -> OrbitRows:
        """Return the rows over the orbits of every attribute."""
        return self.orbit_rows


@register
@dataclass(frozen=True, slots=True)
class SymmetricStrategy(Strategy):
    """One block of Gaussian measurements that is invariant under exchange of alike cells.

    Guarantee: as for a product, the scale from ``scales`` costs at most the amount given, in
    exact rational arithmetic.
    """

    kind: ClassVar[str] = "symmetric"

    domain: Mapping[str, int]
    blocks: tuple[OrbitBlock]
    method: str = "symmetric"
    noise: Noise = GAUSSIAN.name
    norm: list[int] = field(default_factory=list, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        order = list(self.domain)
        (block,) = self.blocks
        own = block.integer_rows
        if list(block.attributes) != sorted(block.attributes, key=order.index):
            raise ValueError(f"block {block.attributes} is not in domain order")
        if [o.n for o in own.orbits] != [self.domain[a] for a in block.attributes]:
            raise ValueError("the orbits do not cover the cells of the attributes")
        if not own.parts or not is_law(self.noise) or law(self.noise).norm != 2:
            raise ValueError("a symmetric strategy has rows, and a noise law of the L2 norm")
        if len({part.kinds for part in own.parts}) < len(own.parts):
            raise ValueError("every kind of component is measured by one part")
        for part in own.parts:
            for kind, orbits in zip(part.kinds, own.orbits, strict=True):
                if kind not in (CONSTANT, *orbits.wide):
                    raise ValueError(f"{kind} is not an orbit of at least two cells")
            columns = math.prod(len(own.orbits[i].sizes) for i in part.constant)
            if part.rows.dtype != np.int64 or part.rows.shape[1] != columns:
                raise ValueError("the rows of a part are integers over its orbit tuples")

    @property
    def block(self) -> OrbitBlock:
        """Return the only block."""
        return self.blocks[0]

    def sensitivity(self, block: OrbitBlock) -> int:
        """Return the exact squared L2 sensitivity."""
        if block is not self.block:
            return block.integer_rows.sensitivity()
        if not self.norm:
            self.norm.append(block.integer_rows.sensitivity())
        return self.norm[0]

    def forecast(self, variances: Sequence[float], integers: bool = False) -> SymmetricForecast:
        """Return the exact errors of every answer, for the noise variance of the block."""
        own = self.block
        return SymmetricForecast(self.domain, own.attributes, own.integer_rows, variances)

    def solve(self, values: Sequence[NDArray[Any]], forecast: Any) -> SymmetricEstimate:
        """Return the least-squares estimate of a release: ``values`` has one flat array."""
        (value,) = values
        return solve(forecast, np.asarray(value).astype(np.float64))

    def fingerprint(self) -> str:
        """Return a hex digest of everything that is measured and of the noise law."""
        own = self.block.integer_rows
        text: list[object] = ["symmetric", list(self.domain.items()), self.block.attributes]
        text += [array_digest(orbits.labels) for orbits in own.orbits]
        text += [(p.kinds, p.rows.shape, array_digest(p.rows)) for p in own.parts]
        return digest_of(text)

    def describe(self, keep: Keep) -> dict[str, Any]:
        """Return plain facts; ``keep`` stores an array by name."""
        own = self.block.integer_rows
        return {
            "attributes": list(self.block.attributes),
            "orbits": [keep(orbits.labels) for orbits in own.orbits],
            "parts": [[list(part.kinds), keep(part.rows)] for part in own.parts],
        }

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> SymmetricStrategy:
        """Return the strategy that ``encode`` described.

        Args:
            facts: as ``encode`` returned them.
            arrays: the integer rows that it kept, by name.
        """
        rows = OrbitRows(
            tuple(Orbits(arrays[name]) for name in facts["orbits"]),
            tuple(OrbitPart(tuple(kinds), arrays[name]) for kinds, name in facts["parts"]),
        )
        block = OrbitBlock(tuple(facts["attributes"]), rows)
        return cls(decode_domain(facts), (block,), facts["method"], facts["noise"])


@dataclass(frozen=True, slots=True)
class SymmetricEstimate(Estimate):
    """The estimate of a release: cells, exact for every supported query, with their errors.

    ``cells`` has one axis per measured attribute. Components that no query asks for are zero.
    """

    forecast: SymmetricForecast
    cells: Floats
    tables: dict[tuple[str, ...], Floats] = field(default_factory=dict, compare=False, repr=False)

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
        return by_single_rows(products, self.answer, self._single_rows)

    def _names(self, product: Product) -> list[str]:
        return [name for name in self.forecast.attributes if name in product.factors]

    def _table(self, names: Sequence[str]) -> Floats:
        """Return the marginal of the estimated cells on some attributes, remembered."""
        key = tuple(names)
        if key not in self.tables:
            dropped = tuple(i for i, a in enumerate(self.forecast.attributes) if a not in key)
            self.tables[key] = np.asarray(self.cells.sum(axis=dropped))
        return self.tables[key]

    def _single_rows(self, _: tuple[str, ...], products: list[Product]) -> Floats:
        """Return the answers of one-row products over the same attributes."""
        for product in products:
            self.forecast.check(product)
        names = self._names(products[0])
        tensor = self._table(names)
        if not names:
            return np.full(len(products), float(tensor))
        rows = [distinct_rows([p.factors[name] for p in products], _only_row) for name in names]
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


def solve(forecast: SymmetricForecast, noisy: Floats) -> SymmetricEstimate:
    """Return the estimate of the noisy numbers (rows,) of a block, kind of component by kind."""
    block = forecast.rows
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


def _only_row(operator: Operator) -> Floats:
    return np.asarray(operator.dense()[0], dtype=np.float64)
