"""Noisy integers of Kronecker blocks to one consistent estimate: generalised least squares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.cores import run_on_cores
from dpsql.algebra.kron import contract
from dpsql.algebra.operator import Floats, Operator
from dpsql.records import dataclass
from dpsql.strategy.axis import Axis
from dpsql.strategy.base import Estimate, by_single_rows, distinct_rows, not_measured
from dpsql.strategy.component_tables import add_components, homes, largest
from dpsql.strategy.product_block import FEW, ProductBlock
from dpsql.strategy.product_forecast import ProductForecast
from dpsql.workload.workload import Product

if TYPE_CHECKING:
    from dpsql.strategy.structured_axis import StructuredAxis

GRID_LIMIT = 1 << 24
"""Largest table of all combinations of distinct rows, 128 MiB, to answer one-row products from."""

LARGE = 1 << 24
"""Numbers of a block, 128 MiB, from which it is solved slice by slice where that can be."""

SLAB = 1 << 21
"""Numbers of a slab, 16 MiB: few enough for memory, and long enough runs to read and write."""

Solved: TypeAlias = "Axis | StructuredAxis"

NEAR = 1 << 17
"""Numbers that a core keeps near itself, 1 MiB."""

CHUNK = 1 << 22
"""Numbers handled at once, 32 MiB, when one-row products are answered one by one."""


@dataclass(frozen=True, slots=True)
class ProductEstimate(Estimate):
    """The estimate of a release: mutually uncorrelated components, with the forecast of errors.

    Component c, over the attributes of bit mask c, sums to zero along each of them; none of these
    is single. They are in ``tables``, by the masks of these, each in the first that has all its
    attributes. Rows that do not answer the sum have components of all cells, none without them.
    Every answer is linear in components, so all answers agree with each other.
    """

    forecast: ProductForecast
    tables: dict[int, Floats]

    def answer(self, product: Product) -> Floats:
        """Return the answers to a product, flat and row-major over its factors' rows.

        Raises ProgrammingError E_NOT_MEASURED where the release does not support it.
        """
        if not self.forecast.supports(product):
            raise not_measured(product)
        names = self.forecast.names(product)
        tensor = self._components(names)
        position, scale = 0, 1.0
        for name in names:
            factor = product.factors[name]
            if name not in self.forecast.single:
                tensor = self._ask(tensor, position, name, factor)
            elif factor.rows == 1:
                scale *= float(self.forecast.parts(name, factor)[0][0])
                continue
            else:
                means, _, _ = self.forecast.parts(name, factor)
                tensor = np.moveaxis(np.multiply.outer(tensor, means), -1, position)
            position += 1
        return tensor.reshape(-1) if scale == 1 else scale * tensor.reshape(-1)

    def answers(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``answer`` of many products; one-row products are answered together."""
        return by_single_rows(products, self.answer, self._single_rows)

    def _components(self, names: Sequence[str]) -> Floats:
        """Return all components over some attributes in one table, which is not to be changed."""
        mask = self.forecast.mask(names)
        alone = len(self.tables) == 1
        if mask and mask in self.tables and (alone or next(homes(self.tables, mask)) == mask):
            return self.tables[mask]
        names = self.forecast.several(names)
        out = np.zeros([self.forecast.numbers(name) for name in names])
        for top in homes(self.tables, mask):
            out[self._part(mask, top)] += self.tables[top][self._part(top, mask)]
        return out

    def _part(self, mask: int, other: int) -> tuple[slice | int, ...]:
        """Return where a table over one mask has the components that are over another, too."""
        bits = [bit for bit in self.forecast.bit.values() if bit & mask]
        return tuple(slice(None) if bit & other else 0 for bit in bits)

    def _ask(self, tensor: Floats, position: int, name: str, operator: Operator) -> Floats:
        """Contract one axis of a table of components with the rows of a factor."""
        if operator.n <= FEW:
            found = np.tensordot(self._rows(name, operator), tensor, axes=(1, position))
            return np.moveaxis(found, 0, position)
        if not self.forecast.has_sum(name):
            return np.array(operator.apply(tensor, position), dtype=np.float64)
        means, _, _ = self.forecast.parts(name, operator)
        lead = (slice(None),) * position
        out = np.array(operator.apply(tensor[(*lead, slice(1, None))], position), dtype=np.float64)
        out += (
            means.reshape((-1,) + (1,) * (tensor.ndim - position - 1)) * tensor[(*lead, slice(1))]
        )
        return out

    def _rows(self, name: str, operator: Operator) -> Floats:
        """Return what the rows of a factor take of the numbers of a table, (rows, numbers)."""
        rows = np.asarray(operator.dense(), dtype=np.float64)
        if not self.forecast.has_sum(name):
            return rows
        if operator.n <= FEW:
            rows = rows[:, :-1] - rows[:, -1:]
        means, _, _ = self.forecast.parts(name, operator)
        return np.concatenate([means[:, np.newaxis], rows], axis=1)

    def _row(self, name: str, operator: Operator) -> Floats:
        return np.asarray(self._rows(name, operator)[0])

    def _single_rows(self, names: tuple[str, ...], products: list[Product]) -> Floats:
        self.forecast.variances(products)
        tensor = self._components(names)
        rows, places, scales = [], [], np.ones(len(products))
        for name in names:
            table, place = distinct_rows(
                [p.factors[name] for p in products], partial(self._row, name)
            )
            if name in self.forecast.single:
                scales *= table[place, 0]
                continue
            rows.append(table)
            places.append(place)
        sizes = list(tensor.shape)
        largest = tensor.size
        for position, table in enumerate(rows):
            sizes[position] = len(table)
            largest = max(largest, math.prod(sizes))
        if largest <= max(GRID_LIMIT, tensor.size):
            for position, table in enumerate(rows):
                tensor = contract(table, tensor, position)
            return np.asarray(scales * tensor[tuple(places)])
        return scales * _one_by_one(tensor, rows, places)


