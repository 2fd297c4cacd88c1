"""WHERE, GROUP BY and aggregates -> one product of per-column matrices for every aggregate."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import simplify
from dpsql.algebra.operator import Operator
from dpsql.catalog import Catalog, Table
from dpsql.errors import ProgrammingError
from dpsql.plan.workload import Product
from dpsql.sql.predicates import Evaluator, Mask
from dpsql.sql.query import Aggregate, Expression, Query, Shell

MAX_RESULT_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Axis:
    """The groups of one column: which keys it carries, and their values per group."""

    column: str
    keys: tuple[int, ...]
    groups: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A query as products: one per aggregate, ``None`` where the catalog says it is zero.

    ``axes`` are in result order, ``types`` are the DuckDB types of the keys. A product's rows,
    flattened in catalog column order, become the result rows by ``arrange``.
    """

    query: Query
    table: Table
    axes: tuple[Axis, ...]
    types: tuple[str, ...]
    products: tuple[Product | None, ...]

    @property
    def rows(self) -> int:
        return math.prod(len(axis.groups) for axis in self.axes)

    @property
    def is_static(self) -> bool:
        """Whether the catalog alone determines the answer."""
        return self.rows == 0 or all(product is None for product in self.products)

    def key_columns(self) -> list[list[Any]]:
        """The values of every key, one list per key, in result order."""
        columns: list[list[Any]] = [[] for _ in self.query.keys]
        outer, inner = 1, self.rows
        for axis in self.axes if self.rows else ():
            inner //= len(axis.groups)
            for key, values in zip(axis.keys, zip(*axis.groups, strict=True), strict=True):
                once = itertools.chain.from_iterable(itertools.repeat(v, inner) for v in values)
                columns[key] = list(once) * outer
            outer *= len(axis.groups)
        return columns

    def arrange(self, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        """Reorder a product's rows from catalog column order to result order."""
        order = list(self.table.columns)
        natural = sorted(self.axes, key=lambda axis: order.index(axis.column))
        tensor = flat.reshape([len(axis.groups) for axis in natural])
        return tensor.transpose([natural.index(axis) for axis in self.axes]).ravel()


class Compiler:
    """Compiles queries against one catalog; predicates and factors are cached across queries."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.evaluator = Evaluator()
        self._factors: dict[bytes, Operator] = {}
        self._rehearsed: set[tuple[Shell, tuple[str, ...]]] = set()

    def compile(self, query: Query) -> Compiled:
        """Evaluate the query's expressions on the declared domains and form its products.

        Raises: ProgrammingError (E_DOMAIN_EVAL, E_TOO_LARGE).
        """
        table = self.catalog.tables[query.table]
        self.evaluator.prepare(table, _conditions(query))
        where = self.masks(table, query.where)
        types = tuple(self.evaluator.values(table, key)[0] for key in query.keys)
        axes, members = self.group(table, query, where)
        rows = math.prod(len(axis.groups) for axis in axes)
        if rows * max(1, len(query.aggregates)) > MAX_RESULT_CELLS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"the result would have {rows:,} rows, every declared combination being one",
                hint=f"group by fewer columns; at most {MAX_RESULT_CELLS:,} cells",
                span=query.keys[0].span if query.keys else None,
            )
        self.rehearse(query, types)
        products = tuple(self.product(table, where, members, a) for a in query.aggregates)
        return Compiled(query, table, axes, types, products)

    def rehearse(self, query: Query, types: tuple[str, ...]) -> None:
        """Run the shell over no cells at all, so that what cannot run is refused beforehand.

        Raises: ProgrammingError (E_DOMAIN_EVAL).
        """
        shell = query.shell
        if shell.plain or (shell, types) in self._rehearsed:
            return
        numbers = [f"a{j}" for j in range(len(query.aggregates))]
        numbers += [f"c{i}_{j}" for i, j in shell.covariances]
        kinds = {"i": "BIGINT", **{f"k{i}": kind for i, kind in enumerate(types)}, "z": "DOUBLE"}
        kinds.update(dict.fromkeys(numbers, "DOUBLE"))
        self.evaluator.rehearse(shell.text(), kinds)
        self._rehearsed.add((shell, types))

    def masks(self, table: Table, conditions: tuple[Expression, ...]) -> dict[str | None, Mask]:
        """The conjunction of the conditions, column by column."""
        found: dict[str | None, Mask] = {}
        for condition in conditions:
            mask = self.evaluator.mask(table, condition)
            known = found.get(condition.column)
            found[condition.column] = mask if known is None else known & mask
        return found

    def group(
        self, table: Table, query: Query, where: dict[str | None, Mask]
    ) -> tuple[tuple[Axis, ...], dict[str, list[Mask]]]:
        """Partition each grouped column's cells; keys that WHERE excludes do not appear."""
        empty = any(not mask.any() for mask in where.values())
        axes: list[Axis] = []
        members: dict[str, list[Mask]] = {}
        for column in dict.fromkeys(key.column for key in query.keys):
            assert column is not None
            indices = tuple(i for i, key in enumerate(query.keys) if key.column == column)
            values = [self.evaluator.values(table, query.keys[i])[1] for i in indices]
            groups: dict[tuple[Any, ...], list[int]] = {}
            mask = where.get(column)
            for cell, value in enumerate(zip(*values, strict=True)):
                if not empty and (mask is None or mask[cell]):
                    groups.setdefault(value, []).append(cell)
            axes.append(Axis(column, indices, tuple(groups)))
            members[column] = [_indicator(table.columns[column].size, g) for g in groups.values()]
        return tuple(axes), members

    def product(
        self,
        table: Table,
        where: dict[str | None, Mask],
        members: dict[str, list[Mask]],
        aggregate: Aggregate,
    ) -> Product | None:
        """The product of one aggregate, or None when no declared cell can satisfy it."""
        masks = self.masks(table, aggregate.conditions)
        for column, mask in where.items():
            masks[column] = masks[column] & mask if column in masks else mask
        if any(not mask.any() for mask in masks.values()):
            return None
        factors: dict[str, Operator] = {}
        for column in table.columns:
            if column in members:
                rows = np.array(members[column], dtype=np.int64)
                if column in masks:
                    rows = rows * masks[column]
                factors[column] = self.factor(rows)
            elif column in masks and not masks[column].all():
                factors[column] = self.factor(masks[column].astype(np.int64)[None, :])
        return Product(factors)

    def factor(self, rows: NDArray[np.int64]) -> Operator:
        """Intern a matrix, so that equal factors of a workload are one object."""
        key = repr(rows.shape).encode() + rows.tobytes()
        if key not in self._factors:
            self._factors[key] = simplify(rows)
        return self._factors[key]


def _conditions(query: Query) -> list[Expression]:
    nested = (aggregate.conditions for aggregate in query.aggregates)
    return [*query.where, *itertools.chain.from_iterable(nested)]


def _indicator(size: int, cells: list[int]) -> Mask:
    mask = np.zeros(size, dtype=np.bool_)
    mask[cells] = True
    return mask
