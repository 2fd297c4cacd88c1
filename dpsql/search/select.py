"""Selection: try the templates that fit and keep the least expected error."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.algebra.integer_rows import Matrix
from dpsql.algebra.operator import Integers
from dpsql.errors import ProgrammingError
from dpsql.records import dataclass, replace
from dpsql.search.bounds.singular_values import cells_bound, svd_bound
from dpsql.search.coarse_noise import BestByBudget, error_of, is_coarse
from dpsql.search.shortened_rows import shortened
from dpsql.search.work_limit import SELECTION, may_begin, metered, portion
from dpsql.search.workload_rows import count_cells, workload_rows
from dpsql.settings.table import FAMILIES, PUBLISHED
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import LAPLACE, Noise, is_law, law
from dpsql.strategy.product import ProductStrategy, assemble
from dpsql.strategy.product_block import ProductBlock
from dpsql.workload.repeated_blocks import is_resolved
from dpsql.workload.workload import Product, Workload

if TYPE_CHECKING:
    from dpsql.search.problem import Problem

CELL_LIMIT = 1 << 27
"""Most numbers of the estimate of one block or of one answer: 1 GiB."""

CERTIFIED = 1e-4
"""Relative distance to the lower bound at which the search stops: nothing better can be far."""

WORTHWHILE = 2e-3
"""Relative gain below which rows on orbits of cells are not worth counting all cells jointly.

