"""Private-PGM: the distribution of highest entropy that explains noisy marginals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Floats, Integers
from dpsql.errors import ProgrammingError
from dpsql.learn.handle import Candidate, Measured
from dpsql.pgm.linear import adjoint, apply, clique_of, norm2, whole_marginal
from dpsql.pgm.project import project_simplex
from dpsql.pgm.sample import tree_rows
from dpsql.pgm.tree import (
    DEFAULT_CAP,
    Beliefs,
    Clique,
    JunctionTree,
    ModelTooLarge,
    collapse,
    junction_tree,
    model_cells,
    propagate,
)
from dpsql.records import dataclass
from dpsql.workload.workload import Product


@dataclass(frozen=True, slots=True)
class FactorTable:
    """A tensor with one name per axis."""

    names: tuple[str, ...]
    values: Floats


def eliminate(tree: JunctionTree, beliefs: Beliefs, product: Product, cap: int) -> Floats:
    """Return the flat probabilities of one product, in domain order of its attributes.

    Predicates multiply the tables first, so that a single query never forms a marginal.

    Raises ModelTooLarge when an intermediate table exceeds the cap.
    """
    wanted = [a for a in tree.domain if a in product.factors]
    tables = [
        FactorTable(tree.cliques[i], beliefs.conditionals[i]) for i in _relevant(tree, set(wanted))
    ]
    keep = []
    for name in wanted:
        factor = product.factors[name]
        if isinstance(factor, Identity):
            keep.append(name)
            continue
        rows = np.asarray(factor.dense(), dtype=np.float64)
        keep.append("=" + name)
        tables.append(FactorTable(("=" + name, name), rows))
    left = {a for table in tables for a in table.names} - set(keep)
    while left:
        name = min(left, key=lambda a: (_joint(tables, a), a))
        touching = [t for t in tables if name in t.names]
        tables = [t for t in tables if name not in t.names]
        tables.append(_contract(touching, name, cap))
        left.remove(name)
    return _outer(tables, keep, cap).reshape(-1)


def _relevant(tree: JunctionTree, wanted: set[str]) -> list[int]:
    """Return the cliques between the wanted attributes and their roots; the rest sum to one."""
    chosen: set[int] = set()
    for i in reversed(range(len(tree.cliques))):
        new = set(tree.cliques[i]) - set(tree.separators[i])
        if i in chosen or new & wanted:
            chosen.add(i)
            if tree.parents[i] >= 0:
                chosen.add(tree.parents[i])
    return sorted(chosen)


def _joint(tables: Iterable[FactorTable], name: str) -> int:
    sizes: dict[str, int] = {}
    for table in tables:
        if name in table.names:
            sizes.update(zip(table.names, table.values.shape, strict=True))
    return math.prod(sizes.values())


def _contract(tables: Sequence[FactorTable], name: str, cap: int) -> FactorTable:
    sizes: dict[str, int] = {}
    for table in tables:
        sizes.update(zip(table.names, table.values.shape, strict=True))
    names = tuple(a for a in sizes if a != name)
    _check([sizes[a] for a in names], cap)
    if len(tables) > 2:
        small = sorted(tables, key=lambda t: t.values.size)
        names_of_rest = {a: sizes[a] for t in small[:-1] for a in t.names}
        _check(list(names_of_rest.values()), cap)
    return FactorTable(names, _einsum(tables, names))


def _outer(tables: Sequence[FactorTable], keep: Sequence[str], cap: int) -> Floats:
    sizes = {a: n for t in tables for a, n in zip(t.names, t.values.shape, strict=True)}
    _check([sizes[a] for a in keep], cap)
    return _einsum(tables, tuple(keep))


def _check(sizes: Sequence[int], cap: int) -> None:
    cells = math.prod(sizes)
    if cells > cap:
        raise ModelTooLarge(cells, cap, "an answer outside the cliques of the model")


def _einsum(tables: Sequence[FactorTable], names: Sequence[str]) -> Floats:
    number: Mapping[str, int] = {
        a: i for i, a in enumerate(dict.fromkeys(a for t in tables for a in t.names))
    }
    operands: list[object] = []
    for table in tables:
        operands += [table.values, [number[a] for a in table.names]]
    if not operands:
        return np.ones(())
    result = np.einsum(*operands, [number[a] for a in names], optimize="greedy")  # type: ignore[call-overload]
    return np.asarray(result, dtype=np.float64)


Progress = Callable[[int, float], None]

LEAST = 5e-324
"""Rows that stand for none, so that there is a logarithm."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphicalModel:
    """total * exp(sum of potentials), normalised; one tensor of logarithms per clique."""

    domain: Mapping[str, int]
    total: float
    potentials: Mapping[Clique, Floats]
    tree: JunctionTree
    beliefs: Beliefs
    cap: int = DEFAULT_CAP
    loss: float = float("nan")

    def answer(self, candidate: Candidate) -> Floats:
        """Return the answers of a candidate in counts, flat.

        Raises ModelTooLarge when they are outside the cliques and elimination exceeds the cap.
        """
        clique = clique_of(candidate, self.domain)
        table = collapse(self.tree, self.beliefs.tables, clique)
        if table is not None:
            return self.total * apply(candidate, table, clique)
        parts = [eliminate(self.tree, self.beliefs, p, self.cap) for p in candidate]
        return np.asarray(self.total * sum(parts[1:], parts[0]))

    def marginal(self, attributes: tuple[str, ...]) -> Floats:
        """Return the counts over the given attributes as a tensor, axes as given."""
        ordered = tuple(a for a in self.domain if a in attributes)
        flat = self.answer(whole_marginal(self.domain, attributes))
        tensor = flat.reshape([self.domain[a] for a in ordered])
        return tensor.transpose([ordered.index(a) for a in attributes])

    def rows(self, k: int, rng: np.random.Generator) -> dict[str, Integers]:
        """Return k synthetic rows as cell numbers per attribute."""
        return tree_rows(self.tree, self.beliefs, k, rng)

    def describe(self) -> dict[str, Any]:
        """Return plain facts about the model for display."""
        return {
            "model": "graphical",
            "total": self.total,
            "cells": self.tree.cells,
            "cliques": [list(clique) for clique in self.potentials],
            "junction_tree": [list(clique) for clique in self.tree.cliques],
            "loss": self.loss,
        }

    def encode(self, keep: Callable[[NDArray[Any]], str]) -> dict[str, Any]:
        """Return plain facts that describe the model; ``keep`` stores an array by name."""
        return {
            "kind": "graphical",
            "domain": list(self.domain.items()),
            "total": self.total,
            "potentials": [[list(clique), keep(t)] for clique, t in self.potentials.items()],
            "cap": self.cap,
            "loss": self.loss,
        }

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> GraphicalModel:
        """Return the model that ``encode`` described."""
        domain = {name: int(size) for name, size in facts["domain"]}
        potentials = {tuple(clique): arrays[name] for clique, name in facts["potentials"]}
        return model_of(domain, facts["total"], potentials, facts["cap"], facts["loss"])


