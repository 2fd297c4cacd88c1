"""Terms of one answer that differ in one attribute only, added up: what is asked is their sum.

A sum of two products is measured with the noise of both where they are measured one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from dpsql.algebra.blocks import Total, simplify
from dpsql.workload.cells import Nodes
from dpsql.workload.nodes import as_integers
from dpsql.workload.term import normalise
from dpsql.workload.workload import Product

MANY = 64
"""Terms of one answer beyond which those that differ in one column only are added up."""

PLACES = 13
"""Decimal places to which rows of these terms are the same but for a multiple."""


def gathered(
    found: Sequence[tuple[Product, float]],
    nodes: Mapping[str, Nodes],
    domain: Mapping[str, int],
    weight: float,
) -> list[tuple[Product, float]]:
    """Add up terms that differ in one attribute only: what is asked is their sum.

    Of few terms those are added up that have one row on that attribute: more rows may be
    structured. Very many are added up wherever they can be, since forecasts take pairs of them: a
    join with a public table is one term per row of that table. Terms that cancel out, as of
    ``a - e + e``, are none.

    Args:
        found: products, and what each is multiplied by.
        nodes: the nodes of measures, by attribute.
        domain: the cells of every attribute.
        weight: that of the answer.
    """
    if len(found) <= MANY:
        return _but_zeros(_summed(found, domain, weight), found)
    found = [_in_proportion(product, scale, nodes) for product, scale in found]
    names = {name for product, _ in found for name in product.factors} - nodes.keys()
    options = [(len({_but(product, name) for product, _ in found}), name) for name in sorted(names)]
    _, chosen = min(options, default=(len(found), ""))
    groups: dict[Hashable, list[tuple[Product, float]]] = {}
    for product, scale in found:
        groups.setdefault(_but(product, chosen), []).append((product, scale))
    return _but_zeros([_added(group, chosen, weight) for group in groups.values()], found)


def _but_zeros(
    summed: list[tuple[Product, float]], found: Sequence[tuple[Product, float]]
) -> list[tuple[Product, float]]:
    """Sums without those that are zero; the terms as they were where all of them are."""
    return [each for each in summed if each[1]] or list(found)


def _summed(
    found: Sequence[tuple[Product, float]], domain: Mapping[str, int], weight: float
) -> list[tuple[Product, float]]:
    """Add up terms that differ in single rows over one attribute, or have none over it."""
    summed = list(found)
    for name in sorted({name for product, _ in found for name in product.factors}):
        groups: dict[Hashable, list[tuple[Product, float]]] = {}
        for place, each in enumerate(summed):
            own = each[0].factors.get(name)
            is_one = own is None or own.rows == 1
            groups.setdefault(_but(each[0], name)[0] if is_one else place, []).append(each)
        written = [_written(group, name, domain[name]) for group in groups.values()]
        summed = [_added(group, name, weight) for group in written]
    return summed


def _written(
    group: Sequence[tuple[Product, float]], name: str, cells: int
) -> Sequence[tuple[Product, float]]:
    """The same terms, with a row of ones where some have a row over an attribute and some none."""
    if len({name in product.factors for product, _ in group}) < 2:
        return group
    return [
        (Product({name: Total(cells), **product.factors}, product.weight), scale)
        for product, scale in group
    ]


def _in_proportion(
    product: Product, scale: float, nodes: Mapping[str, Nodes]
) -> tuple[Product, float]:
    """The same with the largest number of every row over nodes a one: multiples are alike."""
    factors = dict(product.factors)
    for name in factors.keys() & nodes.keys():
        rows = np.asarray(factors[name].dense(), dtype=np.float64)
        largest = float(rows.flat[np.abs(rows).argmax()])
        if len(rows) == 1 and largest:
            factors[name] = simplify(as_integers(np.round(rows / largest, PLACES)))
            scale *= largest
    return Product(factors, product.weight), scale


def _but(product: Product, name: str) -> tuple[Hashable, int | None]:
    """Identity of a product without one attribute, of which only the number of rows counts."""
    own = product.factors.get(name)
    others = frozenset((other, f.key) for other, f in product.factors.items() if other != name)
    return others, None if own is None else own.rows


def _added(
    group: Sequence[tuple[Product, float]], name: str, weight: float
) -> tuple[Product, float]:
    """The sum of terms that differ in one attribute, on which all or none have rows."""
    if len(group) == 1 or name not in group[0][0].factors:
        scale = sum(scale for _, scale in group)
        return Product(group[0][0].factors, weight * abs(scale)), scale
    total = np.sum([scale * product.factors[name].dense() for product, scale in group], axis=0)
    rows, scale = normalise(as_integers(total))
    return Product({**group[0][0].factors, name: simplify(rows)}, weight * scale), scale
