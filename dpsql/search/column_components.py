"""Connected components of columns: what is asked of columns that no product has together.

Under Laplace noise tables over separate columns share a budget and little else: what each measures
tells the others the number of rows. So each component is planned by itself, equal ones once, and
k copies of a request take as long as one. The shares are those that are best for errors that add
up. Small columns gain by tables with others, and are of one component with these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from dpsql.algebra.integer_rows import Matrix
from dpsql.algebra.operator import Floats
from dpsql.records import dataclass, replace
from dpsql.search.problem import Problem
from dpsql.search.search_cache import SearchCache
from dpsql.search.shares import reweight
from dpsql.search.unions.joint import Objective, Union, descend, realise
from dpsql.search.unions.kron_union import Family
from dpsql.search.work_limit import portion
from dpsql.strategy.noise_law import LAPLACE, Noise, law
from dpsql.strategy.product import ProductStrategy, assemble
from dpsql.workload.repeated_blocks import resolved
from dpsql.workload.workload import Product, Workload

NEAR = 4.0
"""Ratio of the error of tables over all columns of two components to that of tables apart, as noise
on cells has them, up to which they are planned as one: a search may find in between."""

ENTRY, FTOL, ROUGH_STEPS = 1e-2, 1e-6, 60
"""Of descents over all components: the weight from which the number of rows comes in, the relative
decrease per step at which they end, and the steps after which only the better start goes on."""

REMEMBERED = 64
"""Components whose plans are remembered in the process."""

_known: SearchCache[tuple[ProductStrategy, float]] = SearchCache(REMEMBERED)


@dataclass(frozen=True, slots=True)
class ColumnComponent:
    """Columns with what is asked of them, and the error of noise on all of their cells."""

    sizes: Mapping[str, int]
    products: tuple[Product, ...]
    error: float

    @property
    def cells(self) -> float:
        """The cells of all columns together."""
        return math.prod(map(float, self.sizes.values()))

    @property
    def scale(self) -> float:
        """The largest weight of a product."""
        return max(product.weight for product in self.products)

    def joined(self, other: ColumnComponent) -> ColumnComponent:
        """Return the two as one."""
        error = self.error * other.cells + other.error * self.cells
        products = (*self.products, *other.products)
        return ColumnComponent({**self.sizes, **other.sizes}, products, error)

    def ordered(self, order: Mapping[str, int]) -> ColumnComponent:
        """Return the same with the columns in an order."""
        names = sorted(self.sizes, key=order.__getitem__)
        return replace(self, sizes={name: self.sizes[name] for name in names})

    def workload(self) -> Workload:
        """Return what is asked, on columns by number and to a scale: equal ones are planned once.

        Columns that a component has in all of its products need no search, though the whole has
        other products.
        """
        number = {name: f"c{place}" for place, name in enumerate(self.sizes)}
        products = [
            Product({number[n]: f for n, f in p.factors.items()}, p.weight / self.scale)
            for p in self.products
        ]
        domain = {number[name]: size for name, size in self.sizes.items()}
        return resolved(Workload(domain, products))


def components_of(workload: Workload) -> list[ColumnComponent]:
    """Return the components of a workload, small ones as one where that may have less error."""
    place: dict[str, int] = {}
    members: dict[int, list[Product]] = {}
    for number, (product, weight2) in enumerate(workload.asked):
        met = {place[name] for name in product.factors if name in place}
        found = [Product(product.factors, weight2**0.5)] if product.factors else []
        for other in met:
            found = members.pop(other) + found
        members[number] = found
        place.update((n, number) for each in found for n in each.factors)
    power = law(LAPLACE.name).share_power
    joined: list[ColumnComponent] = []
    for component in sorted(_read(workload, list(members.values())), key=lambda each: each.cells):
        if joined:
            both = joined[-1].joined(component)
            apart = (joined[-1].error ** power + component.error**power) ** (1 / power)
            if both.error <= NEAR * apart:
                joined[-1] = both
                continue
        joined.append(component)
    order = {name: number for number, name in enumerate(workload.domain)}
    return [each.ordered(order) for each in joined]


def _read(workload: Workload, groups: Sequence[Sequence[Product]]) -> Iterator[ColumnComponent]:
    """Yield the components of products in groups, with columns in the order of the workload."""
    for products in groups:
        names = {name for product in products for name in product.factors}
        sizes = {name: n for name, n in workload.domain.items() if name in names}
        error = 0.0
        for product in products:
            away = [n for name, n in sizes.items() if name not in product.factors]
            inside = [factor.frobenius2() for factor in product.factors.values()]
            error += product.weight**2 * math.prod(map(float, away)) * math.prod(inside)
        if sizes:
            yield ColumnComponent(sizes, tuple(products), error)


def plan_apart(
    workload: Workload, noise: Noise, limit: int, plan: partial[ProductStrategy]
) -> ProductStrategy | None:
    """Return the plans of all components as one; None where there is one, or one has other rows.

    Other rows are those that do not tell the number of rows, too, such as a sum by itself.

    Args:
        workload: with nothing pinned.
        noise: the law, of the L1 norm.
        limit: most numbers of one block.
        plan: finds the strategy of a component, which follows from this and its arguments.
    """
    components = components_of(workload)
    if len(components) < 2:
        return None
    asked = [each.workload() for each in components]
    keys = [each.fingerprint() for each in asked]
    planned: dict[str, tuple[ProductStrategy, float]] = {}
    distinct = dict(zip(keys, asked, strict=True))
    for key, each in distinct.items():
        find = partial(_planned_within, each, plan, 1 / len(distinct))
        planned[key] = _known.of((key, noise, *plan.args), 1, find)
    full: dict[str, Matrix] = {}
    total = sum(weight2 for product, weight2 in workload.asked if not product.factors)
    weights: dict[tuple[str, ...], float] = {}
    if total:  # the number of rows is in no component
        weights[()] = total ** law(noise).share_power
    for key, component in zip(keys, components, strict=True):
        strategy, error = planned[key]
        rows = strategy.shared_rows
        if rows is None or not _tells_number(strategy):
            return None
        names = dict(zip(strategy.domain, component.sizes, strict=True))
        full |= {names[name]: each for name, each in rows.items()}
        # what all tell, the number of rows, is of the error on each cell a part of its own
        own = error * component.scale**2 * (1 - 1 / component.cells)
        size = own ** law(noise).share_power
        for block in strategy.blocks:
            attributes = tuple(names[name] for name in block.attributes)
            weights[attributes] = weights.get(attributes, 0.0) + size * float(block.share)
    found = assemble(workload.domain, full, weights, noise, "components")
    found = reweight(found, workload, limit, "own") or found
    together = _descended(found, workload)
    is_less = together and together.unit_error(workload) < found.unit_error(workload)
    return together if together and is_less else found


def _descended(found: ProductStrategy, workload: Workload) -> ProductStrategy | None:
    """Return what a descent over the learned rows and the blocks of all components comes to.

    Rows that are learned for a component by itself tell the number of rows, which others tell too:
    beside these they are worth less. It starts from them and from none, and ends from the better.
    """
    rows = found.shared_rows or {}
    problem = Problem(workload, found.noise)
    thetas = [_theta_of(rows[name]) for name in problem.names]
    if all(theta is None for theta in thetas) or not all(map(_is_learned, rows.values())):
        return None
    once = {id(rows[n]): theta for n, theta in zip(problem.names, thetas, strict=True)}
    kept = tuple(once[id(rows[name])] for name in problem.names)  # equal ones stay equal
    zeros = {key: None if each is None else np.zeros_like(each) for key, each in once.items()}
    none = tuple(zeros[id(rows[name])] for name in problem.names)
    bits = {name: problem.components.bit(i) for i, name in enumerate(problem.names)}
    own = {sum(bits[n] for n in b.attributes): float(b.share) for b in found.blocks}
    own.setdefault(0, ENTRY)
    family = Family(problem.d, sorted(own), problem.components.masks)
    weights = np.array([own[M] for M in family.sets])
    objective = Objective(problem, family)
    starts = (Union(each, weights) for each in (kept, none))
    rough = [descend(objective, each, ftol=FTOL, maxiter=ROUGH_STEPS) for each in starts]
    best = min(rough, key=lambda each: each.error)
    best = descend(objective, best.union, ftol=FTOL)
    return realise(problem, family, best.union, "components")


def _is_learned(rows: Matrix) -> bool:
    """Say whether rows are an identity, or one with learned rows below it."""
    return rows is None or _theta_of(rows) is not None


def _theta_of(rows: Matrix) -> Floats | None:
    """Return Theta (p, n) of the rows of a p-Identity strategy, None for any others."""
    if not isinstance(rows, np.ndarray) or len(rows) <= rows.shape[1]:
        return None
    size = rows.shape[1]
    cells, diagonal = rows[:size], np.diagonal(rows[:size]).astype(np.float64)
    if diagonal.min() <= 0 or np.count_nonzero(cells) > size:
        return None
    return np.asarray(rows[size:] / diagonal, dtype=np.float64)


def _tells_number(strategy: ProductStrategy) -> bool:
    """Say whether the rows of every column add up to the number of rows."""
    forecast = strategy.forecast(strategy.unit_variances())
    return all(map(forecast.has_sum, strategy.domain))


def _planned_within(
    workload: Workload, plan: partial[ProductStrategy], part: float
) -> tuple[ProductStrategy, float]:
    """Return the plan of a component, within a part of the work, and its error."""
    with portion(part):
        strategy = plan(workload)
    return strategy, strategy.unit_error(workload)
