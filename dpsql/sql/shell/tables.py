"""The tables of the outer shell: measured SELECTs, public tables, lists of values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlglot import exp

from dpsql.catalog.catalog import PublicRows
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.records import replace
from dpsql.sql.cells.combinations import Given
from dpsql.sql.compiled import Select, cell_kinds
from dpsql.sql.products import MAX_RESULT_CELLS, Compiler
from dpsql.sql.query import Influence, OuterSql, Output, PublicCells
from dpsql.sql.relations import (
    ColumnDerivative,
    FromElement,
    MeasuredSelect,
    PrivateRows,
    PublicTable,
    Relation,
    ShellColumn,
    ShellTable,
    as_literal,
    renamed,
    renamed_fields,
    rows_of,
)
from dpsql.sql.shell.expressions import name_of, refuse_rows
from dpsql.sql.shell.language import Locate, check_scalar
from dpsql.sql.shell.set_operations import set_operation
from dpsql.sql.shell.table_joins import keys_among
from dpsql.sql.units.ranked_rows import ranked

MAX_SELECTS = 32
"""Most SELECTs over private tables in a statement."""

MAX_LIST = 10_000
"""Public values that a sub-query in IN is written out as."""

MAX_TABLES = 200
"""Tables of the shell in a statement: each is a SELECT that DuckDB binds once more."""


class Tables:
    """Makes tables of the shell; every SELECT over private rows is measured once."""

    def __init__(self, compiler: Compiler, public: PublicRows, locate: Locate) -> None:
        self.compiler = compiler
        self.public = public
        self.locate = locate
        self.queries: list[tuple[MeasuredSelect, ShellTable]] = []
        self.selects: list[Select] = []
        self.texts: list[str] = []
        self.untyped: list[str] = []
        self.cells: dict[str, PublicCells] = {}
        self.kinds: dict[str, dict[str, str]] = {}
        self.typed: dict[str, dict[str, str]] = {}
        self.notes: list[str] = []
        self.count = 0

    def copy(self) -> Tables:
        """The same tables, to try what else can be made of them."""
        other = Tables(self.compiler, self.public, self.locate)
        other.queries, other.selects = [*self.queries], [*self.selects]
        other.texts, other.untyped, other.count = [*self.texts], [*self.untyped], self.count
        other.kinds, other.typed, other.cells = {**self.kinds}, {**self.typed}, {**self.cells}
        return other

    def fresh(self) -> str:
        self.count += 1
        if self.count > MAX_TABLES:
            hint = (
                "write parts of it as statements of one workload, or name in WITH what is repeated"
            )
            raise ProgrammingError("E_TOO_COMPLEX", f"over {MAX_TABLES} sub-queries", hint=hint)
        return f"r{self.count}"

    def known(self, found: Relation) -> ShellTable:
        """A relation as a table of the shell; measured if it is a SELECT over private rows."""
        if isinstance(found, ShellTable):
            return found
        if isinstance(found, MeasuredSelect):
            return self.measured(found)
        if isinstance(found, PublicTable):
            return self.public_table(found)
        refuse_rows(found.source, self.locate)

    def measured(self, leaf: MeasuredSelect) -> ShellTable:
        for other, known in self.queries:
            if other.query == leaf.query:
                return known
        if len(self.queries) >= MAX_SELECTS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"over {MAX_SELECTS} aggregated SELECTs in one statement",
                hint="write them as statements of one workload",
                span=self.locate(leaf.node),
            )
        select = self.compiler.compile(leaf.query)
        shell = leaf.query.shell
        kinds = self.compiler.evaluator.rehearse(
            shell.text(slopes=shell.tail.whole),
            {"cells": cell_kinds(shell, select.types, select.kinds)},
        )
        traits = tuple(
            replace(trait, kind=kind, slopes=trait.slopes if shell.tail.whole else ())
            for trait, kind in zip(traits_of(shell.outputs, [("r0", 0)]), kinds, strict=False)
        )
        number = len(self.queries)
        name = f"t{number}"
        rows = select.rows if shell.tail.limit is None else min(select.rows, shell.tail.limit)
        tail = shell.tail
        unique, chosen = _unique(select), bool(tail.having or tail.qualify or tail.cut)
        if [name_of(item) for item in leaf.node.expressions] == [t.name for t in traits]:
            unique += ranked(leaf.node)
        listed = partial(_listed, select)
        known = ShellTable(name, traits, rows, True, unique, chosen, (number,), listed)
        self.queries.append((leaf, known))
        self.selects.append(select)
        if sum(each.rows * len(each.query.shell.outputs) for each in self.selects) > (
            MAX_RESULT_CELLS
        ):
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"the aggregated SELECTs have over {MAX_RESULT_CELLS:,} cells together",
                hint="group by fewer columns",
                span=self.locate(leaf.node),
            )
        self.kinds[name] = {"i": "BIGINT", "r0": "BIGINT"}
        for index, trait in enumerate(traits):
            self.kinds[name][f"c{index}"] = trait.kind
            if trait.error:
                self.kinds[name][f"e{index}"] = "DOUBLE"
        self.kinds[name] |= dict.fromkeys(known.slope_names(), "DOUBLE")
        return known

    def public_table(self, found: PublicTable) -> ShellTable:
        name = f"p_{list(self.compiler.catalog.tables).index(found.table.name.casefold())}"
        columns = self.public(found.table)
        traits = tuple(ShellColumn(column, kind) for column, (kind, _) in columns.items())
        count = len(next(iter(columns.values()))[1]) if columns else 0
        if name not in self.cells:
            filled = {f"c{k}": each for k, each in enumerate(columns.values())}
            filled["i"] = ("BIGINT", list(range(count)))
            self.cells[name] = PublicCells(name, filled)
            self.kinds[name] = {column: kind for column, (kind, _) in filled.items()}
        unique = keys_among([values for _, values in columns.values()])
        listed = {k: values for k, (_, values) in enumerate(columns.values())}
        return ShellTable(name, traits, count, False, unique, listed=lambda: listed)

    def aliased(self, found: Relation, alias: exp.Expr | None) -> Relation:
        """Rename columns after ``name(a, b)``."""
        if alias is None or not alias.args.get("columns"):
            return found
        if isinstance(found, PrivateRows):
            fields = renamed_fields(found.fields, alias, self.locate)
            return PrivateRows(found.source, found.joins, found.where, fields, found.names)
        known = self.known(found)
        names = renamed([t.name for t in known.traits], alias, self.locate)
        traits = tuple(replace(t, name=n) for n, t in zip(names, known.traits, strict=True))
        return replace(known, traits=traits)

    def keys(self, element: FromElement, relation: Relation) -> Given | None:
        """The columns of public rows in FROM by case-folded name; None for what is private."""
        if isinstance(relation, PrivateRows | MeasuredSelect):
            return None
        relation = self.aliased(relation, element.node.args.get("alias"))
        if isinstance(relation, PublicTable):
            return {name.casefold(): each for name, each in self.public(relation.table).items()}
        if not isinstance(relation, ShellTable) or relation.private:
            return None
        rows, traits = self.rows_of(relation), relation.traits
        return {t.name.casefold(): (t.kind, [row[k] for row in rows]) for k, t in enumerate(traits)}

    def beside(
        self, known: ShellTable, columns: Sequence[tuple[str, list[Any]]], node: exp.Expr
    ) -> ShellTable:
        """A table of the shell with more rows, which are public."""
        name, count = self.fresh(), len(columns[0][1])
        filled = {f"c{k}": each for k, each in enumerate(columns)}
        self.cells[name] = PublicCells(name, {**filled, "i": ("BIGINT", range(count))})
        self.kinds[name] = {c: kind for c, (kind, _) in self.cells[name].columns.items()}
        traits = tuple(
            ShellColumn(t.name, k) for t, (k, _) in zip(known.traits, columns, strict=True)
        )
        rows, both = ShellTable(name, traits, count, False), exp.Union(distinct=False)
        text, found = set_operation(both, self.fresh(), known, rows, self.locate)
        return self.add(text, found, node)

    def values(self, node: exp.Values) -> ShellTable:
        """A VALUES list as a table of the shell."""
        rows = rows_of(node)
        width = len(rows[0])
        for row in rows:
            if len(row) != width:
                raise NotSupportedError(
                    "E_STATEMENT",
                    "VALUES of different lengths is not supported",
                    hint="VALUES (1), (2)",
                    span=self.locate(node),
                )
            for part in row:
                check_scalar(part, self.locate)
        texts = [", ".join(part.sql("duckdb", comments=False) for part in row) for row in rows]
        columns = ", ".join(f"c{k}" for k in range(width))
        lines = ", ".join(f"({text}, {number})" for number, text in enumerate(texts))
        name = self.fresh()
        text = f"{name} AS MATERIALIZED (SELECT * FROM (VALUES {lines}) AS v({columns}, i))"
        names = renamed([f"col{k}" for k in range(width)], node.args.get("alias"), self.locate)
        traits = [ShellColumn(each, "") for each in names]
        return self.add(text, ShellTable(name, tuple(traits), len(rows), False), node)

    def add(self, text: str, known: ShellTable, node: exp.Expr) -> ShellTable:
        """A table of the shell by its SQL: rehearsed without rows, so that it is refused here.

        Those that it is made of are tables without rows by then, and are not bound again; but for
        columns that are NULL, which are of no type where they are written.
        """
        self.texts.append(text)
        self.untyped.append(text)
        columns = [*_columns(known), "i"]
        sql = f"WITH {', '.join(self.untyped)} SELECT {', '.join(columns)} FROM {known.name}"
        try:
            kinds = self.compiler.evaluator.rehearse(sql, self.kinds | self.typed)
        except ProgrammingError as error:
            if error.span is None:
                error.span = self.locate(node)
            raise
        if not any("NULL" in kind for kind in kinds):
            self.untyped.pop()
            self.typed[known.name] = dict(zip(columns, kinds, strict=True))
        traits = tuple(replace(t, kind=k) for t, k in zip(known.traits, kinds, strict=False))
        return replace(known, traits=traits)

    def text(self, known: ShellTable) -> str:
        """The SQL of a table of the shell, in the order of its rows."""
        items = f"WITH {', '.join(self.texts)} " if self.texts else ""
        return f"{items}SELECT {', '.join(_columns(known))} FROM {known.name} ORDER BY i"

    def rows_of(self, known: ShellTable) -> list[tuple[Any, ...]]:
        """The rows of a table that is made of public rows alone."""
        sealed = self.compiler.evaluator.sealed
        for name, kinds in self.kinds.items():
            filled = self.cells[name].columns if name in self.cells else None
            sealed.fill(name, filled or {column: (kind, ()) for column, kind in kinds.items()})
        return sealed.run(self.text(known))

    def literals(self, known: ShellTable, query: exp.Expr) -> list[exp.Expr]:
        """The first column of a table of public rows alone, as literals that IN lists.

        Raises: ProgrammingError (E_TOO_LARGE).
        """
        rows = self.rows_of(known)
        if len(rows) > MAX_LIST:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"the sub-query has {len(rows):,} values",
                hint=f"at most {MAX_LIST:,}; JOIN the public table instead",
                span=self.locate(query),
            )
        values = [as_literal(row[0]) for row in rows]
        return [value for value in values if value is not None]

    def outside(self, known: ShellTable) -> OuterSql:
        """The outer shell of the whole statement."""
        repeats = _repeats(known)
        known = _told(known)
        columns = _columns(known)
        errors = tuple(
            columns.index(f"e{index}") if trait.error else None
            for index, trait in enumerate(known.traits)
        )
        influences = tuple(
            tuple(
                Influence(
                    known.origins[slope.origin],
                    slope.aggregate,
                    columns.index(f"r{slope.origin}"),
                    None if slope.one else columns.index(f"d{index}_{part}"),
                )
                for part, slope in enumerate(trait.slopes)
            )
            for index, trait in enumerate(known.traits)
        )
        return OuterSql(
            self.text(known),
            tuple(trait.name for trait in known.traits),
            tuple(trait.noisy for trait in known.traits),
            tuple(trait.is_whole for trait in known.traits),
            errors,
            influences,
            tuple(self.cells.values()),
            tuple(dict.fromkeys(self.notes)),
            repeats,
        )


def _columns(known: ShellTable) -> list[str]:
    """The columns of a table of the shell: values, errors, slopes and the cells they are of."""
    errors = [f"e{index}" for index, trait in enumerate(known.traits) if trait.error]
    return [*(f"c{index}" for index in range(len(known.traits))), *errors, *known.traces()]


def _repeats(known: ShellTable) -> frozenset[tuple[int, int]] | None:
    """The aggregates that are columns of their own; None where rows are chosen, as by HAVING."""
    if any(trait.error and not trait.slopes for trait in known.traits):
        return None
    single = (trait.slopes[0] for trait in known.traits if len(trait.slopes) == 1)
    return frozenset((known.origins[each.origin], each.aggregate) for each in single if each.one)


def _told(known: ShellTable) -> ShellTable:
    """A table whose slopes are only those that standard errors are still to be computed from."""
    traits = tuple(replace(t, slopes=()) if t.error else t for t in known.traits)
    origins = known.origins if any(trait.slopes for trait in traits) else ()
    return replace(known, traits=traits, origins=origins)


def traits_of(
    outputs: Sequence[Output], origins: Sequence[tuple[str, int]]
) -> tuple[ShellColumn, ...]:
    """Result columns as those of a table, of types that are not known yet.

    ``origins`` are the columns that number the cells that slopes are of, each with its select.
    """
    return tuple(
        ShellColumn(
            each.name,
            "",
            each.noisy,
            each.stddev is not None,
            tuple(
                ColumnDerivative(origins.index(number[:2]), number[2], sql == "1")
                for number, sql in each.slopes
            ),
            each.whole,
        )
        for each in outputs
    )


def _listed(select: Select) -> dict[int, list[Any]]:
    """The result columns that are keys, with the values that they have in all rows."""
    values = select.key_columns()
    outputs = enumerate(select.query.shell.outputs)
    return {index: list(values[o.key]) for index, o in outputs if o.key is not None}


def _unique(select: Select) -> tuple[frozenset[int], ...]:
    """The result columns that are the keys of a measured SELECT, if all of them are there."""
    query = select.query
    if len(query.sets) > 1 or any(key.ranges for key in query.keys):
        return ()
    found = {o.key: index for index, o in enumerate(query.shell.outputs) if o.key is not None}
    whole = set(found) == set(range(len(query.keys)))
    return (frozenset(found.values()),) if whole else ()
