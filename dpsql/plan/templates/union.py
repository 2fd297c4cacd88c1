"""One block per support with shared factors (OPT_plus), answered by least squares over all."""

from __future__ import annotations

from dpsql.plan.templates.family import Family
from dpsql.plan.templates.identity import maximal, split_weights
from dpsql.plan.templates.joint import Found, Objective, Union, descend, initial_thetas
from dpsql.plan.templates.problem import Floats, Problem


def search_union(
    problem: Problem, thetas: tuple[Floats | None, ...] | None = None, *, maxiter: int = 600
) -> tuple[Family, Found]:
    """Return the best union of one block per support, or per maximal support.

    The budget starts at the cube-root split and is then optimised together with the factors.
    Source: HDMM, section 6.2 (OPT_+).
    """
    base = initial_thetas(problem) if thetas is None else thetas
    supports = sorted(set(problem.components.supports))
    choices = [supports] if maximal(supports) == supports else [supports, maximal(supports)]
    out = []
    for sets in choices:
        family = Family(problem.d, sets, problem.components.masks)
        objective = Objective(problem, family)
        start = Union(base, split_weights(objective, base))
        out.append((family, descend(objective, start, ftol=1e-7, maxiter=maxiter)))
    return min(out, key=lambda pair: pair[1].error)
