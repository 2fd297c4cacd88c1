"""Products over joint attributes: what differs in its rows over one of these only is added up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import simplify
from dpsql.algebra.operator import Operator
from dpsql.records import dataclass
from dpsql.workload.nodes import as_integers
from dpsql.workload.term import normalise
from dpsql.workload.workload import Product

Groups = Mapping[str, tuple[str, ...]]
"""Names of joint attributes, with the attributes that each of them is made of."""

FEW = 8
"""Products up to which their rows are written out one by one."""


@dataclass(frozen=True, slots=True)
class _Lifted:
    """A term of which some factors are explicit rows over joint attributes."""

    scale: float
    outside: dict[str, Operator]
    dense: dict[str, NDArray[Any]]
    weight: float


def lift(
    products: Sequence[tuple[float, Product]],
    joint: Groups,
    sizes: Mapping[str, int],
    shared: dict[tuple[object, ...], Operator],
) -> list[tuple[float, Product]]:
    """Write terms over joint attributes; those that differ in one joint factor only are added up.

    Args:
        products: what each is multiplied by, and the product.
        joint: the attributes that each joint one is made of.
        sizes: the cells of every attribute.
        shared: the factors that were formed before, by their rows; new ones are put here.
    """
    lifted = _added_at_once(products, joint, sizes) or _one_by_one(products, joint, sizes)
    out = []
    for each in lifted:
        factors = dict(each.outside)
        for key, rows in each.dense.items():
            name = (key, rows.shape, rows.dtype.kind, rows.tobytes())
            factors[key] = shared.setdefault(name, simplify(rows))
        out.append((each.scale, Product(factors, each.weight)))
    return out


def _one_by_one(
    products: Sequence[tuple[float, Product]], joint: Groups, sizes: Mapping[str, int]
) -> list[_Lifted]:
    lifted: list[_Lifted] = []
    for scale, product in products:
        dense = {
            key: _kron(product, group, sizes)
            for key, group in joint.items()
            if any(name in product.factors for name in group)
        }
        lifted.append(_Lifted(scale, _outside(product, joint), dense, product.weight))
    for key in {key for each in lifted for key in each.dense}:
        if len(lifted) > 1:
            lifted = _add_up(lifted, key, math.prod(sizes[name] for name in joint[key]))
    return lifted


def _added_at_once(
    products: Sequence[tuple[float, Product]], joint: Groups, sizes: Mapping[str, int]
) -> list[_Lifted]:
    """Add up many terms of one row each; none where they are few, or not such.

    A sum of Kronecker products of two halves is one product of matrices, of which no term is
    written out: a thousand of them over a million cells would be 8 GiB.
    """
    if len(joint) != 1 or len(products) <= FEW:
        return []
    ((key, group),) = joint.items()
    if any(f.rows > 1 for _, p in products for name, f in p.factors.items() if name in group):
        return []
    alike: dict[object, list[tuple[float, Product]]] = {}
    for scale, product in products:
        if product.factors.keys().isdisjoint(group):
            return []
        outside = frozenset((a, f.key) for a, f in _outside(product, joint).items())
        alike.setdefault(outside, []).append((scale, product))
    cut = len(group) // 2
    out = []
    for members in alike.values():
        scales = np.array([scale for scale, _ in members], dtype=np.float64)
        one, two = (
            np.concatenate([_kron(product, half, sizes) for _, product in members])
            for half in (group[:cut], group[cut:])
        )
        rows = (one.T * scales) @ two.astype(np.float64)
        weight = max(product.weight / abs(scale) for scale, product in members)
        out.append(_scaled(_outside(members[0][1], joint), {}, key, rows.reshape(1, -1), weight))
    return out


def _outside(product: Product, joint: Groups) -> dict[str, Operator]:
    inside = {name for group in joint.values() for name in group}
    return {name: f for name, f in product.factors.items() if name not in inside}


def _add_up(lifted: Sequence[_Lifted], key: str, cells: int) -> list[_Lifted]:
    """Add up terms that differ in their rows over one joint attribute only."""
    sums: dict[tuple[object, ...], _Lifted] = {}
    for each in lifted:
        rest = {k: rows for k, rows in each.dense.items() if k != key}
        name = (
            frozenset((a, f.key) for a, f in each.outside.items()),
            tuple(sorted((k, rows.tobytes()) for k, rows in rest.items())),
        )
        rows = each.scale * each.dense.get(key, np.ones((1, cells)))
        weight = each.weight / abs(each.scale)
        known = sums.get(name)
        if known is not None:
            rows, weight = rows + known.dense[key], max(weight, known.weight)
        sums[name] = _Lifted(1.0, each.outside, {**rest, key: as_integers(rows)}, weight)
    return [
        _scaled(each.outside, each.dense, key, each.dense[key], each.weight)
        for each in sums.values()
    ]


def _scaled(
    outside: dict[str, Operator],
    dense: dict[str, NDArray[Any]],
    key: str,
    rows: NDArray[Any],
    weight: float,
) -> _Lifted:
    """A term with rows over one joint attribute, and by how much these were scaled."""
    rows, scale = normalise(as_integers(rows))
    return _Lifted(scale, outside, {**dense, key: rows}, weight * scale)


def _kron(product: Product, group: Sequence[str], sizes: Mapping[str, int]) -> NDArray[Any]:
    out: NDArray[Any] = np.ones((1, 1), dtype=np.int64)
    for name in group:
        factor = product.factors.get(name)
        rows = np.ones((1, sizes[name]), dtype=np.int64) if factor is None else factor.dense()
        out = np.kron(out, rows)
    return out
