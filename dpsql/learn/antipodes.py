"""Tables of yes and no in threes: counts of cells less those of the opposite cells.

A row of data is in one cell of three such columns, so that four differences cost no more than one
table does. With the number of rows they tell all three tables, at 2/9 of the variance of tables
that are measured one by one with noise on both of their counts, under Laplace noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.algebra.blocks import Dense
from dpsql.learn.candidates import attributes_of, is_marginal, rows
from dpsql.pgm.measurements import Candidate, Handle, Measured
from dpsql.records import dataclass
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.workload import Product

MOST = 3
"""Columns of a group: two have 9/8 of the variance, four as much as two."""

LEAST = Fraction(1, 1000)
"""Least part of the budget for the number of rows."""

SIDES = {sign: Dense(np.array([[sign, 0]])) for sign in (1, -1)}
OTHERS = {sign: Dense(np.array([[0, sign]])) for sign in (1, -1)}
"""The first and the second cell of a column, with a sign."""


@dataclass(frozen=True, slots=True)
class Antipodes:
    """The queries in place of tables of two cells of a few columns, in their order."""

    tables: tuple[Candidate, ...]

    @property
    def signs(self) -> list[tuple[int, ...]]:
        """One of every two opposite cells: 1 for the first cell of a column, -1 for the second."""
        return [(1, *rest) for rest in itertools.product((1, -1), repeat=len(self.tables) - 1)]

    @property
    def queries(self) -> list[Candidate]:
        """The count of every such cell less that of its opposite."""
        return [(self._cell(signs, 1), self._cell([-s for s in signs], -1)) for signs in self.signs]

    def _cell(self, signs: Sequence[int], coefficient: int) -> Product:
        names = [next(iter(table[0].factors)) for table in self.tables]
        first, *others = zip(names, signs, strict=True)
        factors = {name: _side(sign, 1) for name, sign in others}
        return Product({first[0]: _side(first[1], coefficient), **factors})

    def read(self, measured: Sequence[Measured], total: float) -> list[Measured]:
        """Return the tables, as if each had been measured by itself, for a number of rows.

        Their deviation is that of noise on both counts which tells the difference as well.
        """
        differences = np.array(self.signs).T @ np.array([float(m.values[0]) for m in measured])
        stddev = measured[0].stddev * math.sqrt(len(measured) / 2)
        return [
            Measured.of(table, np.array([total + d, total - d]) / 2, stddev, measured[0].noise)
            for table, d in zip(self.tables, differences, strict=True)
        ]


def _side(sign: int, coefficient: int) -> Dense:
    return (SIDES if sign == 1 else OTHERS)[coefficient]


def in_threes(tables: Sequence[Candidate], noise: Noise) -> list[Antipodes]:
    """Return the tables of two cells in groups; none where noise has not the L1 norm.

    Groups differ in size by one at most.
    """
    found = [table for table in tables if is_marginal(table) and rows(table) == 2]
    if law(noise).norm != 1 or not found:
        return []
    parts = np.array_split(np.arange(len(found)), math.ceil(len(found) / MOST))
    return [Antipodes(tuple(found[i] for i in part)) for part in parts]


@dataclass(frozen=True, slots=True)
class JointCost:
    """The cost of tables that are measured together: ``share`` goes to the number of rows.

    ``error`` is the variance of all their counts, at noise of variance one per unit of budget.
    """

    share: Fraction
    error: float


def together(tables: Sequence[Candidate], noise: Noise) -> JointCost | None:
    """Return how tables are measured together; None where no two counts are a difference.

    That takes tables without common attributes, some of two cells, and Laplace noise. The share
    is that of the least error: it grows as the cube root of what each part of the error weighs.

    >>> from dpsql.learn.candidates import marginal
    >>> found = together([marginal({"a": 2, "b": 2, "c": 2}, name) for name in "abc"], "laplace")
    >>> found.share, round(found.error, 2)
    (Fraction(193, 500), 25.98)
    """
    groups = in_threes(tables, noise)
    names = [name for table in tables for name in attributes_of(table)]
    if not groups or len(names) > len(set(names)) or not all(map(is_marginal, tables)):
        return None
    others = [rows(table) for table in tables if rows(table) != 2]
    counted = sum(len(group.tables) for group in groups) / 2
    counts = sum(len(group.tables) * len(group.signs) / 2 for group in groups)
    measured = (len(others) + len(groups)) ** 2 * (sum(others) + counts)
    share = Fraction(round(1000 / (1 + math.cbrt(measured / counted))), 1000)
    part = float(max(share, LEAST))
    return JointCost(max(share, LEAST), counted / part**2 + measured / (1 - part) ** 2)


def measure_together(
    handle: Handle, tables: Sequence[Candidate], amount: Fraction, total: float
) -> list[Measured]:
    """Return noisy tables without common attributes; those of yes and no by their differences."""
    groups = in_threes(tables, handle.noise)
    grouped = {id(table) for group in groups for table in group.tables}
    asked = [table for table in tables if id(table) not in grouped]
    count = len(asked)
    for group in groups:
        asked += group.queries
    found = handle.measure(asked, amount)
    known = {id(table): each for table, each in zip(asked, found[:count], strict=False)}
    for group in groups:
        stop = count + len(group.signs)
        read = group.read(found[count:stop], total)
        known |= {id(table): each for table, each in zip(group.tables, read, strict=True)}
        count = stop
    return [known[id(table)] for table in tables]
