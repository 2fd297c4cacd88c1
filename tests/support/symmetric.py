"""Workloads with interchangeable cells, and dense algebra over their whole domain."""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import IdentityTotal, Total
from dpsql.search.symmetry.interchangeable_cells import symmetric_optimum
from dpsql.strategy.symmetric import SymmetricStrategy
from dpsql.workload.workload import Product, Workload

BINS = [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]]
ONE = [[1, 0, 0, 0]]

UNIONS: dict[str, Workload] = {
    "mixed": Workload(
        {"a": 2, "b": 4, "c": 6},
        [
            ({"a": "identity", "b": ONE}, 2.0),
            {"b": "identity", "c": BINS},
            ({"c": "identity"}, 0.5),
            {},
        ],
    ),
    "prefix": Workload(
        {"a": 2, "b": 4, "c": 6},
        [{"b": "prefix", "c": BINS}, {"a": "identity", "c": "identity"}, {"b": "identity"}],
    ),
    "deficient": Workload({"b": 4, "c": 6}, [{"b": ONE, "c": BINS}, {"b": "identity"}]),
    "factored": Workload(
        {"a": 3, "b": 4, "c": 6},
        [
            {"a": IdentityTotal(3), "b": "identity"},
            {"a": IdentityTotal(3), "b": ONE, "c": BINS},
        ],
    ),
    "between": Workload(
        {"b": 4, "a": 3, "c": 6},
        [{"b": "prefix", "a": "prefix", "c": BINS}, {"a": "prefix", "c": "identity"}],
    ),
    "single": Workload({"b": 4, "a": 3}, [({"b": ONE, "a": "prefix"}, 3.0)]),
    "contrast": Workload({"b": 4, "a": 2}, [{"b": [[1, -1, 0, 0]]}, {"a": "identity"}]),
    "rows": Workload(
        {"a": 2, "b": 4},
        [{"a": [[1, 0]], "b": row} for row in np.eye(4)] + [{"b": [[1, 1, 0, 0]]}],
    ),
    "one attribute": Workload({"b": 9}, [{"b": "prefix"}, ({"b": "identity"}, 2.0)]),
}


def dense_rows(workload: Workload, product: Product) -> NDArray[np.float64]:
    parts = [
        (product.factors.get(name) or Total(n)).dense().astype(float)
        for name, n in workload.domain.items()
    ]
    return reduce(np.kron, parts)


def dense_gram(workload: Workload) -> NDArray[np.float64]:
    rows = np.concatenate([p.weight * dense_rows(workload, p) for p in workload.products])
    return np.asarray(rows.T @ rows)


def strategy_of(name: str) -> SymmetricStrategy:
    found = symmetric_optimum(UNIONS[name])
    assert found is not None
    return found.strategy


def measured_rows(workload: Workload, strategy: SymmetricStrategy) -> NDArray[np.float64]:
    """All rows over all attributes of the domain, the unmeasured ones summed over."""
    block = strategy.block
    shape = [n if a in block.attributes else 1 for a, n in workload.domain.items()]
    tensor = block.integer_rows.matrix().astype(float).reshape(block.rows, *shape)
    full = np.broadcast_to(tensor, (block.rows, *workload.domain.values()))
    return full.reshape(block.rows, -1)
