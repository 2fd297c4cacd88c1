"""Joint search over p-Identity factors and block weights (Laplace noise)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity
from dpsql.algebra.levels import Structured
from dpsql.algebra.operator import Floats, Operator
from dpsql.records import dataclass
from dpsql.search.one_attribute import opt0
from dpsql.search.one_attribute.opt0 import LEAST_STEPS, minimise, steps_within
from dpsql.search.one_attribute.p_inverse import STRUCTURED_FROM, AppliedGram, LeanInverse
from dpsql.search.problem import Problem
from dpsql.search.unions.kron_union import Family
from dpsql.strategy.product import NEGLIGIBLE, ProductStrategy, assemble

PER_PRODUCT, PER_PAIR, PER_FACTOR = 5e4, 20.0, 2e6
"""Work of a product of the workload, of a pair of sets of attributes, and of a factor however small
it is, in products of numbers: there are many small steps, which take as long."""

ROUGH = 5e-6
"""Least relative decrease per step of descents over large factors, each step of which is dear: a
hundredth of it took ten times as long for a tenth of a percent."""

LARGEST = 1e5
"""Most an entry of Theta may be: beside larger ones the rows of the identity are lost in rounding,
and errors seem less than they are."""


@dataclass(frozen=True, slots=True)
class Union:
    """A union of blocks: one Theta per attribute (None for the identity), one weight per set."""

    thetas: tuple[Floats | None, ...]
    w: Floats


@dataclass(frozen=True, slots=True)
class FoundUnion:
    """A union and its exact error at unit budget, before it is rounded to integers."""

    error: float
    union: Union


class Objective:
    """The exact error of a union as a function of its parameters.

    Attributes of equal size and equal factors share one Theta where the start does.
    Source: HDMM, sections 5 to 7; the error is that of generalised least squares over all blocks.
    """

    def __init__(self, problem: Problem, family: Family) -> None:
        self.problem = problem
        self.family = family
        self.t, self.r = problem.identity_tables()
        self.totals = problem.totals()
        self.alike = [tuple(op.key for op in factors.operators) for factors in problem.factors]

    def tables(self, thetas: Sequence[Floats | None]) -> tuple[Floats, Floats]:
        """Return (R, 1/tau) for factors (p_i, n_i), one per attribute, None for the identity."""
        t, r, totals = self.values(thetas)
        return self.problem.components.values(t, r), totals

    def values(self, thetas: Sequence[Floats | None]) -> tuple[list[Floats], list[Floats], Floats]:
        """Return (t, r, 1/tau) for factors as of ``tables``."""
        return self._tables(thetas)[:3]

    def _tables(
        self, thetas: Sequence[Floats | None]
    ) -> tuple[list[Floats], list[Floats], Floats, dict[int, LeanInverse]]:
        """Return (t, r, 1/tau) and the inverse Gram per distinct Theta, by identity."""
        t, r, totals = list(self.t), list(self.r), self.totals.copy()
        inverses: dict[
            int, LeanInverse
        ] = {}  # by identity, which is what shared means; all are held
        first: dict[int, int] = {}
        for i, theta in enumerate(thetas):
            if theta is None:
                continue
            if id(theta) not in inverses:
                inverses[id(theta)] = LeanInverse.of(theta)
            K = inverses[id(theta)]
            same = first.setdefault(id(theta), i)
            alike = same < i and self.alike[same] == self.alike[i]
            t[i], r[i] = (t[same], r[same]) if alike else self.problem.factors[i].tables(K)
            totals[i] = totals[same] if same < i else 1 / K.total
        return t, r, totals, inverses

    def error(self, union: Union) -> float:
        """Return the error at unit budget."""
        R, totals = self.tables(union.thetas)
        return self.family.error(union.w, R, totals, self.problem.noise)[0]

    def gradient(self, union: Union) -> tuple[float, list[Floats | None], Floats]:
        """Return (error, d/dTheta per attribute, d/dw); infinite where entries are too large."""
        given = [theta for theta in union.thetas if theta is not None]
        if any(theta.max(initial=0.0) > LARGEST for theta in given):
            return math.inf, [None] * len(union.thetas), np.zeros_like(union.w)
        try:
            t, r, totals, inverses = self._tables(union.thetas)
        except np.linalg.LinAlgError:  # a step too far
            return math.inf, [None] * len(union.thetas), np.zeros_like(union.w)
        R = self.problem.components.values(t, r)
        error, dw, dR, dlog = self.family.error(union.w, R, totals, self.problem.noise)
        dthetas: list[Floats | None] = [None] * len(union.thetas)
        if math.isfinite(error):
            gt, gr = self.problem.components.pull(dR, t, r)
            for members in same_theta(union.thetas):
                theta = union.thetas[members[0]]
                if theta is None:
                    continue
                slopes = []
                for alike in _grouped(members, self.alike):
                    slope = self.problem.factors[alike[0]].slope(
                        inverses[id(theta)].row_sums,
                        np.sum([gt[i] for i in alike], axis=0),
                        np.sum([gr[i] for i in alike], axis=0),
                        -float(sum(dlog[i] * totals[i] for i in alike)),
                    )
                    slopes.append(opt0.chain(theta, slope))
                dthetas[members[0]] = np.sum(slopes, axis=0)
        return error, dthetas, dw


def same_theta(thetas: Sequence[Floats | None]) -> list[list[int]]:
    """Return the attributes that hold the very same Theta, together: identity is meant.

    A theta has shape (p, n_i), one per attribute; None is an attribute without one.
    """
    groups: dict[int, list[int]] = {}
    for i, theta in enumerate(thetas):
        groups.setdefault(id(theta) if theta is not None else -1 - i, []).append(i)
    return list(groups.values())


def _grouped(members: list[int], keys: Sequence[object]) -> list[list[int]]:
    groups: dict[object, list[int]] = {}
    for i in members:
        groups.setdefault(keys[i], []).append(i)
    return list(groups.values())


def descend(
    objective: Objective,
    start: Union,
    *,
    ftol: float = 1e-9,
    maxiter: int = 1500,
    weights_only: bool = False,
    thetas_only: bool = False,
) -> FoundUnion:
    """Return the local optimum reached from a start, by descent on the log of the error.

    Args:
        ftol: relative decrease per step at which it ends.
        maxiter: most steps, where they are within the work of a search.
        weights_only, thetas_only: the parameters that move, if not all.
    """
    packing = _Packing(objective.problem, start, weights_only, thetas_only)
    if any(theta is not None and theta.shape[1] >= STRUCTURED_FROM for theta in start.thetas):
        ftol = max(ftol, ROUGH)
    maxiter = max(min(maxiter, LEAST_STEPS), steps_within(_work(objective, start), maxiter))
    if weights_only or all(theta is None for theta in start.thetas):
        R, totals = objective.tables(start.thetas)
        if weights_only:
            R = np.where((R.max() or 1.0) * 1e-13 < R, R, 0.0)
        weighed = objective.family.weighed(R, totals, objective.problem.noise)

        def evaluate(union: Union) -> tuple[float, list[Floats | None], Floats]:
            error, dw = weighed(union.w)
            return error, [None] * len(union.thetas), dw
    else:
        evaluate = objective.gradient
    cost = _cost(objective, start)
    x = minimise_log(evaluate_flat(packing, evaluate), packing.start, ftol, maxiter, cost=cost)
    union = packing.unpack(x)
    return FoundUnion(evaluate(union)[0], union)


def _work(objective: Objective, start: Union) -> float:
    """Return about how many products of numbers one evaluation takes."""
    factors = objective.problem.factors
    pairs = zip(start.thetas, factors, strict=True)
    return 4.0 * sum(
        theta.size * (asked.rows + len(theta)) for theta, asked in pairs if theta is not None
    )


def _cost(objective: Objective, start: Union) -> float:
    """Return the work of one evaluation: factors, products and pairs of sets and components."""
    products = float(len(objective.problem.components.weights2))
    pairs = float(len(objective.family.sets)) * len(objective.family.components)
    factors = PER_FACTOR * sum(theta is not None for theta in start.thetas)
    return 2 * _work(objective, start) + PER_PRODUCT * products + PER_PAIR * pairs + factors


Evaluate = Callable[[Union], tuple[float, "list[Floats | None]", Floats]]


def evaluate_flat(
    packing: _Packing, evaluate: Evaluate
) -> Callable[[Floats], tuple[float, Floats]]:
    """Return the objective as a function of one flat vector."""

    def flat(x: Floats) -> tuple[float, Floats]:
        error, dthetas, dw = evaluate(packing.unpack(x))
        return error, packing.pack_gradient(dthetas, dw)

    return flat


def minimise_log(
    function: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    ftol: float,
    maxiter: int,
    *,
    signed: bool = False,
    cost: float = 0.0,
    lull: float = 0.0,
) -> Floats:
    """Minimise the log of a positive function over x >= 0, or over all x if ``signed``.

    Infinite values are stepped back from.

    Args:
        function: returns its value and gradient (size,).
        start: (size,), as the result.
        ftol, maxiter, cost, lull: as of ``minimise``.
    """

    def log_function(x: Floats) -> tuple[float, Floats]:
        value, gradient = function(x)
        if not math.isfinite(value) or value <= 0:
            return 1e3, np.zeros_like(x)
        return math.log(value), gradient / value

    return minimise(
        log_function, start, ftol=ftol, maxiter=maxiter, signed=signed, cost=cost, lull=lull
    )[1]


class _Packing:
    """Between a union and one flat vector; attributes that share a Theta share its place."""

    def __init__(
        self, problem: Problem, start: Union, weights_only: bool, thetas_only: bool
    ) -> None:
        self.base = start
        self.places: list[slice | None] = [None] * problem.d
        parts: list[Floats] = []
        shared: dict[int, slice] = {}
        size = 0
        for i, theta in enumerate(start.thetas):
            if theta is None or weights_only:
                continue
            if id(theta) not in shared:
                shared[id(theta)] = slice(size, size + theta.size)
                size += theta.size
                parts.append(theta.ravel())
            self.places[i] = shared[id(theta)]
        self.weights: slice | None = None
        if not thetas_only:
            self.weights = slice(size, size + len(start.w))
            parts.append(start.w / start.w.max())
        self.start = np.concatenate(parts) if parts else np.zeros(0)

    def unpack(self, x: Floats) -> Union:
        seen: dict[int, Floats] = {}
        thetas: list[Floats | None] = []
        for theta, place in zip(self.base.thetas, self.places, strict=True):
            if theta is None or place is None:
                thetas.append(theta)
            else:
                thetas.append(seen.setdefault(place.start, x[place].reshape(theta.shape)))
        return Union(tuple(thetas), self.base.w if self.weights is None else x[self.weights])

    def pack_gradient(self, dthetas: Sequence[Floats | None], dw: Floats) -> Floats:
        out = np.zeros(len(self.start))
        for place, dtheta in zip(self.places, dthetas, strict=True):
            if place is not None and dtheta is not None:
                out[place] += dtheta.ravel()
        if self.weights is not None:
            out[self.weights] = dw
        return out


def shared_groups(problem: Problem) -> list[list[int]]:
    """Return the attributes that may share a Theta: equal size and equal factors."""
    groups: dict[tuple[int, frozenset[object]], list[int]] = {}
    for i, factors in enumerate(problem.factors):
        key = (factors.n, frozenset(op.key for op in factors.operators))
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def rows_for(problem: Problem, i: int) -> int:
    """Return p for one attribute in a joint search."""
    return 1 if problem.factors[i].trivial else problem.sizes[i] // 16 + 2


def initial_thetas(
    problem: Problem, *, trivial: bool = False, effort: float = 1.0
) -> tuple[Floats | None, ...]:
    """Return per attribute OPT_0 of its normalised factors; None where only cells are asked.

    ``trivial`` also fits one learned row where cells and totals are asked. An ``effort`` of more
    than one counts as one.
    """
    thetas: list[Floats | None] = [None] * problem.d
    for group in shared_groups(problem):
        factors = problem.factors[group[0]]
        learned = not factors.large and (
            not _is_plain(problem, group[0]) if trivial else not factors.trivial
        )
        if factors.n > 1 and learned:
            if group[0] not in problem.fitted:
                problem.fitted[group[0]] = _first_theta(problem, group[0], min(1.0, effort))
            for i in group:
                thetas[i] = problem.fitted[group[0]]
    return tuple(thetas)


def _is_plain(problem: Problem, i: int) -> bool:
    return is_alike(problem, i) and isinstance(problem.factors[i].operators[0], Identity)


def is_alike(problem: Problem, i: int) -> bool:
    """Say whether every product asks the same of an attribute."""
    asked = problem.components.index[:, i]
    return len(problem.factors[i].operators) == 1 and bool((asked >= 0).all())


def _first_theta(problem: Problem, i: int, effort: float) -> Floats:
    """Return OPT_0 of what is asked of an attribute: with all care where that is one factor in
    every product, whose best is that of a Kronecker strategy too.
    """
    factors, p = problem.factors[i], rows_for(problem, i)
    is_large = factors.n >= STRUCTURED_FROM
    if not is_large and not is_alike(problem, i):
        gram = factors.summed(*normalised_weights(problem, i))
        return opt0.optimise(gram, p=p, restarts=3, ftol=1e-6)
    if is_alike(problem, i):
        asked: Operator | Floats | AppliedGram = factors.operators[0]
    else:
        asked = factors.summed(*normalised_weights(problem, i))
    counts = (None, p) if is_large and factors.n <= opt0.TILED_ABOVE else (None,)
    found = [opt0.optimise(asked, p=count, effort=effort) for count in counts]
    return min(found, key=lambda theta: opt0.loss_and_grad(theta, asked)[0])


def normalised_weights(problem: Problem, i: int) -> tuple[Floats, float]:
    """Return what scales each factor Gram of an attribute to unit trace per use, and Total's."""
    factors, index = problem.factors[i], problem.components.index[:, i]
    uses = np.bincount(index[index >= 0], minlength=len(factors.operators))
    scale = np.where(factors.frobenius > 0, factors.frobenius, 1.0)
    return np.sqrt(uses) / scale, 1 / factors.n if (index < 0).any() else 0.0


