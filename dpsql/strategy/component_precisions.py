"""Precision of a union of Kronecker blocks for every component: every set of attributes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.records import dataclass
from dpsql.strategy.axis import Axis
from dpsql.strategy.product_block import ProductBlock

if TYPE_CHECKING:
    from dpsql.strategy.structured_axis import StructuredAxis


class MeasuredBlocks(Protocol):
    """The part of a union's forecast that is read here: its blocks, and their precisions."""

    domain: Mapping[str, int]
    blocks: Sequence[ProductBlock]
    noise: tuple[float, ...]

    def several(self, names: Iterable[str]) -> list[str]:
        """Return those of some attributes that components are over, in the same order."""

    def top(self, block: ProductBlock, variance: float) -> tuple[tuple[int, int], float]:
        """Return the masks of a block, and the precision of its largest component."""

    def axis(self, name: str) -> Axis | StructuredAxis:
        """Return the constants of one attribute."""


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


def precision_of_all(forecast: MeasuredBlocks, full: Collection[str]) -> Lattice | None:
    """Return the precision of all sets of the attributes that blocks resolve.

    ``full`` are attributes with full rows. None where sets within blocks are few beside all others,
    and where an attribute is measured with full rows and with residual ones.
    """
    blocks = [forecast.several(block.attributes) for block in forecast.blocks]
    known = {name for names in blocks for name in names}
    used = [name for name in forecast.domain if name in known]
    is_mixed = any(block.residual.intersection(full) for block in forecast.blocks)
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
