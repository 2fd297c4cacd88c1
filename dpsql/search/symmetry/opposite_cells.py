"""Conditions on columns of their own, in threes: counts of cells less those of opposite cells.

A row of data is in one of the eight cells of three such columns, so that the four differences of
opposite cells have a sensitivity of one together. With the number of rows they give all three
counts. Yes less no of every column by itself has 9/4 of their variance, at the same cost.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from dpsql.algebra.integer_rows import Matrix
from dpsql.algebra.operator import Integers
from dpsql.search.strategy_cache import cached_choice
from dpsql.strategy.axis import residual_axis
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.product import ProductStrategy, shares
from dpsql.strategy.product_block import AttributeRows, ProductBlock
from dpsql.strategy.product_forecast import ProductForecast
from dpsql.workload.cells import Cells
from dpsql.workload.layout import Layout, join
from dpsql.workload.workload import Product, Workload

TOGETHER = 3
"""Columns of a group: two have 9/8 of the variance, four as much as two."""

LEAST = 5
"""Fewest columns: below, tables of all of them are better."""

TOTALS = (0.0, 0.5, 1.0)
"""Shares of the total that are tried, where other blocks tell it too, as parts of its own."""


def in_threes(layout: Layout, noise: Noise, effort: float) -> tuple[Layout, ProductStrategy] | None:
    """Return a layout and its strategy; None where such columns are few, or the norm is not L1.

    What else is asked is measured as it would be by itself.

    Args:
        layout: with an attribute for every column.
        effort: scales the work for what else is asked.
    """
    groups = _groups(layout)
    if law(noise).norm != 1 or not groups:
        return None
    joined = join(layout, groups)
    rows = None if joined is None else _all_rows(joined, len(groups))
    if joined is None or rows is None:
        return None
    workload = joined.workload
    rest = [p for p in workload.products if p.factors and not rows.keys() & p.factors.keys()]
    other = None
    if rest:
        other = _beside(Workload(workload.domain, rest), noise, effort)
        if other is None:
            return None
    found = [_strategy(workload, rows, other, noise, each) for each in TOTALS if rest or each == 1]
    possible = [each for each in found if each is not None]
    return joined, min(possible, key=lambda each: each.unit_error(workload))


def _beside(workload: Workload, noise: Noise, effort: float) -> Strategy | None:
    """Return a strategy that others can be measured beside: its rows tell the totals.

    Those of the sum of a measure alone do not. None where it is none of shared rows.
    """
    for asked in (workload.products, [*workload.products, Product({})]):
        found = cached_choice(Workload(workload.domain, asked), noise, "auto", effort).strategy
        if found.shared_rows is None:
            return None
        known = ProductForecast(AttributeRows(workload.domain, found.shared_rows, {}), (), ())
        if all(known.axis(name).total for name in found.shared_rows):
            return found
    return None


def _groups(layout: Layout) -> list[tuple[str, ...]]:
    """Return the columns of two cells that are asked about by themselves, in threes.

    A row adds a part of itself to each of two nodes of a measure, and is in no cell of several.
    """
    workload = layout.workload
    cells = {name for name, each in layout.resolutions.items() if isinstance(each, Cells)}
    apart = {name for name in cells if workload.domain[name] == 2 and not workload.pinned}
    for product in workload.products:
        if len(product.factors) > 1:
            apart -= product.factors.keys()
    names = [name for name in workload.attributes if name in apart]
    if len(names) < LEAST:
        return []
    parts = np.array_split(np.arange(len(names)), math.ceil(len(names) / TOGETHER))
    return [tuple(names[i] for i in part) for part in parts]


def _all_rows(joined: Layout, count: int) -> dict[str, Integers] | None:
    """Return the rows of every joint attribute; None where cells were merged or left out."""
    found: dict[str, Integers] = {}
    for name, each in joined.resolutions.items():
        if isinstance(each, Cells) and each.labels is not None:
            if each.leaves_out or each.size != each.labels.size or set(each.labels.shape) != {2}:
                return None
            found[name] = opposite_rows(each.labels)
    return found if len(found) == count else None


def opposite_rows(labels: Integers) -> Integers:
    """Return one row for every cell and its opposite: 1 for the one, -1 for the other.

    ``labels`` has an axis of two for every column and gives the number of every cell; the rows have
    shape (cells / 2, cells), with one entry in each column.

    >>> opposite_rows(np.arange(4).reshape(2, 2)).tolist()
    [[1, 0, 0, -1], [0, 1, -1, 0]]
    """
    rows = np.zeros((labels.size // 2, labels.size), dtype=np.int64)
    for row, place in zip(rows, itertools.product((0, 1), repeat=labels.ndim), strict=False):
        row[labels[place]] = 1
        row[labels[tuple(1 - i for i in place)]] = -1
    return rows


def _strategy(
    workload: Workload,
    rows: dict[str, Integers],
    other: Strategy | None,
    noise: Noise,
    total: float,
) -> ProductStrategy | None:
    """Return the blocks with shares by the errors that follow from each alone.

    The least of sums of e / share^2 has shares in proportion to cube roots.
    """
    power = law(noise).share_power
    errors, of_total = _errors(workload, rows)
    sizes: dict[tuple[str, ...], float] = {(name,): error**power for name, error in errors.items()}
    if total:
        sizes[()] = total * of_total**power
    full: dict[str, Matrix] = {}
    if other is not None:
        full = dict(other.shared_rows or {})
        rest = [p for p in workload.products if p.factors and not rows.keys() & p.factors.keys()]
        size = other.unit_error(Workload(workload.domain, rest)) ** power
        for block in other.blocks:
            own = sizes.get(block.attributes, 0.0)
            sizes[block.attributes] = own + size * float(block.share)
        if not total and () not in sizes and not _tell_totals(other):
            return None
    parts = shares(list(sizes.values()))
    blocks = tuple(
        ProductBlock(names, frozenset(names) & rows.keys(), part)
        for names, part in zip(sizes, parts, strict=True)
        if part
    )
    return ProductStrategy(workload.domain, full, rows, blocks, noise, "opposites")


def _tell_totals(strategy: Strategy) -> bool:
    return strategy.forecast(strategy.unit_variances()).supports(Product({}))


def _errors(workload: Workload, rows: dict[str, Integers]) -> tuple[dict[str, float], float]:
    """Return the error by every joint attribute, and by the total, of unit noise on each."""
    axes = {name: residual_axis(workload.domain[name], each) for name, each in rows.items()}
    errors, of_total = dict.fromkeys(rows, 0.0), 0.0
    for product in workload.products:
        if not product.factors:
            of_total += product.weight**2
        for name in rows.keys() & product.factors.keys():
            means, spread, _ = axes[name].parts(product.factors[name])
            errors[name] += product.weight**2 * float(spread.sum())
            of_total += product.weight**2 * float(means @ means)
    return errors, of_total
