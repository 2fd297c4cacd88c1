"""How precisely a union of Kronecker blocks measures every component: every set of attributes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.records import dataclass

if TYPE_CHECKING:
    from dpsql.strategy.product_forecast import ProductForecast


@dataclass(frozen=True, slots=True)
class Lattice:
    """The precision of all sets of some attributes, (2, ...): those without each come first."""

    attributes: tuple[str, ...]
    precision: Floats

    def within(self, names: Sequence[str], always: Collection[str]) -> Floats:
        """Return the precision of sets of other attributes, (2, ...), zero where it is unknown.

        ``always`` are attributes of all of them besides.
        """
        out = np.zeros((2,) * len(names))
        known = tuple(slice(None) if name in self.attributes else 0 for name in names)
        out[known] = self.precision[
            tuple(slice(None) if n in names else int(n in always) for n in self.attributes)
        ]
        return out


def precision_of_all(forecast: ProductForecast) -> Lattice | None:
    """Return the precision of all sets of the attributes that blocks resolve.

    None where sets within blocks are few beside all others, and where an attribute is measured with
    full rows and with residual ones.
    """
    blocks = [forecast.several(block.attributes) for block in forecast.blocks]
    known = {name for names in blocks for name in names}
    full, used = forecast.tables.full, [name for name in forecast.domain if name in known]
    is_mixed = any(full.keys() & block.residual for block in forecast.blocks)
    if is_mixed or sum(2 ** len(names) for names in blocks) < 2 ** len(used):
        return None
    flat = np.zeros(2 ** len(used))
    place = {name: 1 << k for k, name in enumerate(reversed(used))}
    for block, names, variance in zip(forecast.blocks, blocks, forecast.noise, strict=True):
        flat[sum(map(place.__getitem__, names))] += forecast.top(block, variance)[1]
    out = flat.reshape((2,) * len(used))
    for position, name in enumerate(used):
        if name in full:
            without, within = np.moveaxis(out, position, 0)
            without += within * forecast.axis(name).total
    return Lattice(tuple(used), out)
