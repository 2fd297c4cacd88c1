"""Fits of graphical models: the distribution of highest entropy that explains noisy marginals.

Whole marginals, and whatever determines them, are first made consistent by least squares: every
set of attributes then has one table, with the noise that it has left. They are fitted by iterative
proportional fitting, a table at a time, each to within its noise. What is no marginal (single
queries) is fitted by mirror descent from there. Both end at what is counted, cells that are gone
through, never at a time: a fit is a function of its arguments.

Source: Private-PGM (McKenna, Sheldon, Miklau 2019); maximum entropy with relaxed constraints
(Dudik, Phillips, Schapire 2004); iterative proportional fitting (Deming, Stephan 1940) on junction
trees (Jirousek, Preucil 1995).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Floats, Operator
from dpsql.errors import ProgrammingError
from dpsql.pgm.linear import ByKey, adjoint, apply, clique_of, norm2
from dpsql.pgm.measurements import Candidate, Measured
from dpsql.pgm.model import GraphicalModel
from dpsql.pgm.tree import (
    DEFAULT_CAP,
    Beliefs,
    Clique,
    JunctionTree,
    collapse,
    junction_tree,
    marginalise,
    model_cells,
    propagate,
    spread,
)
from dpsql.records import dataclass

Progress = Callable[[int, float], None]

WORK = 5e9
"""Cells that a fit may go through: twenty seconds on an ordinary core."""

CALL = 20_000
"""Cells that are gone through while one table is begun with, however small."""

SETTLED = 0.02
"""Part of the misfit over so many sweeps below which a fit has settled."""

PATIENCE = 10
"""Sweeps, or twice as many steps of a descent, over which a misfit must fall."""

SOFTNESS = 3.0
"""Standard deviations by which a count may be missed for every unit of its potential."""

GROWTH = 1.2
"""Factor of a step of mirror descent that was accepted."""

LEAST = 1e-300
"""Rows that stand for none, so that there is a logarithm."""

NEWTON = 20
"""Steps of Newton's method at most for one number."""

WIDEST = 512
"""Cells of an attribute up to which rows that are no identity are inverted."""

CLOSE = 1e-8
"""Errors of an inverse below which it is one."""


def fit(
    domain: Mapping[str, int],
    measurements: Sequence[Measured],
    total: float,
    *,
    warm: GraphicalModel | None = None,
    cap: int = DEFAULT_CAP,
    work: float = WORK,
    tolerance: float = SETTLED,
    progress: Progress | None = None,
) -> GraphicalModel:
    """Return the distribution of highest entropy within the noise of measurements.

    Measurements weigh with 1 / stddev^2 whatever their noise. The model has the ``loss`` that it
    ended with and the one that noise explains.

    Args:
        total: rows of the model.
        warm: an earlier model, whose potentials are begun with; else the uniform distribution.
        work: cells that are gone through at most, after which it ends where it is.
        tolerance: relative fall of the misfit over ``PATIENCE`` sweeps at which it ends.
        progress: hears of every sweep or step, with the misfit.

    Raises:
        ModelTooLarge, before anything is allocated, when the junction tree exceeds the cap.
    """
    terms = check(domain, measurements, cap)
    total = float(total)
    tree = junction_tree(domain, [t.clique for t in terms])
    targets = make_consistent(domain, terms, total)
    others = [t for t in terms if not t.is_in(targets, domain)]
    cliques = [*targets, *(t.clique for t in others)]
    potentials = {c: np.zeros(tree.shape(c)) for c in cliques}
    if warm is not None:
        potentials = {c: warm.potentials.get(c, zero) for c, zero in potentials.items()}
    explained = _explained(terms)
    if targets:
        fitted = _Sweeps(tree, targets, potentials, total)
        work -= fitted.settle(work, tolerance, progress)
        potentials = fitted.potentials
        explained += fitted.softened
    if others:
        potentials = _descend(tree, terms, potentials, total, work, tolerance, progress)
    beliefs = propagate(tree, potentials)
    loss, _, _ = _evaluate(tree, terms, beliefs, total)
    return GraphicalModel(dict(domain), total, potentials, tree, beliefs, cap, loss, explained)


