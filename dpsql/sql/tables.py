"""FROM and JOIN of a SELECT of the outer shell -> SQL, and a bound on the number of its rows.

The bound is a function of public facts: declared keys, and conditions that set keys equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.sql.compiled import Select, cell_kinds
from dpsql.sql.expressions import refuse_rows, sql_of
from dpsql.sql.language import Locate, check_scalar
from dpsql.sql.names import Names
from dpsql.sql.over_tables import TableExpressions, place_of
from dpsql.sql.products import MAX_RESULT_CELLS, Compiler
from dpsql.sql.query import Influence, Output, Outside, PublicCells
from dpsql.sql.relations import (
    Join,
    Known,
    Leaf,
    PublicRows,
    PublicTable,
    Relation,
    Slope,
    Trait,
    renamed,
    rows_of,
)
from dpsql.sql.scope import conjuncts

MAX_SELECTS = 32
"""Most SELECTs over private tables in a statement."""

MAX_TABLES = 200
"""Tables of the shell in a statement: each is a SELECT that DuckDB binds again."""


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
        refuse_rows(found.source, self.locate)

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
        known = Known(name, traits, rows, True, _unique(select), not shell.tail.whole, (number,))
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
        self.texts.append(
            f"{name} AS MATERIALIZED (SELECT * FROM (VALUES {lines}) AS v({columns}, i))"
        )
        names = renamed([f"col{k}" for k in range(width)], node.args.get("alias"), self.locate)
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
        """The SQL of a table of the shell, in the order of its rows."""
        items = f"WITH {', '.join(self.texts)} " if self.texts else ""
        return f"{items}SELECT {', '.join(_columns(known))} FROM {known.name} ORDER BY i"

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
        return Outside(
            self.text(known),
            tuple(trait.name for trait in known.traits),
            tuple(trait.noisy for trait in known.traits),
            errors,
            influences,
            tuple(self.cells.values()),
        )


def _columns(known: Known) -> list[str]:
    """The columns of a table of the shell: values, errors, slopes and the cells they are of."""
    errors = [f"e{index}" for index, trait in enumerate(known.traits) if trait.error]
    return [*(f"c{index}" for index in range(len(known.traits))), *errors, *known.traces()]


def _told(known: Known) -> Known:
    """A table whose slopes are only those that standard errors are still to be computed from."""
    traits = tuple(replace(t, slopes=()) if t.error else t for t in known.traits)
    origins = known.origins if any(trait.slopes for trait in traits) else ()
    return replace(known, traits=traits, origins=origins)


def traits_of(outputs: Sequence[Output], origins: Sequence[tuple[str, int]]) -> tuple[Trait, ...]:
    """Result columns as those of a table, of types that are not known yet.

    ``origins`` are the columns that number the cells that slopes are of, each with its select.
    """
    return tuple(
        Trait(
            each.name,
            "",
            each.noisy,
            each.stddev is not None,
            tuple(
                Slope(origins.index(number[:2]), number[2], sql == "1")
                for number, sql in each.slopes
            ),
            each.whole,
        )
        for each in outputs
    )


def _unique(select: Select) -> tuple[frozenset[int], ...]:
    """The result columns that are the keys of a measured SELECT, if all of them are there."""
    query = select.query
    if len(query.sets) > 1 or any(key.ranges for key in query.keys):
        return ()
    found = {o.key: index for index, o in enumerate(query.shell.outputs) if o.key is not None}
    whole = set(found) == set(range(len(query.keys)))
    return (frozenset(found.values()),) if whole else ()


MAX_ROWS = 1_000_000
"""Most rows of a table of the shell, and most pairs of rows of a join."""

ColumnPlace = tuple[int, int]
ColumnSets = tuple[frozenset[ColumnPlace], ...]

_NUMBERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT"}


@dataclass(frozen=True, slots=True)
class From:
    """FROM as SQL, a bound on its rows, and sets of columns that no two rows agree on."""

    sql: str
    rows: int
    unique: ColumnSets


class Joins:
    """Joins the tables of one SELECT of the shell; their names are added to its expressions."""

    def __init__(self, expressions: TableExpressions) -> None:
        self.expressions = expressions
        self.sources = expressions.sources
        self.names = expressions.names
        self.locate = expressions.locate

    def join(self) -> From:
        """All tables of FROM, joined in the order written.

        Raises: ProgrammingError (E_TOO_LARGE, E_UNKNOWN_COLUMN); NotSupportedError (E_JOIN).
        """
        found = From("(SELECT 0 AS i) AS a0", 1, (frozenset(),))
        for number, each in enumerate(self.sources):
            self.names.add(each.element.alias, each.fields(number), each.element.node)
            own = tuple(frozenset((number, k) for k in keys) for keys in each.table.unique)
            join = each.element.join
            if join is None:
                found = From(f"{each.table.name} AS a{number}", each.table.rows, own)
            else:
                found = self.add(found, number, own, join)
        return found

    def add(self, before: From, number: int, own: ColumnSets, join: Join) -> From:
        """Join one more table; where a key of one side is met, its rows match at most once."""
        clause, equal = self.on(join, number)
        side = join.side
        left = any(keys <= {a for a, _ in equal} for keys in before.unique)
        right = any(keys <= {b for _, b in equal} for keys in own)
        here = self.sources[number].table
        if right:
            rows = before.rows + (here.rows if side in ("RIGHT", "FULL") else 0)
        elif left:
            rows = here.rows + (before.rows if side in ("LEFT", "FULL") else 0)
        else:
            rows = before.rows * here.rows + (before.rows + here.rows if side else 0)
        if rows > MAX_ROWS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"the join could have {rows:,} rows",
                hint=f"join on all keys of one side; at most {MAX_ROWS:,} rows",
                span=self.locate(join.node),
            )
        unique = [one | two for one in before.unique for two in own][:8]
        if right and side in ("", "LEFT"):
            unique += before.unique
        if left and side in ("", "RIGHT"):
            unique += own
        text = f"{before.sql} {side or 'INNER'} JOIN {here.name} AS a{number} ON {clause}"
        return From(text, rows, () if side == "FULL" else tuple(unique))

    def on(self, join: Join, number: int) -> tuple[str, list[tuple[ColumnPlace, ColumnPlace]]]:
        """The condition of a join, and the pairs of columns it sets equal."""
        if not join.is_plain:
            self.expressions.refuse(join.node, "E_JOIN", f"{join.method or join.kind} JOIN")
        tests: list[exp.Expr] = []
        pairs = []
        for name in join.using:
            reference = exp.column(name.name)
            reference.meta.update(name.meta)
            known = self.names.find(reference, number)
            right = Names(self.locate, self.names.sources[number:]).find(reference)
            if known is None or right is None:
                self.names.refuse_column(reference)
            tests.append(exp.EQ(this=known, expression=right))
            both = exp.Coalesce(this=known.copy(), expressions=[right.copy()])
            merged = {"FULL": both, "RIGHT": right.copy()}.get(join.side, known.copy())
            self.names.shared[name.name.casefold()] = merged
        if join.on is not None:
            if join.on.find(exp.Query):
                what = "a sub-query in ON"
                self.expressions.refuse(join.node, "E_SUBQUERY", what, "test it in WHERE")
            tests += [self.expressions.rewrite(test) for test in conjuncts(join.on)]
        texts = []
        for test in tests:
            self.expressions.chosen |= self.expressions.mentions_noise(test)
            pair = self.equality(test, number)
            if pair is not None:
                pairs.append(pair)
            text = sql_of(_qualified(test))
            texts.append(text if pair is not None else f"TRY(CAST({text} AS BOOLEAN))")
        return " AND ".join(texts) or "TRUE", pairs

    def equality(self, test: exp.Expr, number: int) -> tuple[ColumnPlace, ColumnPlace] | None:
        """The two columns, of earlier tables and of this one, that a test compares safely."""
        inner = test.unnest()
        if not isinstance(inner, exp.EQ):
            return None
        left, right = (place_of(side.unnest()) for side in (inner.this, inner.expression))
        if left is None or right is None:
            return None
        if left[0] == number:
            left, right = right, left
        if left[0] == number or right[0] != number:
            return None
        kinds = {self.kind(left), self.kind(right)}
        return (left, right) if len(kinds) == 1 or kinds <= _NUMBERS else None

    def kind(self, place: ColumnPlace) -> str:
        return self.sources[place[0]].table.traits[place[1]].kind


def _qualified(tree: exp.Expr) -> exp.Expr:
    """A condition over the tables of a join rather than over the layer above them."""
    out = exp.paren(tree.copy())
    for column in list(out.find_all(exp.Column)):
        place = place_of(column)
        if place is not None:
            column.replace(exp.column(f"c{place[1]}", f"a{place[0]}"))
    return out
