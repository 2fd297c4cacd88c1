"""Tables of probability vectors: one row per component, one block of columns per attribute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpsql.adaptive.handle import Floats


def layout(domain: Mapping[str, int]) -> dict[str, slice]:
    """Return the columns of every attribute in a table of all blocks side by side.

    >>> layout({"a": 2, "b": 3})
    {'a': slice(0, 2, None), 'b': slice(2, 5, None)}
    """
    places, start = {}, 0
    for name, size in domain.items():
        places[name] = slice(start, start + size)
        start += size
    return places


def row_outer(tables: list[Floats]) -> Floats:
    """Return the row-wise outer products of tables of shape (C, n_i), flat: (C, prod n_i).

    >>> row_outer([np.array([[1.0, 2.0]]), np.array([[3.0, 5.0]])]).tolist()
    [[3.0, 5.0, 6.0, 10.0]]
    """
    out = tables[0]
    for table in tables[1:]:
        out = (out[:, :, np.newaxis] * table[:, np.newaxis, :]).reshape(len(out), -1)
    return out