A tenth of a per cent of the standard error: a plan is to be within half a one of any other, and
there are other gains that are too small to be looked for.
"""

SYMMETRIC, SEPARATE = 0.4, 0.4
"""Parts of the work that symmetric strategies and separate blocks have to themselves."""

LEAST = 0.25
"""Effort below which a search may do as much as for this."""

APART = "components"
"""The method of components of columns that are planned apart."""

ALIKE = "alike"
"""A family for one attribute of all columns, whose many queries are searched for alone."""

COARSE_CELLS = 1 << 16
"""Most cells of all attributes together that are counted one by one where noise is coarse."""

Template = Callable[["Problem"], Iterable[ProductStrategy]]
"""Yields the strategies of one family that fit a problem, none where none does."""

HIERARCHICAL = ("auto", "tree", "kron", "union", "joint", "hdmm")
"""Mechanisms that measure hierarchies of columns for which no matrix is planned."""

TEMPLATES: dict[str, Template] = {}
"""Families that are cheap to plan, tried before those that search, by name and in order."""


def template(name: str) -> Callable[[Template], Template]:
    """Register a family of strategies."""

    def register(find: Template) -> Template:
        TEMPLATES[name] = find
        return find

    return register


@template("identity")
def _identity(problem: Problem) -> Iterable[ProductStrategy]:
    from dpsql.search.laplace import identity_candidates  # searches that most requests do without

    return identity_candidates(problem, CELL_LIMIT)


template("workload")(workload_rows)


@dataclass(frozen=True, slots=True)
class Selection:
    """A strategy, and a lower bound on the unit error of every strategy for the same noise.

    ``lower`` is certified, and 0 where selection needed no bound. ``work`` is what the search took,
    in products of numbers; ``is_cut`` says that it ended since it may not take more, ``is_tight``
    that it went without what has no room. ``coarse`` are strategies that may have less error where
    noise is not fine beside whole numbers.
    """

    strategy: Strategy
    lower: float = 0.0
    coarse: tuple[Strategy, ...] = ()
    work: float = 0.0
    is_cut: bool = False
    is_tight: bool = False


def select(
    workload: Workload,
    noise: Noise = LAPLACE.name,
    mechanism: str = "auto",
    effort: float = 1.0,
) -> Strategy:
    """Return the strategy of least expected error among the templates that fit.

    Templates are tried in the order of their planning cost; the search stops early at a certified
    optimum. What is compared is the error of the integer strategy that would be measured. Equal
    arguments give equal strategies.

    Args:
        noise: the law.
        mechanism: "auto", or the name of a family, an algorithm or a template.
        effort: scales the work, and more is never worse than one.

    Raises ProgrammingError E_TOO_LARGE or E_SETTING.

    >>> select(Workload({"sex": 2, "age": 3}, [{"sex": "identity", "age": "identity"}])).method
    'identity'
    """
    return choose(workload, noise, mechanism, effort).strategy


def choose(
    workload: Workload,
    noise: Noise = LAPLACE.name,
    mechanism: str = "auto",
    effort: float = 1.0,
) -> Selection:
    """Return what ``select`` does, with the best lower bound that was found on the way.

    Args: as of ``select``.
    """
    if mechanism not in {*FAMILIES, *PUBLISHED, *TEMPLATES, ALIKE} or not is_law(noise):
        raise ProgrammingError(
            "E_SETTING",
            f"no mechanism {mechanism!r} for {noise!r} noise",
            hint=f"mechanisms: {', '.join(FAMILIES)}; noise: laplace or gaussian",
        )
    counted = _counted(workload, noise, mechanism)
    if counted is not None:
        return counted[0]
    if effort <= 1:
        return _within_effort(workload, noise, mechanism, effort)
    less = _within_effort(workload, noise, mechanism, 1.0)
    more = _within_effort(workload, noise, mechanism, effort)
    errors = (each.strategy.unit_error(workload) for each in (more, less))
    lower, work = max(less.lower, more.lower), less.work + more.work
    best = min(zip(errors, (more, less), strict=True), key=lambda pair: pair[0])[1]
    return replace(best, lower=lower, work=work, is_cut=more.is_cut, is_tight=more.is_tight)


def _within_effort(workload: Workload, noise: Noise, mechanism: str, effort: float) -> Selection:
    with metered(SELECTION * max(effort, LEAST)) as meter:
        found = _choose(workload, noise, mechanism, effort)
    return replace(found, work=meter.done, is_cut=meter.is_cut, is_tight=meter.is_tight)


def _choose(workload: Workload, noise: Noise, mechanism: str, effort: float) -> Selection:
    if mechanism == "symmetric":
        return _symmetric(workload, noise, effort)
    if mechanism == "separate":
        return _separate(workload, noise)
    if mechanism == ALIKE:
        return _alike(workload, noise, effort)
    if mechanism == "opt_plus":
        return _in_groups(workload, noise, effort)
    chosen, strategy = _searched(workload, noise, mechanism, effort)
    if mechanism == "auto" and law(noise).norm == 2:
        chosen = _with_symmetric(workload, strategy, chosen, effort)
    return _with_separate(workload, chosen) if mechanism == "auto" else chosen


def _best_product(
    workload: Workload, noise: Noise, mechanism: str, effort: float
) -> tuple[Selection, ProductStrategy]:
    """Return the best union of Kronecker products, with a lower bound on any strategy."""
    counted = _counted(workload, noise, mechanism)
    return _searched(workload, noise, mechanism, effort) if counted is None else counted


def _product_alone(
    noise: Noise, mechanism: str, effort: float, workload: Workload
) -> ProductStrategy:
    """Return the same of a component, without the bound."""
    return _best_product(workload, noise, mechanism, effort)[1]


def _counted(
    workload: Workload, noise: Noise, mechanism: str
) -> tuple[Selection, ProductStrategy] | None:
    found = count_cells(workload, noise, CELL_LIMIT) if mechanism in ("auto", "hdmm") else None
    return None if found is None else (Selection(*found), found[0])


def _searched(
    workload: Workload, noise: Noise, mechanism: str, effort: float
) -> tuple[Selection, ProductStrategy]:
    """Return the same where cells are added up."""
    from dpsql.search.problem import Problem  # counting all cells needs no search

    problem = Problem(workload, noise)
    if workload.pinned and problem.d > 1:
        return _with_pinned(workload, noise, mechanism, effort)
    problem.check_sizes(CELL_LIMIT)
    if problem.d == 0 or not _asks(problem):
        return Selection(_least(problem)), _least(problem)
    known = len(problem.components.weights2) == 1 or all(f.trivial for f in problem.factors)
    bound = max(cells_bound(workload), svd_bound(workload) if known else 0.0)
    if mechanism == "auto" and law(noise).norm == 1 and problem.d > 1:
        from dpsql.search.column_components import plan_apart  # most requests have one component

        plan = partial(_product_alone, noise, mechanism, effort)
        apart = plan_apart(workload, noise, CELL_LIMIT, plan)
        if apart is not None:
            return Selection(apart, bound), apart
    best, least, contest = None, math.inf, BestByBudget(workload)
    for strategy, lower in candidates(problem, mechanism, effort):
        bound = max(bound, lower)
        error = error_of(strategy, workload)
        if math.isinf(error):
            continue
        contest.enter(strategy, error)
        if error < least:
            best, least = strategy, error
        is_near = mechanism in ("auto", "hdmm") and least <= bound * (1 + CERTIFIED)
        if is_near or not may_begin():
            break
    if best is None:
        raise _too_large(
            f"mechanism {mechanism!r} does not fit this workload",
            "use mechanism 'auto'",
        )
    if mechanism == "auto" and problem.d > 1 and problem.cells(problem.full) <= COARSE_CELLS:
        cells = assemble(workload.domain, {}, {problem.names: 1.0}, noise, "identity")
        contest.enter(cells, cells.unit_error(workload))
    return Selection(best, bound, contest.winners(best)), best


def _symmetric(workload: Workload, noise: Noise, effort: float) -> Selection:
    """Return the optimum among all strategies, where the symmetry of the cells is enough."""
    if law(noise).norm != 2:
        raise ProgrammingError(
            "E_SETTING", "mechanism 'symmetric' needs gaussian noise", hint="use mechanism 'joint'"
        )
    from dpsql.search.symmetry.interchangeable_cells import (
        symmetric_optimum,  # searches that most requests do without
    )

    with portion(SYMMETRIC):
        found = symmetric_optimum(workload, effort)
    if found is None:
        raise _too_large(
            "mechanism 'symmetric' does not fit this workload", "use mechanism 'auto' or 'joint'"
        )
    return Selection(replace(found.strategy, noise=noise), found.lower)


def _with_symmetric(
    workload: Workload, product: ProductStrategy, chosen: Selection, effort: float
) -> Selection:
    """Return the symmetric optimum where it gains enough, else the product with its bound."""
    if sum(map(bool, workload.factors)) < 2:
        return chosen
    error = product.unit_error(workload)
    if error <= chosen.lower * (1 + WORTHWHILE) or not may_begin():
        return chosen
    from dpsql.search.symmetry.interchangeable_cells import (
        symmetric_optimum,  # searches that most requests do without
    )

    with portion(SYMMETRIC):
        found = symmetric_optimum(workload, effort)
    if found is None:
        return chosen
    symmetric = replace(found.strategy, noise=product.noise)
    gains = symmetric.unit_error(workload) * (1 + WORTHWHILE) < error
    lower = max(chosen.lower, found.lower)
    return replace(chosen, strategy=symmetric if gains else product, lower=lower)


def _separate(workload: Workload, noise: Noise) -> Selection:
    """Return the best strategy with a block of its own for every group of products."""
    from dpsql.search.problem import Problem
    from dpsql.search.unions.opt_plus import (
        separate_strategy,  # searches that most requests do without
    )

    Problem(workload, noise).check_sizes(CELL_LIMIT)
    with portion(SEPARATE):
        found = separate_strategy(workload, noise)
    if found is None:
        raise _too_large("mechanism 'separate' does not fit this workload", "use mechanism 'auto'")
    return Selection(found)


def _in_groups(workload: Workload, noise: Noise, effort: float) -> Selection:
    """Return OPT_+ as it is published."""
    from dpsql.search.problem import Problem
    from dpsql.search.published_algorithms import in_groups  # few requests name it

    problem = Problem(workload, noise)
    problem.check_sizes(CELL_LIMIT)
    if problem.d == 0 or not _asks(problem):
        return Selection(_least(problem))
    with portion(SEPARATE):
        return Selection(in_groups(workload, problem, CELL_LIMIT, effort))


def _alike(workload: Workload, noise: Noise, effort: float) -> Selection:
    """Return combinations of many queries of one attribute, most of them alike."""
    from dpsql.search.one_attribute.low_rank import (
        combine_many,  # searches that most requests do without
    )
    from dpsql.search.problem import Problem

    found = combine_many(Problem(workload, noise), effort)
    if found is None:
        raise _too_large("queries are too many, or too few are alike", "use mechanism 'auto'")
    return Selection(found)


def _with_separate(workload: Workload, chosen: Selection) -> Selection:
    """Return separate blocks where they gain enough, else what was chosen."""
    if len(workload.weights2) < 2:
        return chosen
    error = chosen.strategy.unit_error(workload)
    if error <= chosen.lower * (1 + WORTHWHILE) or not may_begin():
        return chosen
    if chosen.strategy.method == APART and _is_apart(workload, chosen.strategy.noise):
        return chosen
    from dpsql.search.unions.opt_plus import (
        separate_strategy,  # searches that most requests do without
    )

    with portion(SEPARATE):
        found = separate_strategy(workload, chosen.strategy.noise, than=error)
    if found is None or found.unit_error(workload) * (1 + WORTHWHILE) >= error:
        return chosen
    coarse = (chosen.strategy,) if is_coarse(chosen.strategy) else ()
    return replace(chosen, strategy=found, coarse=(*coarse, *chosen.coarse))


def _is_apart(workload: Workload, noise: Noise) -> bool:
    """Say whether blocks of their own gain nothing within any component: these have their own."""
    from dpsql.search.column_components import components_of  # most requests have one component
    from dpsql.search.unions.opt_plus import is_worthwhile  # searches that most requests do without

    return not any(is_worthwhile(each.workload(), noise) for each in components_of(workload))


def candidates(
    problem: Problem, mechanism: str, effort: float
) -> Iterator[tuple[ProductStrategy, float]]:
    """Yield the strategies of a mechanism and lower bounds on any, cheapest to plan first.

    Args: as of ``select``.
    """
    if mechanism in PUBLISHED:
        from dpsql.search.published_algorithms import published  # few requests name one

        yield from published(problem, mechanism, CELL_LIMIT, effort)
        return
    for name, find in TEMPLATES.items():
        if mechanism in ("auto", name):
            yield from ((found, 0.0) for found in find(problem))
    if mechanism in TEMPLATES:
        return
    if mechanism in HIERARCHICAL:
        # searches that most requests do without
        from dpsql.search.one_attribute.hierarchy import hierarchy_candidates, with_hierarchies

        found = with_hierarchies(problem, small=mechanism == "tree")
        if found is not None:
            problem = found
            yield from ((each, 0.0) for each in hierarchy_candidates(problem, CELL_LIMIT))
    if mechanism == "tree":
        return
    if law(problem.noise).norm == 2:
        # searches that most requests do without
        from dpsql.search.gaussian import gaussian_candidates

        yield from gaussian_candidates(problem, mechanism, CELL_LIMIT, effort)
    else:
        yield from ((found, 0.0) for found in _laplace(problem, mechanism, effort))


def _laplace(problem: Problem, mechanism: str, effort: float) -> Iterator[ProductStrategy]:
    if mechanism == "residual":
        raise ProgrammingError(
            "E_SETTING", "mechanism 'residual' needs gaussian noise", hint="use mechanism 'joint'"
        )
    from dpsql.search.laplace import laplace_candidates  # searches that most requests do without

    yield from laplace_candidates(problem, mechanism, CELL_LIMIT, effort)


def _too_large(message: str, hint: str) -> ProgrammingError:
    return ProgrammingError("E_TOO_LARGE", message, hint=hint)


def _asks(problem: Problem) -> bool:
    t, r = problem.identity_tables()
    return bool((problem.components.values(t, r) > 0).any())


def _least(problem: Problem) -> ProductStrategy:
    """Return the strategy for a workload that asks at most for the total."""
    pinned = tuple(a for a in problem.workload.attributes if a in problem.workload.pinned)
    full: dict[str, Integers | None] = dict.fromkeys(pinned)
    block = ProductBlock(pinned, frozenset(), Fraction(1))
    return ProductStrategy(problem.workload.domain, full, {}, (block,), problem.noise, "identity")


def _with_pinned(
    workload: Workload, noise: Noise, mechanism: str, effort: float
) -> tuple[Selection, ProductStrategy]:
    """Plan pinned attributes on their own and resolve them in every block of the rest.

    That is an optimum where the rest is one and pinned attributes are such as ``resolved`` finds.
    """
    domain, pinned = workload.domain, workload.pinned
    products, scale = _without(workload.products, pinned)
    rest = Workload(domain, products)
    selection, base = _best_product(rest, noise, mechanism, effort)
    full: dict[str, Matrix] = dict(base.full)
    for name in sorted(pinned):
        asked = [({name: p.factors[name]}, p.weight) for p in workload.products]
        one = Workload({name: domain[name]}, asked, pinned=[name])
        _, alone = _best_product(one, noise, "auto", effort)
        full[name] = alone.full[name]
    order = list(domain)
    blocks = tuple(
        ProductBlock(_ordered([*b.attributes, *pinned], order), b.residual, b.share)
        for b in base.blocks
    )
    short, residual = shortened(blocks, full, base.residual, noise)
    found = ProductStrategy(domain, short, residual, blocks, noise, base.method)
    exact = all(is_resolved(workload, name) for name in pinned)
    return Selection(found, selection.lower * scale if exact else 0.0), found


def _without(products: Sequence[Product], names: Collection[str]) -> tuple[list[Product], float]:
    """Return products without some attributes, weighing by their factors over these, and a scale.

    That is what the first product's factors add up to, in squares: weights are beside it.
    """
    factors = [{n: op for n, op in p.factors.items() if n not in names} for p in products]
    sizes = [math.prod(p.factors[name].frobenius2() for name in names) for p in products]
    weights = [p.weight * (each / sizes[0]) ** 0.5 for p, each in zip(products, sizes, strict=True)]
    return [Product(f, weight) for f, weight in zip(factors, weights, strict=True)], sizes[0]


def _ordered(names: Iterable[str], order: list[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=order.index))
