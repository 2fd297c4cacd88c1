"""The tables of the outer shell of one statement: measured, public, and made of one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.sql.allowed import Locate, check_scalar
from dpsql.sql.compiled import Select, cell_kinds
from dpsql.sql.products import MAX_RESULT_CELLS, Compiler
from dpsql.sql.query import Influence, Output, Outside, PublicCells, Shell
from dpsql.sql.relations import Known, Leaf, PublicTable, Relation, Slope, Trait, renamed
from dpsql.sql.scope import PublicRows

MAX_SELECTS = 32
"""Most SELECTs over private tables in a statement."""

MAX_TABLES = 200


class Tables:
    """Makes tables of the shell; every SELECT over private rows is measured once."""

    def __init__(self, compiler: Compiler, public: PublicRows, locate: Locate) -> None:
        self.compiler = compiler
        self.public = public
        self.locate = locate
        self.queries: list[tuple[Leaf, Known]] = []
        self.selects: list[Select] = []
        self.texts: list[str] = []
        self.cells: dict[str, PublicCells] = {}
        self.kinds: dict[str, dict[str, str]] = {}
        self.count = 0

    def copy(self) -> Tables:
        """The same tables, to try what else can be made of them."""
        other = Tables(self.compiler, self.public, self.locate)
        other.queries, other.selects = [*self.queries], [*self.selects]
        other.texts, other.count = [*self.texts], self.count
        other.kinds, other.cells = {**self.kinds}, {**self.cells}
        return other

    def refuse_rows(self, node: exp.Expr) -> NoReturn:
        raise ProgrammingError(
            "E_NO_AGGREGATE",
            "rows cannot be returned, only aggregates",
            hint="SELECT COUNT(*) FROM ..., with GROUP BY for one count per value",
            span=self.locate(node),
        )

    def fresh(self) -> str:
        self.count += 1
        if self.count > MAX_TABLES:
            raise ProgrammingError("E_TOO_COMPLEX", f"over {MAX_TABLES} sub-queries")
        return f"r{self.count}"

    def known(self, found: Relation) -> Known:
        """A relation as a table of the shell; measured if it is a SELECT over private rows."""
        if isinstance(found, Known):
            return found
        if isinstance(found, Leaf):
            return self.measured(found)
        if isinstance(found, PublicTable):
            return self.public_table(found)
        self.refuse_rows(found.source)

    def measured(self, leaf: Leaf) -> Known:
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
            shell.text(slopes=shell.whole),
            {"cells": cell_kinds(shell, select.types, select.kinds)},
        )
        traits = tuple(
            Trait(
                output.name,
                kind,
                output.noisy,
                output.stddev is not None,
                _slopes(shell, output),
                output.whole,
            )
            for output, kind in zip(shell.outputs, kinds, strict=False)
        )
        number = len(self.queries)
        name = f"t{number}"
        rows = select.rows if shell.limit is None else min(select.rows, shell.limit)
        known = Known(name, traits, rows, True, _unique(select), not shell.whole, (number,))
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

    def public_table(self, found: PublicTable) -> Known:
        name = f"p_{list(self.compiler.catalog.tables).index(found.table.name.casefold())}"
        columns = self.public(found.table)
        traits = tuple(Trait(column, kind) for column, (kind, _) in columns.items())
        count = len(next(iter(columns.values()))[1]) if columns else 0
        if name not in self.cells:
            filled = {f"c{k}": each for k, each in enumerate(columns.values())}
            filled["i"] = ("BIGINT", list(range(count)))
            self.cells[name] = PublicCells(name, filled)
            self.kinds[name] = {column: kind for column, (kind, _) in filled.items()}
        return Known(name, traits, count, False)

    def values(self, node: exp.Values) -> Known:
        """A VALUES list as a table of the shell."""
        rows = [r.expressions if isinstance(r, exp.Tuple) else [r] for r in node.expressions]
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
        self.texts.append(
            f"{name} AS MATERIALIZED (SELECT * FROM (VALUES {lines}) AS v({columns}, i))"
        )
        names = renamed([f"col{k}" for k in range(width)], node.args.get("alias"))
        traits = [Trait(each, "") for each in names]
        return self.typed(Known(name, tuple(traits), len(rows), False), node)

    def typed(self, known: Known, node: exp.Expr) -> Known:
        """Rehearse a table of the shell without rows, so that what cannot run is refused here."""
        columns = ", ".join(f"c{index}" for index in range(len(known.traits)))
        sql = f"WITH {', '.join(self.texts)} SELECT {columns} FROM {known.name}"
        try:
            kinds = self.compiler.evaluator.rehearse(sql, self.kinds)
        except ProgrammingError as error:
            if error.span is None:
                error.span = self.locate(node)
            raise
        traits = tuple(replace(t, kind=k) for t, k in zip(known.traits, kinds, strict=True))
        return replace(known, traits=traits)

    def text(self, known: Known) -> str:
        """The SQL of a table of the shell: columns, errors, slopes and the cells they are of."""
        columns = [f"c{index}" for index in range(len(known.traits))]
        columns += [f"e{index}" for index, trait in enumerate(known.traits) if trait.error]
        columns += known.traces()
        items = f"WITH {', '.join(self.texts)} " if self.texts else ""
        return f"{items}SELECT {', '.join(columns)} FROM {known.name} ORDER BY i"

    def rows_of(self, known: Known) -> list[tuple[Any, ...]]:
        """The rows of a table that is made of public rows alone."""
        sealed = self.compiler.evaluator.sealed
        for name, kinds in self.kinds.items():
            filled = self.cells[name].columns if name in self.cells else None
            sealed.fill(name, filled or {column: (kind, ()) for column, kind in kinds.items()})
        return sealed.run(self.text(known))

    def outside(self, known: Known) -> Outside:
        """The outer shell of the whole statement."""
        known = _told(known)
        errors: list[int | None] = []
        place = len(known.traits)
        for trait in known.traits:
            errors.append(place if trait.error else None)
            place += trait.error
        slopes = known.slope_names()
        influences = tuple(
            tuple(
                Influence(
                    known.origins[slope.origin],
                    slope.aggregate,
                    place + len(slopes) + slope.origin,
                    None if slope.one else place + slopes.index(f"d{index}_{part}"),
                )
                for part, slope in enumerate(trait.slopes)
            )
            for index, trait in enumerate(known.traits)
        )
        return Outside(
            self.text(known),
            tuple(trait.name for trait in known.traits),
            tuple(trait.noisy for trait in known.traits),
            tuple(errors),
            influences,
            tuple(self.cells.values()),
        )


def _told(known: Known) -> Known:
    """A table whose slopes are only those that standard errors are still to be computed from."""
    traits = tuple(replace(t, slopes=()) if t.error else t for t in known.traits)
    origins = known.origins if any(trait.slopes for trait in traits) else ()
    return replace(known, traits=traits, origins=origins)


def _slopes(shell: Shell, output: Output) -> tuple[Slope, ...]:
    """The slopes of a result column by the aggregates of its own cell."""
    found = output.slopes if shell.whole else ()
    return tuple(Slope(0, aggregate, sql == "1") for aggregate, sql in found)


def _unique(select: Select) -> tuple[frozenset[int], ...]:
    """The result columns that are the keys of a measured SELECT, if all of them are there."""
    query = select.query
    if len(query.sets) > 1 or any(key.ranges for key in query.keys):
        return ()
    found = {o.key: index for index, o in enumerate(query.shell.outputs) if o.key is not None}
    whole = set(found) == set(range(len(query.keys)))
    return (frozenset(found.values()),) if whole else ()
