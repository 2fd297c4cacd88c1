"""Variable elimination: answers of a tree model that no single clique holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.adaptive.handle import Floats
from dpsql.algebra.blocks import Identity
from dpsql.answer.beliefs import Beliefs
from dpsql.answer.junction import JunctionTree, ModelTooLarge
from dpsql.plan.workload import Product


@dataclass(frozen=True, slots=True)
class Table:
    """A tensor with one name per axis."""

    names: tuple[str, ...]
    values: Floats


def eliminate(tree: JunctionTree, beliefs: Beliefs, product: Product, cap: int) -> Floats:
    """Return the flat probabilities of one product, in domain order of its attributes.

    Predicates multiply the tables first, so that a single query never forms a marginal.

    Raises ModelTooLarge when an intermediate table exceeds the cap.
    """
    wanted = [a for a in tree.domain if a in product.factors]
    tables = [Table(tree.cliques[i], beliefs.conditionals[i]) for i in _relevant(tree, set(wanted))]
    keep = []
    for name in wanted:
        factor = product.factors[name]
        if isinstance(factor, Identity):
            keep.append(name)
            continue
        rows = np.asarray(factor.dense(), dtype=np.float64)
        keep.append("=" + name)
        tables.append(Table(("=" + name, name), rows))
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


def _joint(tables: Iterable[Table], name: str) -> int:
    sizes: dict[str, int] = {}
    for table in tables:
        if name in table.names:
            sizes.update(zip(table.names, table.values.shape, strict=True))
    return math.prod(sizes.values())


def _contract(tables: Sequence[Table], name: str, cap: int) -> Table:
    sizes: dict[str, int] = {}
    for table in tables:
        sizes.update(zip(table.names, table.values.shape, strict=True))
    names = tuple(a for a in sizes if a != name)
    _check([sizes[a] for a in names], cap)
    if len(tables) > 2:
        small = sorted(tables, key=lambda t: t.values.size)
        names_of_rest = {a: sizes[a] for t in small[:-1] for a in t.names}
        _check(list(names_of_rest.values()), cap)
    return Table(names, _einsum(tables, names))


def _outer(tables: Sequence[Table], keep: Sequence[str], cap: int) -> Floats:
    sizes = {a: n for t in tables for a, n in zip(t.names, t.values.shape, strict=True)}
    _check([sizes[a] for a in keep], cap)
    return _einsum(tables, tuple(keep))


def _check(sizes: Sequence[int], cap: int) -> None:
    cells = math.prod(sizes)
    if cells > cap:
        raise ModelTooLarge(cells, cap, "an answer outside the cliques of the model")


def _einsum(tables: Sequence[Table], names: Sequence[str]) -> Floats:
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
