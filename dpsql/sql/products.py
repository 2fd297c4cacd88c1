"""WHERE, GROUP BY and aggregates -> signed products of per-column matrices for every aggregate."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import simplify
from dpsql.algebra.operator import Operator
from dpsql.catalog import Catalog, Table
from dpsql.errors import ProgrammingError
from dpsql.sql.compiled import Answer, Branch, Select, cell_kinds
from dpsql.sql.evaluate import Evaluator, Operand, find_decided
from dpsql.sql.group import Grouping, all_ranges, nested, partition, ranges, ranked, wide_rows
from dpsql.sql.query import (
    Aggregate,
    Condition,
    Coupled,
    Expression,
    Lookup,
    Query,
    Rank,
    Shell,
    Summand,
    conditions_of,
    connected,
)
from dpsql.workload.term import (
    Mask,
    Pattern,
    Polynomial,
    Term,
    ValueClasses,
    check_combinations,
    classify,
    gather,
    intersect,
    join,
    normalise,
    refuse_pattern,
)

Axes = Sequence[Grouping]

MAX_RESULT_CELLS = 1_000_000
"""Most numbers of a result, which is held and encoded as a whole."""


class Compiler:
    """Compiles queries against one catalog; predicates and factors are cached across queries."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.evaluator = Evaluator()
        self.known: dict[Hashable, Condition] = {}
        self.forms: set[str] = set()
        self._factors: dict[bytes, Operator] = {}
        self._implicit: dict[Hashable, Operator] = {}
        self._conditions: dict[bytes, Operator | None] = {}
        self._rehearsed: set[tuple[Shell, tuple[str, ...], tuple[str, ...]]] = set()

    def forget(self) -> None:
        """Let go of what is only known again: bound conditions and the forms of statements."""
        self.known.clear()
        self.forms.clear()

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
        """Intern a matrix, so that equal factors of a workload are one object."""
        key = repr((rows.shape, rows.dtype.kind)).encode() + rows.tobytes()
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


@dataclass(frozen=True, slots=True)
class _Piece:
    """A summand where signs and masks are known: ``weights`` are numbers per item of a column."""

    scale: float
    masks: Mapping[str, Mask]
    weights: Mapping[str, NDArray[Any]]
    polynomials: Mapping[str, Polynomial]
    pattern: Pattern | None = None


