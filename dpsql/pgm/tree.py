"""Junction trees: what a graphical model keeps tables for, and belief propagation on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.errors import ProgrammingError
from dpsql.records import dataclass

Clique: TypeAlias = tuple[str, ...]

DEFAULT_CAP = 10**6
"""Most cells of all cliques together: 8 MB a table, and a fit holds a handful of them."""


class ModelTooLarge(ProgrammingError):
    """A graphical model, or an answer from one, would need more cells than the cap."""

    def __init__(self, cells: int, cap: int, what: str = "the graphical model") -> None:
        self.cells = cells
        self.cap = cap
        super().__init__(
            "E_TOO_LARGE",
            f"{what} needs {cells} cells, the cap is {cap}",
            hint="ask for fewer or smaller marginals, or use the mixture of products",
        )


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """Maximal cliques in visiting order, each with its parent (-1 for a root) and separator.

    Parents come before their children. Every attribute of the domain is in some clique, and the
    cliques that hold one attribute are connected.
    """

    domain: Mapping[str, int]
    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]
    separators: tuple[Clique, ...]

    @property
    def cells(self) -> int:
        """Return the number of cells of all clique tables together."""
        return sum(math.prod(self.domain[a] for a in clique) for clique in self.cliques)

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """Return the sizes of the attributes of a clique."""
        return tuple(self.domain[a] for a in clique)

    def home(self, clique: Iterable[str]) -> int | None:
        """Return the smallest maximal clique that contains a clique, None when none does."""
        wanted = set(clique)
        inside = [i for i, c in enumerate(self.cliques) if wanted <= set(c)]
        return min(inside, key=lambda i: math.prod(self.shape(self.cliques[i])), default=None)


def model_cells(
    domain: Mapping[str, int], cliques: Iterable[Sequence[str]], cap: int | None = None
) -> int:
    """Return the cells of the junction tree of some cliques before anything is allocated.

    Raises ModelTooLarge above the cap.

    >>> model_cells({"a": 2, "b": 3, "c": 4}, [("a", "b"), ("b", "c")])
    18
    >>> model_cells({"a": 2, "b": 3, "c": 4}, [("a", "b"), ("b", "c"), ("a", "c")])
    24
    """
    cells = junction_tree(domain, cliques).cells
    if cap is not None and cells > cap:
        raise ModelTooLarge(cells, cap)
    return cells


def junction_tree(domain: Mapping[str, int], cliques: Iterable[Sequence[str]]) -> JunctionTree:
    """Triangulate by least fill-in, ties by attribute order, and join the maximal cliques.

    Source: Koller and Friedman, Probabilistic Graphical Models, 9.4 and 10.4.
    """
    ordered = {tuple(a for a in domain if a in set(clique)) for clique in cliques}
    return _tree(tuple(domain.items()), tuple(sorted(ordered)))


@lru_cache(maxsize=4096)
def _tree(sizes: tuple[tuple[str, int], ...], cliques: tuple[Clique, ...]) -> JunctionTree:
    domain = dict(sizes)
    maximal = _triangulate(domain, cliques)
    parents, order = _span(maximal)
    place = {old: new for new, old in enumerate(order)}
    joined = tuple(maximal[i] for i in order)
    above = tuple(place[parents[i]] if parents[i] >= 0 else -1 for i in order)
    separators = tuple(
        tuple(a for a in clique if parent >= 0 and a in joined[parent])
        for clique, parent in zip(joined, above, strict=True)
    )
    return JunctionTree(domain, joined, above, separators)


def _triangulate(domain: Mapping[str, int], cliques: Iterable[Clique]) -> list[Clique]:
    neighbours: dict[str, set[str]] = {a: set() for a in domain}
    for clique in cliques:
        for a, b in combinations(clique, 2):
            neighbours[a].add(b)
            neighbours[b].add(a)
    found: list[set[str]] = []
    left = list(domain)
    while left:
        a = min(left, key=lambda a: _fill(neighbours, a))
        around = neighbours.pop(a)
        left.remove(a)
        if not any(around | {a} <= clique for clique in found):
            found.append(around | {a})
        for b in around:
            neighbours[b] |= around - {b}
            neighbours[b].discard(a)
    return [tuple(a for a in domain if a in clique) for clique in found]


def _fill(neighbours: Mapping[str, set[str]], a: str) -> int:
    around = neighbours[a]
    return sum(len(around) - 1 - len(neighbours[b] & around) for b in around)


def _span(cliques: Sequence[Clique]) -> tuple[list[int], list[int]]:
    """Grow a forest by largest separators; return parents and the visiting order."""
    parents = [-1] * len(cliques)
    order: list[int] = []
    best = dict.fromkeys(range(len(cliques)), (0, -1))
    while best:
        i = max(best, key=lambda i: (best[i][0], -i))
        shared, parent = best.pop(i)
        parents[i] = parent if shared else -1
        order.append(i)
        for j in best:
            common = len(set(cliques[i]) & set(cliques[j]))
            if common > best[j][0]:
                best[j] = (common, i)
    return parents, order


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
    logs = gather_potentials(tree, potentials)
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


def gather_potentials(tree: JunctionTree, potentials: Mapping[Clique, Floats]) -> list[Floats]:
    """Return one log table per maximal clique, the sum of the potentials it is home to.

    A potential has an axis for each attribute of its clique, in its order; so have the tables.
    Raises: ValueError for a clique that no maximal clique holds.
    """
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
    """Return the marginal of a clique inside one maximal clique, None when there is none.

    ``tables`` are those of the maximal cliques, an axis per attribute; so has what is returned.
    """
    wanted = tuple(clique)
    home = tree.home(wanted)
    return None if home is None else marginalise(tables[home], tree.cliques[home], wanted)


def marginalise(table: Floats, clique: Clique, keep: Sequence[str]) -> Floats:
    """Sum a table over the attributes that are not kept; the order of axes stays.

    ``table`` has an axis for each attribute of ``clique``, in its order.
    """
    kept = [i for i, a in enumerate(clique) if a in keep]
    if len(kept) == len(clique):
        return table
    # over axes that are not beside each other, einsum takes half the time of sum
    whole: Any = (table, list(range(len(clique))), kept)
    return np.asarray(np.einsum(*whole))
