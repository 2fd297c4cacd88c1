"""Few queries over many cells of one attribute: strategies within the span of the queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from dpsql.algebra.connected_components import cells_of, connected
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.records import replace
from dpsql.search.one_attribute.distinct_queries import (
    BINARY_PLACES,
    LowRank,
    distinct_queries,
    in_units,
    independent,
    read_few,
)
from dpsql.search.one_attribute.low_rank_descent import (
    MOST_STEPS,
    STAGES,
    Bounds,
    descend,
    descend_near,
    descent_cost,
    error_of,
    variances_of,
)
from dpsql.search.problem import FAST, Problem
from dpsql.search.symmetry.symmetric_descent import BasisCombination, descend_alike
from dpsql.search.symmetry.symmetric_queries import SymmetricQueries, find_alike
from dpsql.search.work_limit import EIGEN, may_go_on, spend
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.product import ProductStrategy, assemble

MOST_PLACES = 40
"""Binary places of the rows that are measured, where queries differ in size by more."""

ROUNDS = 400
"""Most steps of the dual fixed point."""

GAP = 1e-4
"""Relative distance to the certified bound at which the steps end."""

SINGULAR = 1e-12
"""Relative size below which an eigenvalue counts as zero."""

NEAR_STEPS = 100
"""Most steps of a descent where queries are weighed anew, for each rounding of the corners."""

METHOD = "few queries"

NEAR = 0.5
"""Effort of such a descent among queries that are alike."""

MANY_ROWS, MANY_NUMBERS = 1024, 1 << 22
"""Most distinct queries, and numbers in their matrix, where they are more than few."""

QUICK = 4e9
"""Products of numbers in descents over all combinations that go on beside those over kinds."""

ALMOST, TIGHTER = 0.996, 0.98
"""Part of the limits that is aimed at, and part of that where it is missed: see ``BEYOND``."""

NONE: Floats = np.zeros(0)

Answer: TypeAlias = tuple[float, Operator]
"""An answer: the factor of its rows, and these."""


def few_candidates(
    problem: Problem, found: LowRank, effort: float
) -> Iterator[tuple[ProductStrategy, float]]:
    """Yield strategies of combinations of few queries, each with a lower bound on any strategy.

    Gaussian: the optimum, by a dual fixed point. Laplace: local optima from several starts, among
    those that treat alike queries alike where most are.

    Args:
        problem: of one attribute.
        found: its queries.
        effort: scales the work.
    """
    if law(problem.noise).norm == 2:
        matrix, lower = gaussian_optimum(found)
        yield from ((each, lower) for each in _realise(problem, found, matrix))
        return
    parts = [
        each for each in cells_of(connected(found.queries != 0)) if found.queries[:, each].any()
    ]
    if len(parts) > 1:
        whole = _by_parts(found, parts, effort)
        yield from ((each, 0.0) for each in _realise(problem, *whole))
        return
    alike = found.alike or find_alike(found.queries, found.weights2)
    is_bounded = found.alike is None and not found.is_full
    matrix, lower = gaussian_optimum(found) if is_bounded else (NONE, 0.0)
    if alike is not None:
        best = descend_alike(found, alike, effort).matrix
        yield from ((each, lower) for each in _realise(problem, found, best))
    if not is_bounded or (alike is not None and not _is_quick(found)):
        return
    scales = np.cbrt(found.weights2 / np.abs(found.queries).max(axis=1))
    bases = [found.coefficients * scales[:, np.newaxis], matrix]
    for each in descend_near(found, bases, effort):
        yield from ((strategy, lower) for strategy in _realise(problem, found, each))


def _by_parts(few: LowRank, parts: Sequence[Integers], effort: float) -> tuple[LowRank, Floats]:
    """Return an independent basis, each query of it in one part of the cells, and combinations.

    A row of data is in one part, so that each has the norm to itself, and its error adds up: what
    is best for one part is best for all that are the same.

    Args:
        parts: the cells of each, which some query asks for.
        effort: scales the number of starts and of steps.
    """
    known: dict[bytes, tuple[LowRank, Floats]] = {}
    bases, blocks = [], []
    for cells in parts:
        asked = few.queries[:, cells].any(axis=1)
        queries = few.queries[np.ix_(asked, cells)]
        order = np.lexsort(queries.T)
        queries, weights2 = queries[order], few.weights2[asked][order]
        key = queries.tobytes() + np.float32(weights2).tobytes()
        if key not in known:
            part = independent(queries, weights2)
            near = descend_near(part, _bases(part), effort)
            known[key] = (part, min(near, key=partial(error_of, part)))
        part, matrix = known[key]
        basis = np.zeros((len(part.basis), few.queries.shape[1]))
        basis[:, cells] = part.basis
        bases.append(basis)
        blocks.append(matrix / np.abs(matrix @ part.basis).sum(axis=0).max())
    ends = np.cumsum([matrix.shape for matrix in blocks], axis=0)
    whole = np.zeros(ends[-1])
    for (row, column), matrix in zip(ends, blocks, strict=True):
        whole[row - len(matrix) : row, column - matrix.shape[1] : column] = matrix
    return replace(few, basis=np.concatenate(bases), alike=None), whole


def _bases(few: LowRank) -> list[Floats]:
    """Return combinations to start from: queries by what they weigh, and the Gaussian optimum."""
    scales = np.cbrt(few.weights2 / np.abs(few.queries).max(axis=1))
    return [few.coefficients * scales[:, np.newaxis], gaussian_optimum(few)[0]]


def read_many(problem: Problem) -> LowRank | None:
    """Return queries of one attribute that are more than few, most alike; None where they are not.

    Their basis are all of them.
    """
    if any(isinstance(operator, FAST) for operator in problem.factors[0].operators):
        return None  # running totals tell all cells apart
    found = distinct_queries(problem, MANY_ROWS, MANY_NUMBERS)
    alike = None if found is None else find_alike(*found)
    if found is None or alike is None:
        return None
    queries, weights2 = found
    return LowRank(queries, weights2, queries, np.eye(len(queries)), alike)


def combine_many(problem: Problem, effort: float) -> Strategy | None:
    """Return combinations of many queries of one attribute, None where too few are alike."""
    many = read_many(problem) if problem.d == 1 else None
    found = iter(()) if many is None else few_candidates(problem, many, effort)
    return next((strategy for strategy, _ in found), None)


def few_near(
    problem: Problem, known: Strategy, answers: Sequence[Answer] = (), limits: Floats = NONE
) -> Strategy | None:
    """Return combinations like those of a strategy, for other weights or within limits.

    Queries that are alike need nothing that is known. None where queries are not few, nor most of
    many alike.

    Args:
        known: the strategy.
        answers: what each multiplies its rows by, and these.
        limits: (answers,) largest mean variance of the rows of each, at a unit budget; they may be
            missed.
    """
    few = (read_few(problem) or read_many(problem)) if problem.d == 1 else None
    if few is None:
        return None
    alike = few.alike or find_alike(few.queries, few.weights2)
    start = _combinations(problem, few, known) if few.alike is None else None
    if alike is None and (start is None or known.method != METHOD):
        return None
    if answers:
        shares = _shares(few, answers)
        if shares is None:
            return None
        within = _within(few, alike, start, Bounds(shares, limits * ALMOST))
        return next(_realise(problem, few, within), None)
    anew = [] if alike is None else [descend_alike(few, alike, NEAR).matrix]
    if start is not None and (alike is None or _is_quick(few)):
        anew.append(descend(few, start, stages=STAGES[1:], most=NEAR_STEPS))
    found: list[Strategy] = [known]
    for matrix in anew:
        found += _realise(problem, few, matrix)
    return min(found, key=lambda each: each.unit_error(problem.workload))


def _is_quick(few: LowRank) -> bool:
    """Say whether descents over all combinations take little beside those over such as are alike.

    They may end below these: of eight queries at .88 of their error.
    """
    steps = 2 * len(STAGES) * MOST_STEPS
    return few.alike is None and steps * descent_cost(few, len(few.queries)) <= QUICK


def _within(
    few: LowRank, alike: SymmetricQueries | None, start: Floats | None, bounds: Bounds
) -> Floats:
    """Return combinations within the limits: those that treat alike queries alike, if these are.

    And such as are near a start, or near the queries by themselves, where those are not within, or
    these are quick.
    """
    found: list[BasisCombination] = []
    for part in (1.0, TIGHTER):
        if alike is not None and not any(map(_is_within, found)):
            aimed = Bounds(bounds.shares, bounds.limits * part)
            each = descend_alike(few, alike, bounds=aimed)
            found.append(replace(each, worst=each.worst * part))
    sizes = np.sqrt((bounds.shares / bounds.limits[:, np.newaxis]).max(axis=0))
    is_found = any(map(_is_within, found)) and not _is_quick(few)
    for first in () if start is None else (start, few.coefficients * sizes[:, np.newaxis]):
        if not is_found:
            found.append(_combined(few, descend(few, first, bounds=bounds), bounds))
            is_found = _is_within(found[-1])
    within = [each for each in found if _is_within(each)]
    best = min(within, key=lambda each: each.error, default=None)
    return (best or min(found, key=lambda each: each.worst)).matrix


def _is_within(combined: BasisCombination) -> bool:
    return combined.worst * ALMOST <= 1


def _combined(few: LowRank, matrix: Floats, bounds: Bounds) -> BasisCombination:
    """Return combinations of an independent basis with their errors."""
    variances = variances_of(few, matrix)
    worst = float((bounds.shares @ variances / bounds.limits).max())
    return BasisCombination(matrix, float(few.weights2 @ variances), worst)


def _combinations(problem: Problem, few: LowRank, known: Strategy) -> Floats | None:
    """Return what a strategy combines of the basis, (rows, rank)."""
    found = known.shared_rows or {}
    rows = found.get(problem.names[0])
    if len(found) > 1 or not isinstance(rows, np.ndarray):
        return None
    return np.asarray(np.linalg.lstsq(few.basis.T, rows.T.astype(np.float64), rcond=None)[0].T)


def _shares(few: LowRank, answers: Sequence[Answer]) -> Floats | None:
    """Return what the variance of every query is of the mean variance of an answer's rows.

    None where answers ask for something else.
    """
    places = {query.tobytes(): place for place, query in enumerate(few.queries + 0.0)}
    out = np.zeros((len(answers), len(few.queries)))
    for answer, (scale, operator) in enumerate(answers):
        whole, units = in_units(np.asarray(operator.dense(), dtype=np.float64))
        for query, unit in zip(whole + 0.0, units, strict=True):  # of zeros with a sign too
            place = places.get(query.tobytes())
            if place is not None:
                out[answer, place] += (scale * unit) ** 2 / len(whole)
            elif query.any():
                return None
    return out


def gaussian_optimum(few: LowRank) -> tuple[Floats, float]:
    """Return the optimal combinations of the basis for Gaussian noise, and a bound on any error.

    The dual fixed point of ``convex.optimise``, on matrices of the size of the queries: for
    weights D of the cells, the strategy is Gamma^(-1/4) U' B with B the weighted basis and
    U Gamma U' = B D B'. Its columns converge to unit norm where their cells matter.
    """
    sizes = np.abs(few.basis).max(axis=1)  # sums of cubes are beside counts: their roots are lost
    basis = few.basis / sizes[:, np.newaxis]
    values, vectors = np.linalg.eigh(sizes * few.loss * sizes[:, np.newaxis])
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    rows = root @ basis
    n = rows.shape[1]
    D, power, lower, last = np.ones(n), 2.0, 0.0, 0.0
    best, least = np.eye(len(rows)), np.inf
    work = 3.0 * len(rows) * rows.size + EIGEN * len(rows) ** 3
    for step in range(ROUNDS):
        if step and not may_go_on():
            break
        spend(work)
        values, vectors = np.linalg.eigh((rows * D) @ rows.T)
        # Fourth roots below turn an eigenvalue of zero into an infinite row.
        values = np.maximum(values, SINGULAR * values[-1])
        matrix = (vectors * values**-0.25) @ vectors.T @ root
        x = np.square(matrix @ basis).sum(axis=0)
        total = float(np.sqrt(values).sum())
        bound = total**2 / float(D.sum())
        lower = max(lower, bound)
        if total * x.max() < least:
            best, least = matrix, total * float(x.max())
        if least <= lower * (1 + GAP):
            break
        if bound < last:
            power = max(power / 2, 0.5)
        last = bound
        # A weight of zero would stay zero in all later steps.
        D = np.maximum(D * x**power, 1e-300)
        D *= n / D.sum()
    # Lowered by more than rounding may have raised it: it must stay a bound.
    return np.asarray(best / sizes), lower * (1 - 1e-9)


def _realise(problem: Problem, few: LowRank, matrix: Floats) -> Iterator[ProductStrategy]:
    """Yield the strategy of whole combinations of the basis."""
    rows = integer_combinations(few, matrix, problem.noise)
    if rows is not None:
        name = problem.names[0]
        domain = problem.workload.domain
        yield assemble(domain, {name: rows}, {problem.names: 1.0}, problem.noise, METHOD)


def _places(unit: Floats, largest: Floats) -> int:
    """Return the binary places of combinations, so that queries of large numbers keep theirs.

    ``unit`` has shape (rows, rank), ``largest`` (rank,) the largest number of each query.
    """
    sizes = np.abs(unit).max(axis=0)
    spread = float(np.log2(sizes.max() / max(float(sizes.min()), 2.0**-MOST_PLACES)))
    left = MOST_PLACES - float(np.log2((np.abs(unit) @ largest).max()))
    return max(BINARY_PLACES, int(min(BINARY_PLACES + spread, left)))


def integer_combinations(few: LowRank, matrix: Floats, noise: Noise) -> Integers | None:
    """Return integer combinations of the basis, None where rounding loses one of them.

    Args:
        matrix: (rows, rank); the result is (rows, cells).
        noise: the law that the norms of columns are for.
    """
    scale = float(2**BINARY_PLACES)
    # Whole numbers above 2^53 are not exact as doubles.
    if float(np.abs(few.basis).max()) * scale >= 2.0**53:
        return None
    basis = np.rint(few.basis * scale).astype(np.int64)
    basis //= max(1, int(np.gcd.reduce(basis, axis=None)))
    unit = matrix / np.abs(matrix).max()
    largest = np.abs(basis).max(axis=1).astype(np.float64)
    whole = np.rint(np.ldexp(unit, _places(unit, largest))).astype(np.int64)
    whole = whole[whole.any(axis=1)]
    sizes = np.abs(whole).max(axis=0)
    # A query that no combination asks for has been rounded away.
    if not sizes.all():
        return None
    if few.alike is None and np.linalg.matrix_rank(whole / sizes) < len(basis):
        return None
    if float((np.abs(whole) @ largest).max()) >= 2.0**53:
        return None
    rows = (whole.astype(np.float64) @ basis.astype(np.float64)).astype(
        np.int64
    )  # exact: below 2^53
    rows //= max(1, int(np.gcd.reduce(rows, axis=None)))
    return rows if few.alike is None or _rank(rows) == few.alike.rank else None


def _rank(rows: Integers) -> int:
    """Return how many of many rows are independent, beyond what they are rounded by."""
    unit = rows / np.abs(rows).max()
    values = np.linalg.eigvalsh(unit @ unit.T)
    return int((values > SINGULAR * values[-1]).sum())