def check(domain: Mapping[str, int], measurements: Sequence[Measured], cap: int) -> list[FitTerm]:
    """Return the measurements as squared errors; raise ModelTooLarge above the cap."""
    terms = [FitTerm.read(m, domain) for m in measurements]
    model_cells(domain, [t.clique for t in terms], cap)
    return terms


@dataclass(frozen=True, slots=True)
class FitTerm:
    """One measurement as a squared error on the marginal of its clique."""

    clique: Clique
    candidate: Candidate
    values: Floats
    precision: float

    @classmethod
    def read(cls, measured: Measured, domain: Mapping[str, int]) -> FitTerm:
        """Return a measurement in that form; refuse what cannot be weighed."""
        if not measured.stddev > 0 or not np.isfinite(measured.values).all():
            raise ProgrammingError(
                "E_WORKLOAD",
                "a measurement has no positive standard deviation or a value that is not finite",
                hint="give every measurement the standard deviation of its noise",
            )
        clique = clique_of(measured.candidate, domain)
        return cls(clique, measured.candidate, measured.values, measured.stddev**-2)

    def is_in(self, targets: Mapping[Clique, MeasuredTable], domain: Mapping[str, int]) -> bool:
        """Say whether a table of counts that is fitted has all that was measured."""
        if len(self.candidate) > 1 or _wide(self.clique, domain) not in {(), *targets}:
            return False
        return self.is_marginal(domain)

    def is_marginal(self, domain: Mapping[str, int]) -> bool:
        """Say whether counts, or how they differ, follow from the rows of every attribute."""
        axes = self.axes(domain)
        return all(axis.differences is not None or domain[a] == 1 for a, axis in axes.items())

    def axes(self, domain: Mapping[str, int]) -> dict[str, TableAxis]:
        """Return what each attribute's rows determine, of a candidate of one product."""
        factors = self.candidate[0].factors
        return {a: _axis(factors[a]) for a in self.clique}

    def loss(self, marginal: Floats) -> tuple[float, Floats]:
        """Return half the weighted squared error and its gradient.

        Args:
            marginal: counts, an axis per attribute of the clique; so is the gradient.
        """
        error = apply(self.candidate, marginal, self.clique) - self.values
        scaled = self.precision * error
        gradient = adjoint(self.candidate, scaled, self.clique, marginal.shape)
        return 0.5 * float(error @ scaled), gradient


def _explained(terms: Sequence[FitTerm]) -> float:
    """Return the loss that is expected of the true counts."""
    return 0.5 * sum(len(t.values) for t in terms)


def _is_explained(terms: Sequence[FitTerm], marginals: Mapping[Clique, Floats]) -> bool:
    """Say whether each measurement is missed by no more than its noise would be."""
    return all(t.loss(marginals[t.clique])[0] <= _explained([t]) for t in terms)


@dataclass(frozen=True, slots=True, eq=False)
class TableAxis:
    """A left inverse of the rows of one attribute, and its noise as variances.

    ``total`` is of the sum over the attribute, ``differences`` of one difference from the mean;
    None where the rows do not determine it. An ``inverse`` of None is the identity.
    """

    inverse: Floats | None
    total: float | None
    differences: float | None


def _axis(factor: Operator) -> TableAxis:
    if isinstance(factor, Identity):
        return TableAxis(None, float(factor.n), 1.0)
    return _inverted(ByKey(factor)) if factor.n <= WIDEST else TableAxis(None, None, None)