def fit(
    domain: Mapping[str, int],
    measurements: Sequence[Measured],
    total: float,
    *,
    warm: GraphicalModel | None = None,
    cap: int = DEFAULT_CAP,
    iterations: int = 1000,
    tolerance: float = 1e-6,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> GraphicalModel:
    """Return the maximum-entropy minimiser of the weighted squared error of measurements.

    ``total`` is the row count of the model. Entropic mirror descent from the potentials of
    ``warm``, else from the uniform distribution, until the loss changes by less than a relative
    ``tolerance`` over 20 steps, or ``seconds`` have passed. Measurements weigh with
    1 / stddev^2 whatever their noise.

    Raises ModelTooLarge, before anything is allocated, when the junction tree exceeds the cap.
    Source: Private-PGM (McKenna, Sheldon, Miklau 2019), algorithm 2.
    """
    terms = check(domain, measurements, cap)
    tree = junction_tree(domain, [t.clique for t in terms])
    potentials = {t.clique: np.zeros([domain[a] for a in t.clique]) for t in terms}
    if warm is not None:
        potentials = {c: warm.potentials.get(c, zero) for c, zero in potentials.items()}
    potentials, beliefs, loss = _descend(
        tree, terms, potentials, float(total), iterations, tolerance, seconds, progress
    )
    return GraphicalModel(dict(domain), float(total), potentials, tree, beliefs, cap, loss)


def fit_apart(
    domain: Mapping[str, int], measurements: Sequence[Measured], total: float
) -> GraphicalModel | None:
    """Return the minimiser at once where whole marginals without common attributes were measured.

    Each is the nearest point of the simplex to the mean of its measurements, weighted with
    1 / stddev^2: the same as ``fit`` without end. None for all other measurements.
    """
    terms = [FitTerm.read(m, domain) for m in measurements]
    cliques = list(dict.fromkeys(t.clique for t in terms))
    names = [name for clique in cliques for name in clique]
    if len(names) > len(set(names)) or not all(t.is_whole for t in terms):
        return None
    potentials, loss = {}, 0.0
    for clique in cliques:
        here = [t for t in terms if t.clique == clique]
        mean = np.average([t.values for t in here], axis=0, weights=[t.precision for t in here])
        counts = project_simplex(mean, total).reshape([domain[a] for a in clique])
        potentials[clique] = np.log(np.maximum(counts, LEAST))
        loss += sum(t.loss(counts)[0] for t in here)
    return model_of(domain, float(total), potentials, DEFAULT_CAP, loss)


def check(domain: Mapping[str, int], measurements: Sequence[Measured], cap: int) -> list[FitTerm]:
    """Return the measurements as squared errors; raise ModelTooLarge above the cap."""
    terms = [FitTerm.read(m, domain) for m in measurements]
    model_cells(domain, [t.clique for t in terms], cap)
    return terms


def model_of(
    domain: Mapping[str, int],
    total: float,
    potentials: Mapping[Clique, Floats],
    cap: int,
    loss: float,
) -> GraphicalModel:
    """Return the model with the given potentials.

    A potential is a tensor of logarithms with an axis for each attribute of its clique; ``total``
    is in rows, ``cap`` in cells of the largest table on the way to an answer.
    """
    tree = junction_tree(domain, potentials)
    beliefs = propagate(tree, potentials)
    return GraphicalModel(dict(domain), float(total), potentials, tree, beliefs, cap, loss)


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

    @property
    def is_whole(self) -> bool:
        """Whether all counts of the clique were measured, each by itself."""
        factors = self.candidate[0].factors.values()
        return len(self.candidate) == 1 and all(isinstance(op, Identity) for op in factors)

    def loss(self, marginal: Floats) -> tuple[float, Floats]:
        """Return half the weighted squared error and its gradient."""
        error = apply(self.candidate, marginal, self.clique) - self.values
        scaled = self.precision * error
        gradient = adjoint(self.candidate, scaled, self.clique, marginal.shape)
        return 0.5 * float(error @ scaled), gradient


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
    iterations: int,
    tolerance: float,
    seconds: float | None,
    progress: Progress | None,
) -> tuple[dict[Clique, Floats], Beliefs, float]:
    beliefs = propagate(tree, potentials)
    loss, gradients, marginals = _evaluate(tree, terms, beliefs, total)
    step = _first_step(tree, terms, total)
    history = [loss]
    end = math.inf if seconds is None else time.monotonic() + seconds
    for iteration in range(iterations):
        trial = {c: p - step * gradients[c] for c, p in potentials.items()}
        ahead = propagate(tree, trial)
        new, new_gradients, new_marginals = _evaluate(tree, terms, ahead, total)
        moved = sum(float(np.vdot(gradients[c], marginals[c] - new_marginals[c])) for c in trial)
        if loss - new >= 0.5 * step * moved:
            potentials, beliefs, loss = trial, ahead, new
            gradients, marginals = new_gradients, new_marginals
            step *= 1.01
        else:
            step /= 2
        history.append(loss)
        if progress is not None:
            progress(iteration + 1, loss)
        settled = len(history) > 20 and history[-21] - loss <= tolerance * history[-21]
        if settled or time.monotonic() > end:
            break
    return potentials, beliefs, loss