def random_thetas(
    thetas: Sequence[Floats | None], rng: np.random.Generator
) -> tuple[Floats | None, ...]:
    """Return random parameters of the same shapes, shared where the given ones are."""
    seen: dict[int, Floats] = {}
    out: list[Floats | None] = []
    for theta in thetas:
        if theta is None:
            out.append(None)
            continue
        if id(theta) not in seen:
            seen[id(theta)] = rng.choice([1.0, 0.5, 0.2]) * rng.random(theta.shape)
        out.append(seen[id(theta)])
    return tuple(out)


def realise(problem: Problem, family: Family, union: Union, method: str) -> ProductStrategy:
    """Return the integer strategy of a union.

    Args:
        union: over the sets of the family.
        method: the name of the search, for people.
    """
    factors: dict[str, NDArray[np.float64] | Structured | None] = {}
    for name, asked, theta in zip(problem.names, problem.factors, union.thetas, strict=True):
        factors[name] = asked.base.rows
        if theta is not None and theta.any():
            factors[name] = opt0.matrix(theta[theta.any(axis=1)])
    w = _supporting(problem, family, union)
    weights = {
        problem.attributes(M): float(x) for M, x in zip(family.sets, w, strict=True) if x > 0
    }
    return assemble(problem.workload.domain, factors, weights, problem.noise, method)


def _supporting(problem: Problem, family: Family, union: Union) -> Floats:
    """Return the weights without negligible ones, or all raised above that if they are needed."""
    if len(union.w) == 1:
        return union.w
    least = 2 * NEGLIGIBLE * union.w.max()
    kept = np.where(union.w >= least, union.w, 0.0)
    R, _ = Objective(problem, family).tables(union.thetas)
    if (family.sup(kept)[R > 0] > 0).all():
        return kept
    return np.where(union.w > 0, np.maximum(union.w, least), 0.0)
