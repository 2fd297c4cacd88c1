"""How precisely a union of Kronecker blocks measures every component: every set of attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpsql.algebra.operator import Floats

if TYPE_CHECKING:
    from dpsql.strategy.product_block import ProductBlock
    from dpsql.strategy.product_forecast import ProductForecast

MANY = 1 << 10
"""Sets of attributes within blocks from which on they are in one array, not looked up one by one:
sixteen attributes have 65,536, which took most of the planning of GROUP BY ROLLUP."""


def precision_by_mask(forecast: ProductForecast) -> dict[int, float]:
    """Return component to precision; components that no block measures are absent."""
    lattice: dict[tuple[int, int], float] = {}
    for block, variance in zip(forecast.blocks, forecast.noise, strict=True):
        key, precision = _top(forecast, block, variance)
        lattice[key] = lattice.get(key, 0.0) + precision
    for name in forecast.several(forecast.tables.full):
        bit, total = forecast.bit[name], forecast.axis(name).total
        for (fixed, free), precision in list(lattice.items()):
            if free & bit:
                below = (fixed, free & ~bit)
                lattice[below] = lattice.get(below, 0.0) + precision * total
    out: dict[int, float] = {}
    for (fixed, free), precision in lattice.items():
        out[fixed | free] = out.get(fixed | free, 0.0) + precision
    return out


def precision_of_all(forecast: ProductForecast) -> tuple[list[str], Floats] | None:
    """Return the attributes that blocks resolve, and the precision of all sets of these, (2, ...).

    None where sets within blocks are few, or few beside all others, and where an attribute is
    measured with full rows and with residual ones.
    """
    blocks = [forecast.several(block.attributes) for block in forecast.blocks]
    known = {name for names in blocks for name in names}
    full, used = forecast.tables.full, [name for name in forecast.domain if name in known]
    is_mixed = any(full.keys() & block.residual for block in forecast.blocks)
    if is_mixed or sum(2 ** len(names) for names in blocks) < max(MANY, 2 ** len(used)):
        return None
    flat = np.zeros(2 ** len(used))
    place = {name: 1 << k for k, name in enumerate(reversed(used))}
    for block, names, variance in zip(forecast.blocks, blocks, forecast.noise, strict=True):
        flat[sum(map(place.__getitem__, names))] += _top(forecast, block, variance)[1]
    out = flat.reshape((2,) * len(used))
    for position, name in enumerate(used):
        if name in full:
            without, within = np.moveaxis(out, position, 0)
            without += within * forecast.axis(name).total
    return used, out


def _top(
    forecast: ProductForecast, block: ProductBlock, variance: float
) -> tuple[tuple[int, int], float]:
    """Return ((mask always resolved, mask of summable attributes), precision) of a block."""
    fixed, free, precision = 0, 0, 1 / variance
    for name in block.attributes:
        axis = forecast.axis(name)
        if name in forecast.single:
            precision *= axis.total
        elif name in block.residual:
            fixed |= forecast.bit[name]
            precision *= axis.gain
        elif axis.total == 0:
            fixed |= forecast.bit[name]
        else:
            free |= forecast.bit[name]
    return (fixed, free), precision