def solve(forecast: ProductForecast, values: Sequence[NDArray[Any]]) -> ProductEstimate:
    """Return the least-squares estimate of a release.

    Only tensors over the attributes of one block are ever formed.

    Args:
        values: the noisy integers (rows,) of each block, int64 or Python's.

    Source: section 7 of HDMM, in the form that is exact for unions with shared factors.
    """
    tables: dict[int, Floats] = {}
    is_one = len(forecast.blocks) == 1 and not forecast.blocks[0].residual
    if not is_one:
        tables = dict.fromkeys(largest(forecast), np.empty(0))
    for block, value, variance in zip(forecast.blocks, values, forecast.noise, strict=True):
        precision = 1 / variance
        names = [name for name in block.attributes if name not in forecast.single]
        if len(names) < len(block.attributes):
            value, total = _without_singles(forecast, block, value)
            precision *= total
        axes = [forecast.axis(name) for name in names]
        tensor = _local(forecast, block, names, axes, value)
        if is_one:
            tables[sum([forecast.bit[name] for name in names])] = tensor
        else:
            add_components(forecast, block, names, tensor, precision, tables)
    return ProductEstimate(forecast, tables)


def _without_singles(
    forecast: ProductForecast, block: ProductBlock, value: NDArray[Any]
) -> tuple[NDArray[Any], float]:
    """Return the numbers of a block with the least squares of its single attributes done.

    ``value`` is (rows of its block,); of every such attribute one number of each is left. The
    second is by how much they are more precise than what was measured.
    """
    lead, total = 1, 1.0
    for name in block.attributes:
        axis, is_single = forecast.axis(name), name in forecast.single
        length = forecast.domain[name] if axis.rows is None else axis.rows.shape[0]
        if is_single and isinstance(axis, Axis) and axis.inverse is not None:
            values = np.asarray(value, dtype=np.float64).reshape(lead, length, -1)
            value = contract(axis.inverse, values, 1)
        lead *= 1 if is_single else length
        total *= axis.total if is_single else 1.0
    return value, total


def _local(
    forecast: ProductForecast,
    block: ProductBlock,
    names: Sequence[str],
    axes: list[Solved],
    value: NDArray[Any],
) -> Floats:
    """Return the block's own least squares; each summable axis gets its sum as slot 0."""
    lengths = [
        forecast.domain[name] if axis.rows is None else axis.rows.shape[0]
        for name, axis in zip(names, axes, strict=True)
    ]
    kinds = [(axis, name in block.residual) for name, axis in zip(names, axes, strict=True)]
    values = np.asarray(value).reshape(lengths)
    free = [k for k, (axis, residual) in enumerate(kinds) if _is_of_cells(axis, residual)]
    if values.size > LARGE and free:
        return _in_slabs(values, kinds, max(free, key=lambda k: lengths[k]))
    return _solve_along(values.astype(np.float64), enumerate(kinds))


