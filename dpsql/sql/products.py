"""WHERE, GROUP BY and aggregates -> signed products of per-column matrices for every aggregate."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import simplify
from dpsql.algebra.operator import Operator
from dpsql.catalog import Catalog, Table
from dpsql.catalog.domain import Bins
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.records import replace
from dpsql.relation.possible_cells import live_cells
from dpsql.relation.unit_local import DerivedTable
from dpsql.sql.cells.constant_conditions import find_decided
from dpsql.sql.cells.evaluate import Evaluator
from dpsql.sql.cells.group_rows import (
    Grouping,
    ItemRows,
    all_ranges,
    nested,
    partition,
    ranges,
    ranked,
    wide_rows,
)
from dpsql.sql.cells.signed_products import MaskedSum, SignedProducts
from dpsql.sql.compiled import Answer, Branch, Select, cell_kinds
from dpsql.sql.query import Aggregate, Expression, Query, Rank, RunningSum, Shell
from dpsql.sql.shell.whole_numbers import is_number
from dpsql.sql.text.prepared_statements import StatementParts
from dpsql.workload.term import Mask, Term, gather, normalise

Axes = Sequence[Grouping]
Group = tuple[Branch, Sequence[int]]
"""Groups of a result, and the rows of the listing that they are about; [0] without one."""

LONG = 1 << 12
"""Bytes from which on a matrix is known by its digest: a copy would take as much memory again."""

MAX_RESULT_CELLS = 1 << 20
"""Most numbers that DuckDB puts together for a result, within its own memory and time."""

MAX_PLAIN_CELLS = 1 << 26
"""Most numbers of a result that shows them as they are; memory is forecast, and refused before."""


class Compiler:
    """Compiles queries against one catalog; predicates and factors are cached across queries."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.evaluator = Evaluator()
        self.known: dict[Hashable, Expression] = {}
        self.forms: set[str] = set()
        self.parts = StatementParts()
        self._factors: dict[bytes, Operator] = {}
        self._implicit: dict[Hashable, Operator] = {}
        self._conditions: dict[bytes, Operator | None] = {}
        self._rehearsed: set[tuple[Shell, tuple[str, ...], tuple[str, ...]]] = set()

    def compile(self, query: Query) -> Select:
        """Evaluate the query's expressions on the declared domains and form its products.

        Raises: ProgrammingError (E_DOMAIN_EVAL, E_TOO_LARGE, E_PREDICATE).
        """
        return _Products(self, query, self.catalog.find(query.table)).select()

    def rehearse(self, query: Query, types: tuple[str, ...], kinds: tuple[str, ...]) -> None:
        """Run the shell over no cells at all, so that what cannot run is refused beforehand.

        Raises: ProgrammingError (E_DOMAIN_EVAL).
        """
        shell = query.shell
        if shell.plain or (shell, types, kinds) in self._rehearsed:
            return
        self.evaluator.rehearse(shell.text(), {"cells": cell_kinds(shell, types, kinds)})
        self._rehearsed.add((shell, types, kinds))

    def factor(self, rows: NDArray[Any]) -> Operator:
        """Intern a matrix, so that equal factors of a workload are one object.

        Args:
            rows: (rows, cells).
        """
        content = np.ascontiguousarray(rows).data
        digest = rows.tobytes() if rows.nbytes < LONG else hashlib.sha256(content).digest()
        key = repr((rows.shape, rows.dtype.kind)).encode() + digest
        if key not in self._factors:
            self._factors[key] = simplify(rows)
        return self._factors[key]

    def intern(self, operator: Operator) -> Operator:
        """Intern an operator that is not explicit rows."""
        return self._implicit.setdefault(operator.key, operator)

    def condition(self, mask: Mask) -> Operator | None:
        """Intern the single row of a mask; None where it holds everywhere."""
        key = mask.tobytes()
        if key not in self._conditions:
            row = None if mask.all() else self.factor(mask.astype(np.int64)[None, :])
            self._conditions[key] = row
        return self._conditions[key]


