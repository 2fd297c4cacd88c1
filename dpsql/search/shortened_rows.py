"""Rows with fewer bits, where more factors meet in one block than they were rounded for."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dpsql.algebra.integer_rows import Matrix
from dpsql.algebra.levels import Structured
from dpsql.algebra.operator import Integers
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.product_block import ProductBlock
from dpsql.strategy.quantise import bits_for, column_norm, quantise

LONG = 1 << 6
"""Entries above this are roundings of real-valued rows rather than small integers."""


def shortened(
    blocks: tuple[ProductBlock, ...],
    full: Mapping[str, Matrix],
    residual: Mapping[str, Integers | None],
    noise: Noise,
) -> tuple[dict[str, Matrix], dict[str, Integers | None]]:
    """Return the rows with fewer bits where more factors now meet in one block than before.

    A hierarchy has few bits anyway.

    Args:
        blocks: of the new strategy.
        full, residual: (r, n) per attribute, None for the identity.
    """
    written = {name: rows for name, rows in full.items() if not isinstance(rows, Structured)}
    hierarchies = {name: rows for name, rows in full.items() if isinstance(rows, Structured)}
    sources = (written, dict(residual))
    long = set(hierarchies) | {
        name
        for rows_of in sources
        for name, rows in rows_of.items()
        if rows is not None and np.abs(rows).max() > LONG
    }
    bits = bits_for(max(len(long & set(block.attributes)) for block in blocks))
    for rows_of in sources:
        for name, rows in rows_of.items():
            if name not in long or rows is None or np.abs(rows).max() <= 1 << bits:
                continue
            # Rounding tilts rows that do not span all cells: they would no longer give the answers.
            if len(rows) >= rows.shape[1]:
                norm = column_norm(rows, noise)
                unit = norm if law(noise).norm == 1 else math.sqrt(norm)
                rows_of[name] = quantise(rows / unit, bits, noise)
    return {**sources[0], **hierarchies}, sources[1]