def _solve_along(tensor: Floats, kinds: Iterable[tuple[int, tuple[Solved, bool]]]) -> Floats:
    """Return the least squares along some axes, each with whether its rows are residual ones.

    May use up the tensor it is given.
    """
    for position, (axis, residual) in kinds:
        tensor = _solve(tensor, position, axis, residual)
        if axis.size <= FEW and (residual or axis.total > 0):  # the last cell follows
            tensor = tensor[(*(slice(None),) * position, slice(-1))]
    return tensor


def _is_of_cells(axis: Solved, residual: bool) -> bool:
    """Say whether an axis has the cells themselves as rows, and a sum of them."""
    is_cells = isinstance(axis, Axis) and axis.inverse is None and axis.total > 0 and not residual
    return is_cells and axis.size > FEW


def _in_slabs(values: NDArray[Any], kinds: Sequence[tuple[Solved, bool]], along: int) -> Floats:
    """Return the least squares where memory would not do: slab by slab of an axis of cells.

    Beside values and result, only what is worked out of one slab is in memory.
    """
    others = [(k, kind) for k, kind in enumerate(kinds) if k != along]
    length, lead = values.shape[along], (slice(None),) * along
    step = max(1, SLAB // (values.size // length))

    def solved(start: int) -> Floats:
        slab = values[(*lead, slice(start, start + step))]
        return _solve_along(slab.astype(np.float64), others)

    first = solved(0)
    out = np.empty((*first.shape[:along], length + 1, *first.shape[along + 1 :]))

    def put(starts: Sequence[int]) -> None:
        for start in starts:
            out[(*lead, slice(1 + start, 1 + start + step))] = solved(start) if start else first

    run_on_cores(put, range(0, length, step))
    _centre(out.reshape(math.prod(first.shape[:along]), length + 1, -1))
    return out


def _centre(slabs: Floats) -> None:
    """Put sums of a middle axis into its first entry, and take the mean off the others."""
    if slabs.shape[0] < slabs.shape[2]:
        slabs = slabs.transpose(2, 1, 0)
    step = max(1, NEAR // (slabs.size // len(slabs)))

    def centre(starts: Sequence[int]) -> None:
        for start in starts:
            sums, cells = np.split(slabs[start : start + step], [1], axis=1)
            cells.sum(axis=1, keepdims=True, out=sums)
            cells -= sums / cells.shape[1]

    run_on_cores(centre, range(0, len(slabs), step))


def _solve(tensor: Floats, position: int, axis: Solved, residual: bool) -> Floats:
    """Return the least squares along one axis, in one pass; may use up the tensor it is given."""
    if not isinstance(axis, Axis):
        return axis.solve(tensor, position)
    summable = not residual and axis.total > 0
    if axis.inverse is not None:
        sums = axis.inverse.sum(axis=0)
        centred = axis.inverse - np.outer(axis.u, sums)
        matrix = np.concatenate([sums[np.newaxis], centred]) if summable else axis.inverse
        return contract(matrix, tensor, position)
    means = tensor.mean(axis=position, keepdims=True)
    if summable:
        shape = list(tensor.shape)
        shape[position] += 1
        out, lead = np.empty(shape), (slice(None),) * position
        np.multiply(means, axis.size, out=out[(*lead, slice(1))])
        np.subtract(tensor, means, out=out[(*lead, slice(1, None))])
        return out
    if residual:
        tensor -= means
        tensor /= axis.size
    return tensor


def _one_by_one(tensor: Floats, rows: list[Floats], places: list[NDArray[np.intp]]) -> Floats:
    """Contract every axis with its own row per product, a few products at a time."""
    count = len(places[0])
    step = max(1, CHUNK // max(1, tensor.size // tensor.shape[0]))
    out = np.empty(count)
    for start in range(0, count, step):
        chosen = [place[start : start + step] for place in places]
        part = rows[0][chosen[0]] @ tensor.reshape(tensor.shape[0], -1)
        part = part.reshape(-1, *tensor.shape[1:])
        for table, place in zip(rows[1:], chosen[1:], strict=True):
            flat = part.reshape(len(part), part.shape[1], -1)
            part = np.einsum("nij,ni->nj", flat, table[place]).reshape(len(part), *part.shape[2:])
        out[start : start + step] = part.reshape(-1)
    return out