class _Products:
    """The products of one query."""

    def __init__(self, compiler: Compiler, query: Query, table: Table) -> None:
        self.compiler = compiler
        self.evaluator = compiler.evaluator
        self.query = query
        self.table = table
        self.pieces = SignedProducts(self.evaluator, query, table)
        self.lookups = self.pieces.lookups
        self.source = self.pieces.source

    def select(self) -> Select:
        query = self.query
        self.pieces.prepare()
        types = tuple("VARCHAR" if key.ranges else self.pieces.values(key)[0] for key in query.keys)
        kinds = tuple(map(self.kind, query.aggregates))
        rows = self.pieces.rows()
        found = [each for chosen in query.sets for each in self.branches(chosen, rows)]
        branches = tuple(branch for branch, _ in found)
        self.check_size(branches)
        total = sum(branch.rows for branch in branches)
        self.compiler.rehearse(query, types, kinds)
        answers: list[Answer] = []
        for number, (branch, members) in enumerate(found):
            for j, aggregate in enumerate(query.aggregates):
                counted = self.counted(aggregate, members)
                answers.append(self.answer(number, branch, j, aggregate, counted))
        patterns = {c: p for (c, _), p in self.pieces.patterns.items() if not query.listing}
        said = find_decided(query, self.source, self.evaluator, patterns, total)
        return Select(query, self.table, branches, types, kinds, tuple(answers), said)

    def branches(self, chosen: tuple[int, ...], rows: Sequence[int]) -> list[Group]:
        """One branch for each group of the rows of the listing, or one, with these rows."""
        keys = self.query.keys
        fixed = [i for i in chosen if keys[i].listed]
        groups: dict[tuple[Any, ...], list[int]] = {} if fixed else {(): []}
        for row in rows:
            values = tuple(self.pieces.values(keys[i], row)[1][0] for i in fixed)
            groups.setdefault(values, []).append(row)
        return [
            (self.branch(chosen, members, dict(zip(fixed, group, strict=True))), members)
            for group, members in groups.items()
        ]

    def counted(self, aggregate: Aggregate, members: Sequence[int]) -> Sequence[int]:
        """The rows of the listing that an aggregate is over: one, for units that are in all.

        Units are not counted over several public rows that some of them may share.
        """
        listing = self.query.listing
        is_count = aggregate.units or aggregate.distinct is not None
        if not is_count or listing is None or len(members) < 2:
            return members
        if not listing.keep and not self.pieces.tells_rows(aggregate):
            return members[:1]
        raise NotSupportedError(
            "E_AGGREGATE",
            "DISTINCT in an aggregate over several rows of a list that joins several columns "
            "is not supported",
            hint="group by a column that tells the rows of the list apart",
            span=listing.span,
        )

    def kind(self, aggregate: Aggregate) -> str:
        """The DuckDB type of an aggregate's answers."""
        rank = aggregate.rank
        if rank is None or rank.kind == "cont":
            return "DOUBLE"
        return self.pieces.values(rank.value)[0]

    def branch(
        self, chosen: tuple[int, ...], members: Sequence[int], fixed: Mapping[int, Any]
    ) -> Branch:
        """Partition each grouped column; keys that WHERE excludes do not appear."""
        keys, axes = self.query.keys, []
        where = [self.pieces.where(row) for row in members]
        empty = not any(all(mask.any() for mask in masks.values()) for masks in where)
        own = [i for i in chosen if i not in fixed]
        for name in dict.fromkeys(keys[i].column for i in own):
            assert name is not None
            indices = [i for i in own if keys[i].column == name]
            masks = [each.get(name) for each in where]
            known = [mask for mask in masks if mask is not None]
            partly = known and len(known) == len(masks)
            mask = self.live(name, where, np.logical_or.reduce(known) if partly else None)
            if keys[indices[0]].ranges:
                axis = ranges(self.table.columns[name], indices[0], mask)
                axes.append(Grouping(name, axis.keys, () if empty else axis.groups, axis.explicit))
                continue
            values = [self.pieces.values(keys[i])[1] for i in indices]
            kept = np.zeros(len(values[0]), dtype=np.bool_) if empty else mask
            axes.append(partition(name, indices, values, kept))
        absent = frozenset(range(len(keys))) - frozenset(chosen)
        return Branch(tuple(axes), absent, fixed)

    def live(self, name: str, where: Sequence[Mapping[str | None, Mask]], own: Mask | None) -> Any:
        """The items of a column that are kept, less those that the rows of a relation cannot have.

        What a sub-query or a join leaves out appears no more than what WHERE excludes.
        """
        if not isinstance(self.table, DerivedTable):
            return own
        (masks,) = where if len(where) == 1 else ({},)
        kept = {}
        for column, mask in masks.items():
            if column is not None:
                cells = self.evaluator.cells(self.source(column))
                size = self.table.columns[column].size
                ones = np.ones(int(mask.sum()), np.bool_)
                kept[column] = mask if cells is None else _spread(ones, cells[mask], size, False)
        found = live_cells(self.table, name, kept)
        if found is None:
            return own
        cells = self.evaluator.cells(self.source(name))
        items = found if cells is None else found[cells]
        return items if own is None else own & items

    def check_size(self, branches: Sequence[Branch]) -> None:
        rows = sum(branch.rows for branch in branches)
        most = MAX_PLAIN_CELLS if self.query.shell.plain else MAX_RESULT_CELLS
        if rows * max(1, len(self.query.aggregates)) > most:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"the result would have {rows:,} rows, every declared combination being one",
                hint=f"group by fewer columns; at most {most:,} cells",
                span=self.query.keys[0].span if self.query.keys else None,
            )

    def answer(
        self,
        number: int,
        branch: Branch,
        index: int,
        aggregate: Aggregate,
        members: Sequence[int],
    ) -> Answer:
        """One aggregate over one grouping set."""
        axes, values, rank = branch.axes, (), aggregate.rank
        upto: tuple[float, ...] = ()
        if rank is not None:
            axis, values = self.ranked(rank)
            axes, upto = (*axes, axis), self.upper_edges(rank)
        hidden = axes[len(branch.axes) :]
        shape: tuple[Any, ...] = (rank, values, aggregate.units, None, upto)
        if aggregate.distinct is not None:
            column = str(aggregate.distinct.column)
            inner, found_values = ranked(
                column, self.pieces.values(aggregate.distinct)[1], growing=False
            )
            counts = self.pieces.counts(aggregate, inner.labels, len(found_values))
            hidden, shape = (inner,), (None, (), True, (column, counts), ())
        if not branch.rows:
            return Answer(number, index, axes, (), (), *shape)
        found = [self.pieces.pieces(aggregate, row) for row in members]
        whole = [piece for pieces, _ in found for piece in pieces]
        apart: list[MaskedSum] | None = []
        for _, more in found:
            apart = None if apart is None or more is None else [*apart, *more]
        kept = self.terms(branch.axes, aggregate, whole, hidden)
        products = None if apart is None else kept
        if apart is not None and any(piece.pattern is not None for piece in whole):
            products = self.terms(branch.axes, aggregate, apart, hidden)
        return Answer(number, index, axes, kept, products, *shape)

    def terms(
        self, axes: Axes, aggregate: Aggregate, pieces: Sequence[MaskedSum], hidden: Axes
    ) -> tuple[Term, ...]:
        found = [self.term(axes, aggregate, piece, hidden) for piece in pieces]
        measures = {name for piece in pieces for name in piece.polynomials}
        bounds = {name: self.table.columns[name].number_bounds for name in measures}
        known = {name: each for name, each in bounds.items() if each is not None}
        gathered = gather([term for term in found if term is not None], known)
        return tuple(term for term in gathered if not term.polynomials or _adds(term))

    def ranked(self, rank: Rank) -> tuple[Grouping, tuple[Any, ...]]:
        """The axis of a ranked column: its values in order; sums up to each unless for a mode."""
        name = str(rank.value.column)
        kind, values = self.pieces.values(rank.value)
        if rank.kind == "cont" and not is_number(kind):
            span = rank.value.span
            raise NotSupportedError(
                "E_AGGREGATE",
                f"interpolation of values of type {kind} is not supported",
                hint=f"QUANTILE_DISC(x, {rank.quantile:g}) takes values of any type",
                span=span,
            )
        return ranked(name, values, growing=rank.kind != "mode")

    def upper_edges(self, rank: Rank) -> tuple[float, ...]:
        """Upper edges of the bins of a ranked column; none where nothing is interpolated."""
        column = self.table.columns[str(rank.value.column)]
        if rank.kind != "cont" or rank.value.sql != "v" or not isinstance(column.domain, Bins):
            return ()
        kind = int if column.type == "integer" else float
        return tuple(kind(edge) for edge in column.domain.edges[1:])

    def term(self, axes: Axes, aggregate: Aggregate, piece: MaskedSum, hidden: Axes) -> Term | None:
        """The product of one piece; None when no declared cell can add anything."""
        factors: dict[str, Operator] = {}
        scale, largest = piece.scale, abs(piece.scale)
        rows_of = {axis.column: axis for axis in axes}
        for inner in hidden:
            known = rows_of.get(inner.column)
            rows_of[inner.column] = inner if known is None else nested(known, inner)
        for name, column in self.table.columns.items():
            axis, mask = rows_of.get(name), piece.masks.get(name)
            numbers = piece.weights.get(name)
            if axis is None and mask is None and numbers is None and name not in self.lookups:
                continue
            if axis is None and numbers is None and mask is not None and name not in self.lookups:
                row = self.compiler.condition(mask)
                if row is not None:
                    factors[name] = row
                continue
            rows: NDArray[Any]
            if axis is None:
                ones = np.ones((1, self.items(name)), dtype=np.int64)
                rows = ones if mask is None else mask.astype(np.int64)[None, :]
            elif axis.labels is None and axis.explicit is None:
                factors[name] = all_ranges(column, mask)
                continue
            else:
                running = aggregate.running if axis in axes else None
                wide = self.wide(axis, running, mask, numbers)
                if wide is not None:
                    factors[name] = self.compiler.intern(wide.operator)
                    scale, largest = scale * wide.scale, largest * wide.largest
                    if not wide.operator.column_l1().any():
                        return None
                    continue
                found = axis.members if running is None else axis.running(running)
                assert found is not None
                rows = found.astype(np.int64)
                if mask is not None:
                    rows = rows * mask
            if numbers is not None:
                rows = rows * numbers
                largest *= float(np.abs(rows).max(initial=0))
            rows = self.per_cell(name, rows)
            if not rows.any():
                return None
            rows, part = normalise(rows)
            scale *= part
            if axis is not None or not (rows == 1).all():
                factors[name] = self.compiler.factor(rows)
        if not scale:
            return None
        for name, polynomial in piece.polynomials.items():
            bounds = self.table.columns[name].number_bounds
            assert bounds is not None
            largest *= polynomial.largest(*bounds)
        return Term(factors, piece.polynomials, scale, largest, piece.pattern)

    def wide(
        self,
        axis: Grouping,
        running: RunningSum | None,
        mask: Mask | None,
        numbers: NDArray[Any] | None,
    ) -> ItemRows | None:
        """Rows over the cells of a column that are not written out, if there are such.

        Where public rows are joined to it, every cell may have one of them at most.
        """
        cells = self.evaluator.cells(self.source(axis.column))
        if cells is None:
            return wide_rows(axis, running, mask, numbers)
        if axis.labels is None or len(np.unique(cells)) < len(cells):
            return None
        size = self.table.columns[axis.column].size
        labels = _spread(axis.labels, cells, size, -1)
        within = None if mask is None else _spread(mask, cells, size, False)
        factors = None if numbers is None else _spread(numbers, cells, size, 0)
        return wide_rows(replace(axis, labels=labels), running, within, factors)

    def items(self, name: str) -> int:
        cells = self.evaluator.cells(self.source(name))
        return self.table.columns[name].size if cells is None else len(cells)

    def per_cell(self, name: str, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows over the items of a column's source, as rows over its cells."""
        cells = self.evaluator.cells(self.source(name))
        if cells is None:
            return rows
        out = np.zeros((len(rows), self.table.columns[name].size), dtype=rows.dtype)
        np.add.at(out.T, cells, rows.T)
        return out


def _spread(values: NDArray[Any], cells: NDArray[np.int64], size: int, rest: Any) -> NDArray[Any]:
    """Numbers of some cells (items,) as those of all (size,); the others have ``rest``."""
    out = np.full(size, rest, dtype=values.dtype)
    out[cells] = values
    return out


def _adds(term: Term) -> bool:
    """Say whether a sum may be other than zero: that of ``x - x`` is none to be measured."""
    return all(any((*each.coefficients, each.null)) for each in term.polynomials.values())
