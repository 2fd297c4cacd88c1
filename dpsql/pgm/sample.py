"""Synthetic rows from a model: free of budget, any number of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpsql.algebra.operator import Floats, Integers
from dpsql.pgm.tree import Beliefs, JunctionTree


def round_counts(weights: Floats, k: int, rng: np.random.Generator) -> Integers:
    """Return k rows spread over cells: the whole part of every expectation, the rest by chance.

    The rest is drawn without replacement, weighted by the fractional parts, which varies less
    than independent draws.

    >>> round_counts(np.array([0.5, 0.25, 0.25]), 4, np.random.default_rng(0)).tolist()
    [2, 1, 1]
    """
    expected = np.asarray(weights, dtype=np.float64)
    total = expected.sum()
    expected = expected * (k / total) if total > 0 else np.full(expected.size, k / expected.size)
    near = np.rint(expected)
    expected = np.where(np.abs(expected - near) < 1e-9, near, expected)
    counts = np.floor(expected).astype(np.int64)
    rest = int(k - counts.sum())
    if rest > 0:
        # exponential keys: the smallest are a weighted draw without replacement
        parts = np.maximum(expected - counts, 1e-300)
        keys = rng.exponential(size=parts.size) / parts
        counts[np.argpartition(keys, rest - 1)[:rest]] += 1
    return counts


def tree_rows(
    tree: JunctionTree, beliefs: Beliefs, k: int, rng: np.random.Generator
) -> dict[str, Integers]:
    """Return k rows of a junction-tree model, as cell numbers per attribute.

    Cliques are visited from the roots; inside every configuration of the separator the new
    attributes are filled by ``round_counts``. Source: Private-PGM, section 4.
    """
    rows: dict[str, Integers] = {}
    for clique, separator, table in zip(tree.cliques, tree.separators, beliefs.tables, strict=True):
        new = tuple(a for a in clique if a not in separator)
        order = [clique.index(a) for a in separator + new]
        shape = [tree.domain[a] for a in new]
        parents = int(np.prod([tree.domain[a] for a in separator], dtype=np.int64))
        flat = table.transpose(order).reshape(parents, -1)
        cells = _fill(flat, _configuration(rows, separator, tree.domain, k), rng)
        rows.update(zip(new, np.unravel_index(cells, shape), strict=True))
    return {a: np.asarray(rows[a], dtype=np.int64) for a in tree.domain}


def _configuration(
    rows: Mapping[str, Integers], names: Sequence[str], domain: Mapping[str, int], k: int
) -> Integers:
    if not names:
        return np.zeros(k, dtype=np.int64)
    return np.asarray(np.ravel_multi_index([rows[a] for a in names], [domain[a] for a in names]))


def _fill(flat: Floats, configuration: Integers, rng: np.random.Generator) -> Integers:
    """Return one cell per row; rows of one configuration share out its line of ``flat``."""
    cells = np.zeros(configuration.size, dtype=np.int64)
    order = np.argsort(configuration, kind="stable")
    present, starts = np.unique(configuration[order], return_index=True)
    ends = np.append(starts, configuration.size)[1:]
    for line, start, end in zip(present, starts, ends, strict=True):
        counts = round_counts(flat[line], int(end - start), rng)
        drawn = np.repeat(np.arange(counts.size), counts)
        cells[order[start:end]] = rng.permutation(drawn)
    return cells


def category_rows(
    blocks: Mapping[str, Floats], k: int, rng: np.random.Generator
) -> dict[str, Integers]:
    """Return k rows of a mixture of products by randomised rounding.

    ``blocks`` holds per attribute one probability vector per component, shape (C, n). Components
    are used equally often, and every attribute draws its category independently given the
    component, so all product and threshold queries keep their expectation. Source: RAP, 4.2.
    """
    components = next(iter(blocks.values())).shape[0] if blocks else 1
    chosen = np.repeat(np.arange(components), round_counts(np.ones(components), k, rng))
    chosen = rng.permutation(chosen)
    return {name: _draw(table, chosen, rng) for name, table in blocks.items()}


def _draw(table: Floats, chosen: Integers, rng: np.random.Generator) -> Integers:
    upper = np.cumsum(table, axis=1)
    upper /= upper[:, -1:]
    # one search in the joined distribution functions: component c occupies (c, c + 1]
    joined = (upper + np.arange(len(table))[:, np.newaxis]).ravel()
    places = np.searchsorted(joined, rng.random(chosen.size) + chosen, side="right")
    cells = np.minimum(places - chosen * table.shape[1], table.shape[1] - 1)
    return np.asarray(np.maximum(cells, 0), dtype=np.int64)