@lru_cache(maxsize=1024)
def _inverted(held: ByKey) -> TableAxis:
    rows = np.asarray(held.operator.dense(), dtype=np.float64)
    inverse = np.asarray(np.linalg.pinv(rows), dtype=np.float64)
    n = len(inverse)
    sums = inverse.sum(axis=0)
    differences = inverse - sums / n
    has_sum = bool(np.abs(sums @ rows - 1).max() < CLOSE)
    apart = differences @ rows - (np.eye(n) - 1 / n)
    has_differences = n > 1 and bool(np.abs(apart).max() < CLOSE)
    return TableAxis(
        inverse,
        float(sums @ sums) if has_sum else None,
        float(np.square(differences).sum()) / (n - 1) if has_differences else None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTable:
    """A table of counts, consistent with all others, and the standard deviation of a cell."""

    counts: Floats
    stddev: float

    @property
    def softness(self) -> Floats:
        """Rows by which each count may be missed for every unit of its potential.

        That is ``SOFTNESS`` standard deviations of a small count; a large one is missed by less
        in proportion, for its logarithm is known better.
        """
        size = self.stddev + np.maximum(self.counts, 0)
        return np.asarray(SOFTNESS * self.stddev**2 / size)


def make_consistent(
    domain: Mapping[str, int], terms: Sequence[FitTerm], total: float
) -> dict[Clique, MeasuredTable]:
    """Return the tables of counts that measurements determine, and all marginals of those.

    The part of a table that no smaller one knows, its counts less their means over each
    attribute, is the mean of what measurements say of it, weighted with 1 / variance; parts add
    up to tables that have the same marginals, and the total that is given. Attributes of one
    value have no part in it.
    Source: ResidualPlanner (Xiao et al. 2023), section 4.
    """
    sums: dict[Clique, Floats] = {}
    weights: dict[Clique, float] = {}
    for term in terms:
        if len(term.candidate) == 1:
            for clique, part, variance in _parts(term, domain):
                sums[clique] = sums.get(clique, 0) + part / variance
                weights[clique] = weights.get(clique, 0.0) + 1 / variance
    parts = {clique: sums[clique] / weight for clique, weight in weights.items()}
    parts[()] = np.asarray(total)
    found: dict[Clique, MeasuredTable] = {}
    for clique in sorted(weights, key=len):
        inside = [s for k in range(len(clique) + 1) for s in combinations(clique, k)]
        if not clique or any(s not in parts for s in inside):
            continue
        counts, variance = np.zeros([domain[a] for a in clique]), 0.0
        for s in inside:
            others = math.prod(domain[a] for a in clique if a not in s)
            counts += spread(parts[s], s, clique) / others
            if s:
                own = math.prod(1 - 1 / domain[a] for a in s)
                variance += own / (weights[s] * others**2)
        found[clique] = MeasuredTable(counts, math.sqrt(variance))
    return found


def _parts(term: FitTerm, domain: Mapping[str, int]) -> Iterator[tuple[Clique, Floats, float]]:
    """Yield the parts of tables that a measurement knows, each with the variance of its noise."""
    axes = term.axes(domain)
    factors = term.candidate[0].factors
    counts = term.values.reshape([factors[a].rows for a in term.clique])
    for i, axis in enumerate(axes.values()):
        if axis.total is None and axis.differences is None:
            return
        if axis.inverse is not None:
            counts = np.moveaxis(np.tensordot(axis.inverse, counts, axes=(1, i)), 0, i)
    for kept in product((False, True), repeat=len(axes)):
        part, variance = counts, 1 / term.precision
        for i, (keep, axis) in enumerate(zip(kept, axes.values(), strict=True)):
            own = axis.differences if keep else axis.total
            if own is None or (keep and domain[term.clique[i]] == 1):
                break
            part = part - part.mean(i, keepdims=True) if keep else part.sum(i, keepdims=True)
            variance *= own
        else:
            clique = tuple(a for a, keep in zip(term.clique, kept, strict=True) if keep)
            yield clique, part.reshape([domain[a] for a in clique]), variance


def _wide(clique: Clique, domain: Mapping[str, int]) -> Clique:
    return tuple(a for a in clique if domain[a] > 1)


class _Sweeps:
    """Counts of all maximal cliques, multiplied until their marginals are the targets.

    Each table is fitted in turn while all others stay: its new counts miss the target by softness
    times the potential. That is an exact step of coordinate ascent on a concave function, so that
    the order of tables matters for the pace alone.
    """

    def __init__(
        self,
        tree: JunctionTree,
        targets: Mapping[Clique, MeasuredTable],
        potentials: Mapping[Clique, Floats],
        total: float,
    ) -> None:
        self.tree, self.targets, self.total = tree, targets, total
        self.potentials = dict(potentials)
        self.softness = {c: target.softness for c, target in targets.items()}
        self.tables = [total * table for table in propagate(tree, potentials).tables]
        self.held: list[list[tuple[Clique, list[Clique]]]] = [[] for _ in tree.cliques]
        for top, inside in _held_by(list(targets)).items():
            home = tree.home(top)
            assert home is not None
            self.held[home].append((top, inside))
        self.tops = [top for held in self.held for top, _ in held]
        self.noise = 0.5 * sum(targets[top].counts.size for top in self.tops)
        self.walk = list(_walk(tree))
        sizes = [table.size + CALL for table in self.tables]
        self.work = 0.0
        for here, there in self.walk:
            if here == there:
                self.work += 2 * len(self.held[here]) * sizes[here]
                self.work += CALL * sum(len(inside) for _, inside in self.held[here])
            else:
                self.work += sizes[here] + 2 * sizes[there]

    def settle(self, work: float, tolerance: float, progress: Progress | None) -> float:
        """Sweep until the misfit stands still or the work is done; return what was done.

        While it is more than what noise explains, it has to stand more still.
        """
        history: list[float] = []
        while True:
            history.append(self._sweep())
            if progress is not None:
                progress(len(history), history[-1])
            done = len(history) * self.work
            is_near = history[-1] <= self.noise + self.softened
            pace = tolerance if is_near else tolerance / PATIENCE
            if done + self.work > work or _stands(history, PATIENCE, pace):
                return done

    @property
    def softened(self) -> float:
        """Half the squared misses that potentials stand for, in variances."""
        missed = 0.0
        for top in self.tops:
            told = self.softness[top] * self.potentials[top] / self.targets[top].stddev
            missed += 0.5 * float(np.square(told).sum())
        return missed

    def _sweep(self) -> float:
        """Fit every table once; return half the squared misses before, in their variances."""
        missed = 0.0
        for here, there in self.walk:
            if here == there:
                missed += sum(self._fit_within(here, top, held) for top, held in self.held[here])
            else:
                self._tell(here, there)
        return missed

    def _fit_within(self, index: int, top: Clique, inside: Sequence[Clique]) -> float:
        clique = self.tree.cliques[index]
        before = marginalise(self.tables[index], clique, top)
        target = self.targets[top]
        missed = 0.5 * float(np.square(before - target.counts).sum()) / target.stddev**2
        counts = before.copy()
        for each in inside:
            self._fit_one(counts, top, each)
        self.tables[index] *= spread(counts / np.maximum(before, LEAST), top, clique)
        return missed

    def _fit_one(self, counts: Floats, top: Clique, clique: Clique) -> None:
        """Solve new + softness * (potential + log(new / counts) - shift) = target for all cells.

        The shift, one number, is that with which the new counts add up to the total.
        """
        from scipy.special import wrightomega  # 50 ms

        soft = self.softness[clique]
        now = np.maximum(marginalise(counts, top, clique), LEAST)
        wanted = self.targets[clique].counts / soft
        start = np.log(now / soft) + wanted - self.potentials[clique]
        shift = 0.0
        for _ in range(NEWTON):
            omega = wrightomega(start + shift)
            excess = self.total - float((soft * omega).sum())
            shift += excess / max(float((soft * omega / (1 + omega)).sum()), LEAST)
            if abs(excess) <= CLOSE * self.total:
                break
        new = np.maximum(soft * omega, LEAST)
        # where omega is large, the difference of large numbers would be lost
        grown = self.potentials[clique] + np.log(new / now) - shift
        self.potentials[clique] = np.where(omega > 1, grown, wanted - omega)
        counts *= spread(new / now, clique, top)

    def _tell(self, here: int, there: int) -> None:
        """Give a neighbouring clique the counts of what both have in common."""
        child = there if self.tree.parents[there] == here else here
        shared = self.tree.separators[child]
        cliques = self.tree.cliques
        new = marginalise(self.tables[here], cliques[here], shared)
        old = marginalise(self.tables[there], cliques[there], shared)
        self.tables[there] *= spread(new / np.maximum(old, LEAST), shared, cliques[there])


def _held_by(cliques: Sequence[Clique]) -> dict[Clique, list[Clique]]:
    """Return every maximal clique with those inside it, each once and the smaller ones first."""
    tops = [c for c in cliques if not any(set(c) < set(other) for other in cliques)]
    held: dict[Clique, list[Clique]] = {top: [] for top in tops}
    for clique in sorted(cliques, key=len):
        held[next(top for top in tops if set(clique) <= set(top))].append(clique)
    return held


def _walk(tree: JunctionTree) -> Iterator[tuple[int, int]]:
    """Yield the steps of a walk that visits every clique: to itself, or to a neighbour and back."""
    children: dict[int, list[int]] = {}
    for i, parent in enumerate(tree.parents):
        children.setdefault(parent, []).append(i)
    stack = [(-1, root) for root in reversed(children[-1])] if tree.cliques else []
    while stack:
        here, there = stack.pop()
        if here >= 0:
            yield here, there
        if tree.parents[there] == here:
            yield there, there
            if here >= 0:
                stack.append((there, here))
            stack += [(there, child) for child in reversed(children.get(there, []))]


def _stands(history: Sequence[float], many: int, tolerance: float) -> bool:
    """Say whether a misfit fell by less than a part of itself over so many steps."""
    if len(history) <= many:
        return False
    return history[-1 - many] - history[-1] <= tolerance * history[-1 - many]


def _evaluate(
    tree: JunctionTree, terms: Sequence[FitTerm], beliefs: Beliefs, total: float
) -> tuple[float, dict[Clique, Floats], dict[Clique, Floats]]:
    """Return the loss, its gradient per clique, and the marginals of the cliques."""
    marginals: dict[Clique, Floats] = {}
    gradients: dict[Clique, Floats] = {}
    loss = 0.0
    for term in terms:
        if term.clique not in marginals:
            table = collapse(tree, beliefs.tables, term.clique)
            assert table is not None
            marginals[term.clique] = total * table
        part, gradient = term.loss(marginals[term.clique])
        loss += part
        if term.clique in gradients:
            gradients[term.clique] = gradients[term.clique] + gradient
        else:
            gradients[term.clique] = gradient
    return loss, gradients, marginals


def _first_step(tree: JunctionTree, terms: Sequence[FitTerm], total: float) -> float:
    sizes = [0.0] * len(tree.cliques)
    for term in terms:
        home = tree.home(term.clique)
        assert home is not None
        sizes[home] += term.precision * norm2(
            term.candidate, term.clique, [tree.domain[a] for a in term.clique]
        )
    return 2 / (max(total, 1e-300) * max([*sizes, 1e-300]))


def _descend(
    tree: JunctionTree,
    terms: Sequence[FitTerm],
    potentials: dict[Clique, Floats],
    total: float,
    work: float,
    tolerance: float,
    progress: Progress | None,
) -> dict[Clique, Floats]:
    """Return potentials of less loss, by entropic mirror descent.

    It ends where noise explains how far each measurement is missed, where the loss stands still,
    or with the work.
    Source: Private-PGM (McKenna, Sheldon, Miklau 2019), algorithm 2.
    """
    potentials = {t.clique: np.zeros(tree.shape(t.clique)) for t in terms} | potentials
    beliefs = propagate(tree, potentials)
    loss, gradients, marginals = _evaluate(tree, terms, beliefs, total)
    step, is_explained = _first_step(tree, terms, total), _is_explained(terms, marginals)
    history = [loss]
    each = float((2 * len(gradients) + 4) * (tree.cells + CALL * len(tree.cliques)))
    while not is_explained and not _stands(history, 2 * PATIENCE, tolerance / PATIENCE):
        trial = {c: p - step * gradients[c] if c in gradients else p for c, p in potentials.items()}
        new, new_gradients, new_marginals = _evaluate(tree, terms, propagate(tree, trial), total)
        moved = sum(
            float(np.vdot(g, marginals[c] - new_marginals[c])) for c, g in gradients.items()
        )
        if loss - new >= 0.5 * step * moved:
            potentials, loss = trial, new
            gradients, marginals = new_gradients, new_marginals
            is_explained = _is_explained(terms, marginals)
            step *= GROWTH
        else:
            step /= 2
        history.append(loss)
        if progress is not None:
            progress(len(history), loss)
        work -= each
        if work < each:
            break
    return potentials
