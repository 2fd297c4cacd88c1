"""Estimates of components in tables: each of them once, in the first table that has room for it.

A table is over the attributes of a block that is within no other one. Along an attribute come the
components without it, then those with it cell by cell; of few cells the last one follows from the
others, since a component sums to zero, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.strategy.product_block import ProductBlock

if TYPE_CHECKING:
    from dpsql.strategy.product_forecast import ProductForecast


def largest(forecast: ProductForecast) -> list[int]:
    """Return the masks of blocks that are within no other one's, those of most attributes first."""
    masks = {forecast.mask(block.attributes) for block in forecast.blocks}
    found: list[int] = []
    for mask in sorted(masks, key=lambda mask: (-mask.bit_count(), mask)):
        if all(mask & ~top for top in found):
            found.append(mask)
    return found


def homes(tables: Iterable[int], mask: int) -> Iterator[int]:
    """Yield the masks of the tables that have components within a mask, each of them in the first.

    >>> list(homes([0b110, 0b101, 0b011], 0b100)), list(homes([0b110, 0b101], 0b111))
    ([6], [6, 5])
    """
    seen: list[int] = []
    for top in tables:
        both = top & mask
        if all(both & ~known for known in seen):
            seen.append(both)
            yield top


def _share(
    forecast: ProductForecast,
    block: ProductBlock,
    names: Sequence[str],
    shape: Sequence[int],
    precision: float,
) -> Floats | None:
    """Return what part a block has in the precision of each of its numbers, None where it is all.

    ``shape`` is that of its own least squares, and of the result.
    """
    always = {name for name in names if name in block.residual or not forecast.axis(name).total}
    found = forecast.precisions_with([name for name in names if name not in always], always)
    share = precision / found.reshape([1 if name in always else 2 for name in names])
    for position, name in enumerate(names):
        axis = forecast.axis(name)
        parts = [axis.total, 1.0]
        if name in always:
            parts = [axis.gain if name in block.residual else 1.0]
        share = share * np.reshape(parts, (-1,) + (1,) * (len(names) - position - 1))
    # All but a few roundings of one: nobody else tells of these numbers.
    if share.min() > 1 - 1e-15:
        return None
    for position, length in enumerate(shape):
        share = share.take(np.minimum(np.arange(length), share.shape[position] - 1), axis=position)
    return share


def add_components(
    forecast: ProductForecast,
    block: ProductBlock,
    names: Sequence[str],
    tensor: Floats,
    precision: float,
    tables: dict[int, Floats],
) -> None:
    """Add the block's part of every component to the table that has it; uses up ``tensor``.

    Args:
        names: the attributes of the block that have several cells.
        tensor: the least squares of the block, with an axis for each of ``names``.
        precision: of the block's largest component.
        tables: by mask of attributes, those that components are added to.
    """
    share = _share(forecast, block, names, tensor.shape, precision)
    if share is not None:
        tensor *= share
    mask = forecast.mask(names)
    residual = {forecast.bit[name] for name in names if name in block.residual}
    within = sum(residual)
    for top in homes([top for top in tables if not within & ~top], mask):
        attributes = [name for name in forecast.domain if forecast.bit[name] & top]
        if not tables[top].size:
            if top == mask and not residual:  # the first in its table is it: nothing is copied
                tables[top] = tensor
                return
            tables[top] = np.zeros([forecast.numbers(name) for name in attributes])
        inside = tuple(slice(None) if forecast.bit[name] & top else 0 for name in names)
        place = tuple(
            slice(forecast.bit[name] in residual, None) if forecast.bit[name] & mask else 0
            for name in attributes
        )
        tables[top][place] += tensor[inside]
        tensor[inside] = 0
