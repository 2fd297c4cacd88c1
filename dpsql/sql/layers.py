"""Slopes of expressions of the outer shell, by the noisy numbers they are computed from.

The tables hold noisy numbers, declared keys and public rows. An expression over them is NULL where
it fails, since no error may depend on noisy numbers after a charge: every expression stands in a
layer of its own around aggregates, windows and sub-queries, and is wrapped in TRY. Rows stay in
the order of the tables they come from, so that equal requests give equal results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.sql.bind import CLAUSES
from dpsql.sql.derivative import NoDerivative, smooth_gradient
from dpsql.sql.expressions import Expressions, name_of, total
from dpsql.sql.over_tables import GroupExpressions, TableExpressions, place_of
from dpsql.sql.query import Tail, filtered
from dpsql.sql.relations import Slope
from dpsql.sql.tables import Joins, Keys, Place
from dpsql.sql.whole import is_whole

_CLAUSES = CLAUSES | {"distinct", "with_"}

MAX_TESTS = 100_000_000
"""Most comparisons of IN with a sub-query."""


@dataclass(frozen=True, slots=True)
class Column:
    """A result column of a shell SELECT: its name, its SQL, the column it repeats, its slopes."""

    name: str
    sql: str
    noisy: bool
    source: Place | None = None
    whole: bool = False
    slopes: tuple[tuple[tuple[str, int, int], str], ...] = ()

    def traced(self, layered: Layered) -> tuple[Slope, ...]:
        """Its slopes, by origins of the SELECT."""
        return tuple(
            Slope(layered.origins.index((cell, select)), aggregate, sql == "1")
            for (cell, select, aggregate), sql in self.slopes
        )


@dataclass(frozen=True, slots=True)
class Layered:
    """A SELECT as SQL, its columns, a bound on its rows and what no two rows agree on.

    ``chosen`` says that noisy numbers decide which rows it has; ``origins`` are the columns that
    number cells, each with the select they are of.
    """

    sql: str
    columns: tuple[Column, ...]
    rows: int
    unique: tuple[frozenset[int], ...]
    chosen: bool
    origins: tuple[tuple[str, int], ...]


class Layers:
    """Puts the layers of one SELECT around its tables.

    ``rows`` are its expressions over the tables, ``top`` those over what HAVING is about.
    """

    def __init__(self, rows: TableExpressions) -> None:
        self.rows = rows
        self.top: Expressions = rows
        self.groups: GroupExpressions | None = None
        self.select = rows.select
        self.sources = rows.sources
        self.names = rows.names
        self.hoisted = rows.hoisted
        self.grouped = rows.grouped

    def build(self) -> Layered:
        """The SQL of the SELECT, its columns, a bound on its rows and its keys.

        Raises: ProgrammingError or NotSupportedError with a caret and a hint.
        """
        for key, value in self.select.args.items():
            if value and key not in _CLAUSES:
                self.rows.refuse(value, "E_STATEMENT", key.strip("_").upper())
        source = Joins(self.rows).join()
        rows = source.rows
        where = self.rows.test("where")
        if self.grouped:
            self.top = self.groups = GroupExpressions(self.rows)
        items = [column for item in self.select.expressions for column in self.items(item)]
        tail = self.top.tail(items)
        items = self.traced(items)
        body = self.layers(source.sql, where, items, tail)
        if rows * self.hoisted.listed > MAX_TESTS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"IN would compare {rows:,} rows with {self.hoisted.listed:,} values",
                hint="join the two tables instead",
                span=self.rows.locate(self.select),
            )
        if self.groups is not None:
            rows = rows if self.groups.keys else 1
            unique = self.groups.unique([item.sql for item in items])
        else:
            unique = _carried(source.unique, items)
        if tail.limit is not None:
            rows = min(rows, tail.limit)
        if self.select.args.get("distinct"):
            unique = (frozenset(range(len(items))),)
        if tail.cut:
            body = f"SELECT * FROM ({body}) ORDER BY i{tail.cut}"
        return Layered(body, tuple(items), rows, unique, self.chosen, origins_of(items))

    @property
    def chosen(self) -> bool:
        """Whether noisy numbers decide which rows there are."""
        return self.rows.chosen or self.top.chosen

    def traced(self, items: Sequence[Column]) -> list[Column]:
        """The columns with slopes only where no noisy number decides which rows there are."""
        distinct = bool(self.select.args.get("distinct"))
        self.top.chosen |= distinct and any(item.noisy for item in items)
        self.top.chosen |= self.groups is not None and any(self.groups.key_noise)
        if distinct or self.grouped or self.chosen:
            return [replace(item, slopes=()) for item in items]
        return list(items)

    def layers(self, source: str, where: str | None, items: Sequence[Column], tail: Tail) -> str:
        """The layers of the SELECT, from FROM outwards."""
        hoisted = "".join(
            f" CROSS JOIN ({sql}) AS t_{name}" for name, sql in self.hoisted.texts.items()
        )
        extra = "".join(
            f", {column}"
            for name in self.hoisted.texts
            for column in (name, *self.hoisted.traces_of(name))
        )
        columns = [f"a{number}.i AS i{number}" for number in range(max(1, len(self.sources)))]
        for number, each in enumerate(self.sources):
            for k, trait in enumerate(each.table.traits):
                columns.append(f"a{number}.c{k} AS x{number}_{k}")
                if trait.error:
                    columns.append(f"a{number}.e{k} AS y{number}_{k}")
            for name in each.table.traces() if any(item.slopes for item in items) else ():
                columns.append(f"a{number}.{name} AS {name[0]}{number}_{name[1:]}")
        text = filtered(f"(SELECT {', '.join(columns)}{extra} FROM {source}{hoisted})", where)
        places = [f"i{number}" for number in range(max(1, len(self.sources)))]
        if self.groups is not None:
            keys = [f"{sql} AS k{index}" for index, sql in enumerate(self.groups.keys)]
            sums = [f"{sql} AS g{index}" for index, sql in enumerate(self.groups.sums)]
            firsts = [f"min({place}) AS {place}" for place in places]
            by = ", ".join(str(index + 1) for index in range(len(keys)))
            text = f"SELECT {', '.join((*keys, *sums, *firsts))} FROM {text}"
            text = f"({text} GROUP BY {by})" if keys else f"({text})"
            if hoisted:
                text = f"(SELECT b.*{extra} FROM {text} AS b{hoisted})"
        elif tail.having is not None:
            self.rows.refuse(self.select.args["having"], "E_GROUP_BY", "HAVING without GROUP BY")
        return self.outer_layers(tail.over(text), items, tail.order, places)

    def outer_layers(
        self,
        text: str,
        items: Sequence[Column],
        order: Sequence[tuple[str, str]],
        places: Sequence[str],
    ) -> str:
        """Project, remove duplicates, and number the rows in their order."""
        outputs = [f"{item.sql} AS c{index}" for index, item in enumerate(items)]
        errors = [index for index, item in enumerate(items) if self.has_error(item)]
        distinct = bool(self.select.args.get("distinct"))
        for index in errors:
            place = items[index].source
            assert place is not None
            outputs.append(f"y{place[0]}_{place[1]} AS e{index}")
        slopes = {
            f"d{index}_{part}": f"TRY(CAST({sql} AS DOUBLE))"
            for index, item in enumerate(items)
            for part, (_, sql) in enumerate(item.slopes)
            if sql != "1"
        }
        slopes |= {f"r{m}": cell for m, (cell, _) in enumerate(origins_of(items))}
        outputs += [f"{sql} AS {name}" for name, sql in slopes.items()]
        outputs += [f"{sql} AS q{index}" for index, (sql, _) in enumerate(order)]
        text = f"SELECT {', '.join((*outputs, *places))} FROM {text}"
        kept = [f"c{index}" for index in range(len(items))]
        if distinct:
            if self.select.args["distinct"].args.get("on"):
                self.rows.refuse(self.select, "E_STATEMENT", "DISTINCT ON")
            other = [f"any_value({name}) AS {name}" for name in (f"e{i}" for i in errors)]
            other += [f"any_value(q{index}) AS q{index}" for index in range(len(order))]
            other += [f"min({place}) AS {place}" for place in places]
            text = f"SELECT {', '.join((*kept, *other))} FROM ({text}) GROUP BY {', '.join(kept)}"
        kept += [*(f"e{index}" for index in errors), *slopes]
        by = ", ".join((*(f"q{i} {how}" for i, (_, how) in enumerate(order)), *places))
        return f"SELECT {', '.join(kept)}, row_number() OVER (ORDER BY {by}) AS i FROM ({text})"

    def has_error(self, item: Column) -> bool:
        """Whether a column repeats one whose standard error is known."""
        if item.source is None or self.grouped or self.select.args.get("distinct"):
            return False
        table, column = item.source
        return self.sources[table].table.traits[column].error

    def items(self, item: exp.Expr) -> list[Column]:
        """The result columns of a select item."""
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            extra = [key for key, value in star.args.items() if value]
            if extra or self.grouped or not self.sources:
                what = f"* with {extra[0].strip('_').upper()}" if extra else "* with GROUP BY"
                self.rows.refuse(item, "E_STATEMENT", what, "list the columns")
            return [self.output(each.name, each.value) for each in self.names.star(item)]
        return [self.output(name_of(item), self.top.rewrite(item.unalias()))]

    def output(self, name: str, tree: exp.Expr) -> Column:
        place = place_of(tree.unnest())
        noisy = self.top.mentions_noise(tree)
        slopes: Influences = slopes_over(self.rows, tree) if noisy and not self.grouped else {}
        source = None if self.grouped else place
        return Column(name, total(tree), noisy, source, is_whole(tree), tuple(slopes.items()))


def origins_of(items: Sequence[Column]) -> tuple[tuple[str, int], ...]:
    """The columns that number the cells that slopes are of, each with its select."""
    keys = [key for item in items for key, _ in item.slopes]
    return tuple(dict.fromkeys((cell, select) for cell, select, _ in keys))


def _carried(unique: Keys, items: Sequence[Column]) -> tuple[frozenset[int], ...]:
    """The keys all of whose columns are among the result columns."""
    where = {item.source: index for index, item in enumerate(items) if item.source is not None}
    return tuple(frozenset(where[place] for place in keys) for keys in unique if keys <= set(where))


MAX_SLOPES = 16
"""Most noisy numbers that the standard error of a column is followed through."""

MAX_TEXT = 20_000
"""Longest SQL of the slopes of a column."""

NUMBERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL"}

Influences = dict[tuple[str, int, int], str]
"""Slopes as SQL by the column that numbers cells, the select and the aggregate."""


def slopes_over(rows: TableExpressions, tree: exp.Expr) -> Influences:
    """The slopes of smooth arithmetic over noisy numbers; nothing where it is anything else."""

    def leaf(column: exp.Column) -> Influences:
        name, place = column.name, place_of(column)
        if place is not None:
            number, index = place
            table = rows.sources[number].table
            slope, cell = f"d{number}_{index}_", f"r{number}_"
        elif name in rows.hoisted.scalars:
            table, index = rows.hoisted.scalars[name], 0
            slope, cell = f"{name}_d0_", f"{name}_r"
        else:
            raise NoDerivative
        trait = table.traits[index]
        if trait.kind.split("(")[0] not in NUMBERS or (trait.noisy and not trait.slopes):
            raise NoDerivative
        return {
            (f"{cell}{each.origin}", table.origins[each.origin], each.aggregate): (
                "1" if each.one else f"{slope}{part}"
            )
            for part, each in enumerate(trait.slopes)
        }

    try:
        found = smooth_gradient(tree, leaf)
    except NoDerivative:
        return {}
    short = len(found) <= MAX_SLOPES and sum(map(len, found.values())) <= MAX_TEXT
    return found if short else {}
