"""Belief propagation on a junction tree, in logarithms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.adaptive.handle import Floats
from dpsql.answer.junction import Clique, JunctionTree


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Probabilities of every maximal clique, and the same given its separator."""

    tables: tuple[Floats, ...]
    conditionals: tuple[Floats, ...]


def propagate(tree: JunctionTree, potentials: Mapping[Clique, Floats]) -> Beliefs:
    """Return the beliefs of a tree under exp(sum of potentials).

    Each potential is a tensor of logarithms over its clique; parts of the tree that share no
    attribute multiply. Source: Lauritzen and Spiegelhalter 1988 (collect, then distribute).
    """
    logs = gather(tree, potentials)
    given = logs[:]
    for i in reversed(range(len(logs))):
        clique, separator, parent = tree.cliques[i], tree.separators[i], tree.parents[i]
        axes = tuple(j for j, a in enumerate(clique) if a not in separator)
        top = logs[i].max(axis=axes, keepdims=True)
        weights = np.exp(logs[i] - top)
        mass = weights.sum(axis=axes, keepdims=True)
        weights /= mass
        given[i] = weights
        if parent >= 0:
            sent = np.squeeze(top + np.log(mass), axis=axes)
            logs[parent] += spread(sent, separator, tree.cliques[parent])
    tables: list[Floats] = []
    for i, clique in enumerate(tree.cliques):
        parent, separator = tree.parents[i], tree.separators[i]
        if parent < 0:
            tables.append(given[i])
        else:
            above = marginalise(tables[parent], tree.cliques[parent], separator)
            tables.append(given[i] * spread(above, separator, clique))
    return Beliefs(tuple(tables), tuple(given))


def gather(tree: JunctionTree, potentials: Mapping[Clique, Floats]) -> list[Floats]:
    """Return one log table per maximal clique, the sum of the potentials it is home to."""
    logs = [np.zeros(tree.shape(clique)) for clique in tree.cliques]
    for clique, potential in potentials.items():
        home = tree.home(clique)
        if home is None:
            raise ValueError(f"no clique of the tree holds {clique}")
        logs[home] += spread(potential, clique, tree.cliques[home])
    return logs


def spread(table: Floats, clique: Sequence[str], onto: Sequence[str]) -> Floats:
    """Return a table shaped to broadcast over a larger clique in the same attribute order."""
    sizes = dict(zip(clique, table.shape, strict=True))
    return table.reshape([sizes.get(a, 1) for a in onto])


def collapse(tree: JunctionTree, tables: Sequence[Floats], clique: Iterable[str]) -> Floats | None:
    """Return the marginal of a clique inside one maximal clique, None when there is none."""
    wanted = tuple(clique)
    home = tree.home(wanted)
    return None if home is None else marginalise(tables[home], tree.cliques[home], wanted)


def marginalise(table: Floats, clique: Clique, keep: Sequence[str]) -> Floats:
    """Sum a table over the attributes that are not kept; the order of axes stays."""
    axes = tuple(i for i, a in enumerate(clique) if a not in keep)
    return np.asarray(table.sum(axis=axes)) if axes else table