class _Products:
    """The products of one query."""

    def __init__(self, compiler: Compiler, query: Query, table: Table) -> None:
        self.compiler = compiler
        self.evaluator = compiler.evaluator
        self.query = query
        self.table = table
        self.lookups: dict[str, Lookup] = {each.column: each for each in query.lookups}
        self.sources: dict[str | None, Operand] = {}
        self.patterns: dict[tuple[Coupled, ...], Pattern] = {}

    def select(self) -> Select:
        query = self.query
        self.prepare()
        where = self.masks(query.where)
        types = tuple(
            "VARCHAR" if key.ranges else self.evaluator.values(self.source(key.column), key)[0]
            for key in query.keys
        )
        kinds = tuple(map(self.kind, query.aggregates))
        empty = any(not mask.any() for mask in where.values())
        branches = tuple(self.branch(chosen, where, empty) for chosen in query.sets)
        self.check_size(branches)
        self.compiler.rehearse(query, types, kinds)
        answers: list[Answer] = []
        pieces = [self.pieces(a) for a in query.aggregates]
        for number, branch in enumerate(branches):
            for j, aggregate in enumerate(query.aggregates):
                answers.append(self.answer(number, branch, j, aggregate, pieces[j]))
        said = find_decided(query, self.source, self.evaluator, self.patterns)
        return Select(query, self.table, branches, types, kinds, tuple(answers), said)

    def source(self, column: str | None) -> Operand:
        if column not in self.sources:
            known = None if column is None else self.table.columns[column]
            lookup = None if column is None else self.lookups.get(column)
            self.sources[column] = Operand(self.table.name, known, lookup)
        return self.sources[column]

    def prepare(self) -> None:
        """Evaluate all conditions over single columns together."""
        found: dict[str | None, list[Expression]] = {}
        for condition in conditions_of(self.query):
            if isinstance(condition, Expression):
                found.setdefault(condition.column, []).append(condition)
        for column, expressions in found.items():
            if len(expressions) > 1:
                self.evaluator.prepare(self.source(column), expressions)

    def masks(self, conditions: Sequence[Condition]) -> dict[str | None, Mask]:
        """The conjunction of the single-column conditions, column by column."""
        found: dict[str | None, Mask] = {}
        for condition in conditions:
            if isinstance(condition, Expression):
                mask = self.evaluator.mask(self.source(condition.column), condition)
                known = found.get(condition.column)
                found[condition.column] = mask if known is None else known & mask
        return found

    def kind(self, aggregate: Aggregate) -> str:
        """The DuckDB type of an aggregate's answers."""
        rank = aggregate.rank
        if rank is None or rank.kind == "cont":
            return "DOUBLE"
        return self.evaluator.values(self.source(rank.value.column), rank.value)[0]

    def branch(
        self, chosen: tuple[int, ...], where: Mapping[str | None, Mask], empty: bool
    ) -> Branch:
        """Partition each grouped column; keys that WHERE excludes do not appear."""
        keys, axes = self.query.keys, []
        for name in dict.fromkeys(keys[i].column for i in chosen):
            assert name is not None
            indices = [i for i in chosen if keys[i].column == name]
            source = self.source(name)
            mask = where.get(name)
            if keys[indices[0]].ranges:
                axis = ranges(self.table.columns[name], indices[0], mask)
                axes.append(Grouping(name, axis.keys, () if empty else axis.groups, axis.explicit))
                continue
            values = [self.evaluator.values(source, keys[i])[1] for i in indices]
            kept = np.zeros(len(values[0]), dtype=np.bool_) if empty else mask
            axes.append(partition(name, indices, values, kept))
        return Branch(tuple(axes), frozenset(range(len(keys))) - frozenset(chosen))

    def check_size(self, branches: Sequence[Branch]) -> None:
        rows = sum(branch.rows for branch in branches)
        if rows * max(1, len(self.query.aggregates)) > MAX_RESULT_CELLS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"the result would have {rows:,} rows, every declared combination being one",
                hint=f"group by fewer columns; at most {MAX_RESULT_CELLS:,} cells",
                span=self.query.keys[0].span if self.query.keys else None,
            )

    def pieces(self, aggregate: Aggregate) -> tuple[list[_Piece], list[_Piece] | None]:
        """The summands of an aggregate: with whole patterns, and as signed products alone."""
        shared = (*self.query.where, *aggregate.conditions)
        whole: list[_Piece] = []
        apart: list[_Piece] | None = []
        for summand in aggregate.summands:
            conditions = (*shared, *summand.conditions)
            masks = self.masks(conditions)
            if any(not mask.any() for mask in masks.values()):
                continue
            own = {name: mask for name, mask in masks.items() if name is not None}
            scale, weights = self.weights(summand)
            shape = weights, {each.column: each for each in summand.polynomials}
            coupled = list(dict.fromkeys(c for c in conditions if isinstance(c, Coupled)))
            patterns = [self.pattern(group) for group in connected(coupled)]
            boxes = intersect(patterns)
            pieces = []
            for sign, box in boxes or ():
                both = own | {n: m & own[n] if n in own else m for n, m in box.items()}
                if all(mask.any() for mask in both.values()):
                    pieces.append(_Piece(sign * scale, both, *shape))
            apart = None if apart is None or boxes is None else [*apart, *pieces]
            pattern = None if boxes is not None and len(pieces) < 2 else join(patterns)
            if boxes is None and pattern is None:
                refuse_pattern(patterns[0])
            if pattern is not None:
                pieces = [_Piece(scale, own, *shape, pattern)]
            whole += pieces
        return whole, apart

    def weights(self, summand: Summand) -> tuple[float, dict[str, NDArray[Any]]]:
        """The constant factor of a summand, and its numbers per item of every column."""
        scale, weights = 1.0, dict[str, NDArray[Any]]()
        for factor in summand.factors:
            numbers = self.evaluator.numbers(self.source(factor.column), factor)
            if factor.column is None:
                scale *= float(numbers[0])
            else:
                known = weights.get(factor.column)
                weights[factor.column] = numbers if known is None else known * numbers
        return scale, weights

    def pattern(self, coupled: tuple[Coupled, ...]) -> Pattern:
        """Conditions over the same columns together."""
        if coupled not in self.patterns:
            self.patterns[coupled] = self._pattern(coupled)
        return self.patterns[coupled]

    def _pattern(self, coupled: Sequence[Coupled]) -> Pattern:
        span = coupled[0].span
        parts = list(dict.fromkeys(p for each in coupled for p in each.parts if p.column))
        values = {part: self.evaluator.values(self.source(part.column), part) for part in parts}
        names = list(dict.fromkeys(str(part.column) for part in parts))
        order = list(self.table.columns)
        names.sort(key=order.index)
        classes: dict[str, ValueClasses] = {}
        for name in names:
            mine = [values[part][1] for part in parts if part.column == name]
            classes[name] = classify(mine, len(mine[0]))
        check_combinations(classes, span)
        shape = [len(classes[name].values) for name in names]
        grid = np.indices(shape).reshape(len(names), -1)
        truth = np.ones(shape, dtype=np.bool_)
        for each in coupled:
            columns = []
            for part in each.parts:
                if part.column is None:
                    kind, constant = self.evaluator.values(self.source(None), part)
                    columns.append((kind, list(constant) * truth.size))
                    continue
                own = [p for p in parts if p.column == part.column]
                found = [row[own.index(part)] for row in classes[part.column].values]
                place = grid[names.index(part.column)]
                columns.append((values[part][0], [found[k] for k in place]))
            truth &= np.array(self.evaluator.truth(each.sql, columns, span)).reshape(shape)
        return Pattern({name: classes[name].labels for name in names}, truth, span)

    def answer(
        self,
        number: int,
        branch: Branch,
        index: int,
        aggregate: Aggregate,
        pieces: tuple[list[_Piece], list[_Piece] | None],
    ) -> Answer:
        """One aggregate over one grouping set."""
        axes, values, rank = branch.axes, (), aggregate.rank
        if rank is not None:
            axis, values = self.ranked(rank)
            axes = (*axes, axis)
        shape, hidden = (rank, values, aggregate.units), axes[len(branch.axes) :]
        if not branch.rows:
            return Answer(number, index, axes, (), (), *shape)
        whole, apart = pieces
        kept = self.terms(branch.axes, aggregate, whole, hidden)
        products = None if apart is None else kept
        if apart is not None and any(piece.pattern is not None for piece in whole):
            products = self.terms(branch.axes, aggregate, apart, hidden)
        return Answer(number, index, axes, kept, products, *shape)

    def terms(
        self, axes: Axes, aggregate: Aggregate, pieces: Sequence[_Piece], hidden: Axes
    ) -> tuple[Term, ...]:
        found = [self.term(axes, aggregate, piece, hidden) for piece in pieces]
        return gather(term for term in found if term is not None)

    def ranked(self, rank: Rank) -> tuple[Grouping, tuple[Any, ...]]:
        """The axis of a ranked column: its values in order; sums up to each unless for a mode."""
        name = str(rank.value.column)
        values = self.evaluator.values(self.source(name), rank.value)[1]
        return ranked(name, values, growing=rank.kind != "mode")

    def term(self, axes: Axes, aggregate: Aggregate, piece: _Piece, hidden: Axes) -> Term | None:
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
                wide = None if name in self.lookups else wide_rows(axis, running, mask, numbers)
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
