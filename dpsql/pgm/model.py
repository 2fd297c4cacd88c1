"""Graphical models: a distribution over many attributes as potentials of some cliques."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Floats, Integers
from dpsql.pgm.linear import apply, clique_of, whole_marginal
from dpsql.pgm.measurements import Candidate
from dpsql.pgm.sample import tree_rows
from dpsql.pgm.tree import (
    DEFAULT_CAP,
    Beliefs,
    Clique,
    JunctionTree,
    ModelTooLarge,
    collapse,
    junction_tree,
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


FAR, FEW = 2.0, 10.0
"""A loss of so many times the expected one, and so much more, is not explained by noise."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphicalModel:
    """total * exp(sum of potentials), normalised; one tensor of logarithms per clique.

    ``loss`` is half the squared distance from what was measured, in its variances, and
    ``explained`` what noise alone is expected to make of that; not a number where not known.
    """

    domain: Mapping[str, int]
    total: float
    potentials: Mapping[Clique, Floats]
    tree: JunctionTree
    beliefs: Beliefs
    cap: int = DEFAULT_CAP
    loss: float = float("nan")
    explained: float = float("nan")

    @property
    def is_far(self) -> bool:
        """True if noise cannot explain how far the model is from what was measured."""
        return self.loss > FAR * self.explained + FEW

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
        cliques = list(self.potentials)
        found = {
            "model": "graphical",
            "total": self.total,
            "cells": self.tree.cells,
            "cliques": [list(c) for c in cliques if not any(set(c) < set(d) for d in cliques)],
            "junction_tree": [list(clique) for clique in self.tree.cliques],
            "loss": self.loss,
        }
        if self.is_far:
            found["warning"] = (
                f"the fit ended before it was good: noise explains a loss of {self.explained:.6g}; "
                "errors are larger than what was measured allows, and a further fit is free"
            )
        return found

    def encode(self, keep: Callable[[NDArray[Any]], str]) -> dict[str, Any]:
        """Return plain facts that describe the model; ``keep`` stores an array by name."""
        return {
            "kind": "graphical",
            "domain": list(self.domain.items()),
            "total": self.total,
            "potentials": [[list(clique), keep(t)] for clique, t in self.potentials.items()],
            "cap": self.cap,
            "loss": self.loss,
            "explained": self.explained,
        }

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> GraphicalModel:
        """Return the model that ``encode`` described.

        Args:
            facts: as ``encode`` returned them.
            arrays: what it kept, by name.
        """
        domain = {name: int(size) for name, size in facts["domain"]}
        potentials = {tuple(clique): arrays[name] for clique, name in facts["potentials"]}
        known = facts["cap"], facts["loss"], facts.get("explained", math.nan)
        return model_of(domain, facts["total"], potentials, *known)


def model_of(
    domain: Mapping[str, int],
    total: float,
    potentials: Mapping[Clique, Floats],
    cap: int,
    loss: float,
    explained: float = math.nan,
) -> GraphicalModel:
    """Return the model with the given potentials.

    A potential is a tensor of logarithms with an axis for each attribute of its clique; ``total``
    is in rows, ``cap`` in cells of the largest table on the way to an answer.
    """
    tree = junction_tree(domain, potentials)
    beliefs = propagate(tree, potentials)
    facts = (potentials, tree, beliefs, cap, loss, explained)
    return GraphicalModel(dict(domain), float(total), *facts)
