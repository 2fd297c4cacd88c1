"""The papers' algorithms under their own names: each runs alone, or says why it does not fit.

``opt_0`` has one attribute, the identity and learned rows under Laplace noise; ``coa`` is its
convex optimum under Gaussian noise. ``opt_kron`` has one product of such rows over all attributes,
``opt_plus`` one for every group of products, and ``opt_m`` weighted marginals.

Source: HDMM (McKenna, Miklau, Hay, Machanavajjhala), sections 5 and 6: OPT_0, OPT_kron, OPT_+ and
OPT_M; Yuan, Yang, Zhang, Hao (COA).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dpsql.algebra.operator import Floats, Operator
from dpsql.errors import ProgrammingError
from dpsql.records import replace
from dpsql.search.gaussian import bounded_kron, marginals_strategy, of_full_rank, weighted_gram
from dpsql.search.laplace import kron_candidates, marginals_candidates, room
from dpsql.search.one_attribute import opt0
from dpsql.search.problem import Problem
from dpsql.search.unions.joint import Union, realise
from dpsql.search.unions.kron_union import Family
from dpsql.search.unions.opt_plus import fits_apart, separate_strategy
from dpsql.settings.table import PUBLISHED
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import law
from dpsql.strategy.product import ProductStrategy, assemble
from dpsql.workload.workload import Workload

COA_CELLS = 1024
"""Most cells of ``coa``: each step of its conjugate gradients multiplies matrices of so many."""

Bounded = Iterator[tuple[ProductStrategy, float]]


def published(problem: Problem, mechanism: str, limit: int, effort: float) -> Bounded:
    """Yield the strategies of one algorithm, with lower bounds on any strategy, 0 if unknown.

    Args:
        mechanism: one of ``PUBLISHED`` but ``opt_plus``, which is no union of products.
        limit: most numbers of the estimate of one block.
        effort: scales the work.

    Raises:
        ProgrammingError: E_SETTING where it does not fit, with those that do.
    """
    require(problem, mechanism, limit, effort)
    for found, lower in _run(problem, mechanism, limit, effort):
        yield replace(found, method=mechanism), lower


def _run(problem: Problem, mechanism: str, limit: int, effort: float) -> Bounded:
    is_pure = law(problem.noise).norm == 1
    if mechanism == "opt_0":
        theta = opt0.optimise(_gram(problem), effort=effort)
        family = Family(1, [1], problem.components.masks)
        yield realise(problem, family, Union((theta,), np.ones(1)), mechanism), 0.0
    elif mechanism == "coa":
        from dpsql.search.unions import coa  # few requests name it

        gram = _gram(problem)
        found = coa.optimise(gram if isinstance(gram, np.ndarray) else gram.gram())
        rows = {problem.names[0]: of_full_rank(found.matrix)}
        domain = problem.workload.domain
        yield assemble(domain, rows, {problem.names: 1.0}, problem.noise, mechanism), found.lower
    elif mechanism == "opt_kron":
        blocks = ((each, 0.0) for each in kron_candidates(problem, limit, effort))
        yield from blocks if is_pure else iter([bounded_kron(problem)])
    elif is_pure:
        yield from ((each, 0.0) for each in marginals_candidates(problem, limit, effort))
    else:
        yield marginals_strategy(problem, limit, effort), 0.0


def in_groups(workload: Workload, problem: Problem, limit: int, effort: float) -> Strategy:
    """Return OPT_+: a block for every group of products, with the paper's split of the budget.

    Raises:
        ProgrammingError: E_SETTING where it does not fit, with those that do.
    """
    require(problem, "opt_plus", limit, effort)
    found = separate_strategy(workload, problem.noise, by_name=True)
    if found is None:
        raise _refused(problem, "opt_plus", "no groups of its products fit", limit, effort)
    return found


def require(problem: Problem, mechanism: str, limit: int, effort: float) -> None:
    """Refuse an algorithm that does not fit. Raises: ProgrammingError (E_SETTING)."""
    reason = REASONS[mechanism](problem, limit, effort)
    if reason is not None:
        raise _refused(problem, mechanism, reason, limit, effort)


def _refused(
    problem: Problem, mechanism: str, reason: str, limit: int, effort: float
) -> ProgrammingError:
    others = [name for name in PUBLISHED if name != mechanism]
    fitting = [name for name in others if REASONS[name](problem, limit, effort) is None]
    named = [f"'{name}'" for name in (*fitting, "auto")]
    words = " or ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    other = "" if law(problem.noise).norm == 2 else "; SET delta = 1e-9 allows for gaussian noise"
    return ProgrammingError(
        "E_SETTING",
        f"mechanism = '{mechanism}' does not fit this workload: {reason}",
        hint=f"mechanism = {words} fits under {problem.noise} noise{other}",
    )


def _gram(problem: Problem) -> Floats | Operator:
    return weighted_gram(problem, 0, problem.components.weights2)


def _alone(problem: Problem, name: str) -> str | None:
    if problem.d != 1:
        columns = ", ".join(problem.names)
        return f"{name} plans the cells of one column, and these are of {columns}"
    return "there are too many cells for a matrix of them" if problem.factors[0].large else None


def _opt_0(problem: Problem, limit: int, effort: float) -> str | None:
    reason = _alone(problem, "opt_0")
    if reason is None and law(problem.noise).norm != 1:
        return f"its columns have an L1 norm of one, for laplace noise and not for {problem.noise}"
    return reason


def _coa(problem: Problem, limit: int, effort: float) -> str | None:
    reason = _alone(problem, "coa")
    if reason is None and problem.sizes[0] > COA_CELLS:
        return f"it plans {COA_CELLS:,} cells at most, and these are {problem.sizes[0]:,}"
    if reason is None and law(problem.noise).norm != 2:
        return f"its columns have an L2 norm of one, for gaussian noise and not for {problem.noise}"
    return reason


def _opt_kron(problem: Problem, limit: int, effort: float) -> str | None:
    if problem.cells(problem.full) > limit:
        return "one product over all columns has too many cells"
    if any(factors.large for factors in problem.factors):
        return "a column has too many cells for a matrix of them"
    return None


def _opt_plus(problem: Problem, limit: int, effort: float) -> str | None:
    return fits_apart(problem)


def _opt_m(problem: Problem, limit: int, effort: float) -> str | None:
    return "its sets of columns are too many" if room(problem, limit, effort).crowded else None


REASONS: dict[str, Callable[[Problem, int, float], str | None]] = {
    "opt_0": _opt_0,
    "opt_kron": _opt_kron,
    "opt_plus": _opt_plus,
    "opt_m": _opt_m,
    "coa": _coa,
}
"""Tests, by name, that return why an algorithm does not fit a problem; None if it does."""
