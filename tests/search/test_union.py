"""OPT_plus: the budget split and least squares over all blocks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from dpsql.algebra.operator import Floats
from dpsql.search.problem import Problem
from dpsql.search.unions.joint import Objective
from dpsql.search.unions.kron_union import Family
from dpsql.search.unions.opt_kron import identity_unions, maximal, search_union, split_weights
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Workload

DISJOINT = Workload(
    {"a": 5, "b": 9, "c": 4}, [{"a": "identity"}, {"b": "prefix"}, {"c": "identity"}]
)


@pytest.mark.parametrize(("noise", "power"), [("laplace", 1), ("gaussian", 2)])
def test_split_is_the_minimiser(noise: Noise, power: int) -> None:
    """For disjoint groups the split minimises sum e_g / l_g^2 under the norm of the noise."""
    problem = Problem(DISJOINT, noise)
    sets = sorted(problem.components.supports)
    family = Family(3, sets, problem.components.masks)
    objective = Objective(problem, family)
    thetas: tuple[Floats | None, ...] = (None,) * 3
    w = split_weights(objective, thetas)
    w = w / (w**power).sum() ** (1 / power)
    errors = np.array([9 * 10 / 2 if mask == 2 else {4: 5.0, 1: 4.0}[mask] for mask in sets])

    def split_error(x: Floats) -> float:
        share = np.exp(x) / (np.exp(x) ** power).sum() ** (1 / power)
        return float(np.log((errors / share**2).sum()))

    found = minimize(split_error, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    best = np.exp(found.x) / (np.exp(found.x) ** power).sum() ** (1 / power)
    assert w == pytest.approx(best, rel=1e-4)


def test_square_root_split_beats_cube_root_for_gaussian_noise() -> None:
    e = np.array([1.0, 30.0, 500.0])
    right = np.sqrt(e).sum() ** 2
    l3 = np.cbrt(e) / np.cbrt(e).sum()
    assert right < (e / l3**2).sum() * (l3**2).sum()


def test_search_union_improves_on_identities() -> None:
    problem = Problem(DISJOINT, "laplace")
    _, found = search_union(problem)
    least = min(found.error for _, found in identity_unions(problem, 1 << 20))
    assert found.error < least


def test_disjoint_statements_need_no_joint_domain() -> None:
    domain = dict.fromkeys("abcdefgh", 5000)
    problem = Problem(Workload(domain, [{name: "identity"} for name in domain]), "laplace")
    families = [family.sets for family, _ in identity_unions(problem, 1 << 26)]
    assert families == [sorted(1 << k for k in range(8))]


def test_maximal() -> None:
    assert maximal([1, 2, 3, 4, 12, 8]) == [3, 12]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_components_within_the_same_sets_are_weighed_as_one(
    noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a chain of sets there are as many as sets, not as many as subsets of the largest."""
    names = "abcdef"
    domain = dict(zip(names, (2, 3, 2, 4, 2, 5), strict=True))
    workload = Workload(domain, [dict.fromkeys(names[:k], "identity") for k in range(7)])
    problem = Problem(workload, noise)
    sets = sorted(problem.components.supports)
    family = Family(6, sets, problem.components.masks)
    R, totals = Objective(problem, family).tables((None,) * 6)
    w = np.linspace(1, 2, 7)
    error, slope, _, _ = family.error(w, R, totals, noise)
    monkeypatch.setattr("dpsql.search.unions.kron_union.CLASSED", 1)
    seen: list[int] = []
    measure = Family.measure

    def noted(self: Family, each: Floats) -> tuple[Floats, Floats]:
        seen.append(len(self.components))
        return measure(self, each)

    monkeypatch.setattr(Family, "measure", noted)
    weighed = family.weighed(R, totals, noise)
    found = weighed(w)
    assert found[0] == pytest.approx(error, rel=1e-12)
    np.testing.assert_allclose(found[1], slope, rtol=1e-10)
    assert (seen[0], seen[-1]) == (64, 7)
