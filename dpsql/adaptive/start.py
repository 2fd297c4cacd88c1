"""A first table from a noisy histogram, for tables dense enough to afford one.

Source: MWEM (Hardt, Ligett, McSherry 2012), section 3.3, "initialisation of weights".
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpsql.adaptive.factored import Factored, Part
from dpsql.adaptive.handle import Handle
from dpsql.adaptive.query import marginal
from dpsql.plan.noise_law import Noise, law

LEFT_OVER = 0.05
"""Least part of the rows that is spread over the cells that were not kept."""


def level(noise: Noise, amount: Fraction, cells: int) -> float:
    """Return the noisy count above which a cell is believed, in counts."""
    return law(noise).highest(law(noise).spread(1, float(amount)), cells)


def histogram_pays(noise: Noise, amount: Fraction, total: float, cells: int) -> bool:
    """Say from public facts whether believed cells would hold most of the rows.

    >>> histogram_pays("laplace", Fraction(1, 2), 1841, 64)
    True
    """
    return cells > 1 and cells * level(noise, amount, cells) < total / 2


def start_from_histogram(
    handle: Handle, model: Factored, attributes: tuple[str, ...], amount: Fraction
) -> Factored:
    """Return the model with one part over the attributes, from a measured histogram."""
    (measured,) = handle.measure([marginal(handle.domain, attributes)], amount)
    counts = measured.values
    kept = counts > level(handle.noise, amount, max(counts.size, 2))
    rest = max(model.total - float(counts[kept].sum()), LEFT_OVER * model.total)
    cells = np.where(kept, counts, rest / max(1, int((~kept).sum())))
    weights = (cells / cells.sum()).reshape([handle.domain[a] for a in attributes])
    others = tuple(p for p in model.parts if not set(p.attributes) & set(attributes))
    return replace(model, parts=(*others, Part(attributes, weights)))
