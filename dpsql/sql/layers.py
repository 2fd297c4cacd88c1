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

from dpsql.errors import ProgrammingError, printable
from dpsql.sql.bind import CLAUSES
from dpsql.sql.derivative import NoDerivative, smooth_gradient
from dpsql.sql.expressions import Expressions, place_of, sql_of, total
from dpsql.sql.inline import default_name
from dpsql.sql.outer import row_count
from dpsql.sql.relations import Slope, find_alias
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
    """Puts the layers of one SELECT around its tables."""

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self.select = expressions.select
        self.sources = expressions.sources
        self.names = expressions.names
        self.locate = expressions.locate
        self.grouped = expressions.grouped

    def build(self) -> Layered:
        """The SQL of the SELECT, its columns, a bound on its rows and its keys.

        Raises: ProgrammingError or NotSupportedError with a caret and a hint.
        """
        for key, value in self.select.args.items():
            if value and key not in _CLAUSES:
                self.expressions.refuse(value, "E_STATEMENT", key.strip("_").upper())
        source = Joins(self.expressions).join()
        rows = source.rows
        where = self.test("where")
        self.expressions.find_groups()
        items = [column for item in self.select.expressions for column in self.items(item)]
        having, qualify = self.test("having"), self.test("qualify")
        limit, offset = (
            row_count(self.select, "limit", self.locate),
            row_count(self.select, "offset", self.locate) or 0,
        )
        order = self.order(items, cut=limit is not None or offset > 0)
        items = self.traced(items)
        body = self.layers(source.sql, where, having, items, qualify, order)
        if rows * self.expressions.listed > MAX_TESTS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"IN would compare {rows:,} rows with {self.expressions.listed:,} values",
                hint="join the two tables instead",
                span=self.locate(self.select),
            )
        if self.grouped:
            rows = rows if self.expressions.groups else 1
            unique = self.grouped_unique(items)
        else:
            unique = _carried(source.unique, items)
        if limit is not None:
            rows = min(rows, limit)
        if self.select.args.get("distinct"):
            unique = (frozenset(range(len(items))),)
        end = "" if limit is None else f" LIMIT {limit}"
        end += f" OFFSET {offset}" if offset else ""
        if end:
            body = f"SELECT * FROM ({body}) ORDER BY i{end}"
        return Layered(body, tuple(items), rows, unique, self.expressions.chosen, origins_of(items))

    def traced(self, items: Sequence[Column]) -> list[Column]:
        """The columns with slopes only where no noisy number decides which rows there are."""
        distinct = bool(self.select.args.get("distinct"))
        if distinct or self.grouped:
            noisy = any(item.noisy for item in items) if distinct else False
            self.expressions.chosen |= noisy or any(self.expressions.group_noise)
        if distinct or self.grouped or self.expressions.chosen:
            return [replace(item, slopes=()) for item in items]
        return list(items)

    def layers(
        self,
        source: str,
        where: str | None,
        having: str | None,
        items: Sequence[Column],
        qualify: str | None,
        order: Sequence[tuple[str, str]],
    ) -> str:
        """The layers of the SELECT, from FROM outwards."""
        hoisted = "".join(
            f" CROSS JOIN ({sql}) AS t_{name}" for name, sql in self.expressions.hoisted.items()
        )
        extra = "".join(
            f", {column}"
            for name in self.expressions.hoisted
            for column in (name, *self.expressions.traces_of(name))
        )
        columns = [f"a{number}.i AS i{number}" for number in range(max(1, len(self.sources)))]
        for number, each in enumerate(self.sources):
            for k, trait in enumerate(each.table.traits):
                columns.append(f"a{number}.c{k} AS x{number}_{k}")
                if trait.error:
                    columns.append(f"a{number}.e{k} AS y{number}_{k}")
            for name in each.table.traces() if any(item.slopes for item in items) else ():
                columns.append(f"a{number}.{name} AS {name[0]}{number}_{name[1:]}")
        text = f"SELECT {', '.join(columns)}{extra} FROM {source}{hoisted}"
        text = _filtered(text, where)
        places = [f"i{number}" for number in range(max(1, len(self.sources)))]
        if self.grouped:
            keys = [f"{sql} AS k{index}" for index, sql in enumerate(self.expressions.groups)]
            sums = [f"{sql} AS g{index}" for index, sql in enumerate(self.expressions.sums)]
            firsts = [f"min({place}) AS {place}" for place in places]
            by = ", ".join(str(index + 1) for index in range(len(keys)))
            text = f"SELECT {', '.join((*keys, *sums, *firsts))} FROM ({text})"
            text += f" GROUP BY {by}" if keys else ""
            if hoisted:
                text = f"SELECT b.*{extra} FROM ({text}) AS b{hoisted}"
            text = _filtered(text, having)
        elif having is not None:
            self.expressions.refuse(
                self.select.args["having"], "E_GROUP_BY", "HAVING without GROUP BY"
            )
        if self.expressions.windows:
            found = ", ".join(
                f"{sql} AS w{index}" for index, sql in enumerate(self.expressions.windows)
            )
            text = f"SELECT *, {found} FROM ({text})"
        text = _filtered(text, qualify)
        return self.outer_layers(text, items, order, places)

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
        text = f"SELECT {', '.join((*outputs, *places))} FROM ({text})"
        kept = [f"c{index}" for index in range(len(items))]
        if distinct:
            if self.select.args["distinct"].args.get("on"):
                self.expressions.refuse(self.select, "E_STATEMENT", "DISTINCT ON")
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
                self.expressions.refuse(item, "E_STATEMENT", what, "list the columns")
            return [self.output(each.name, each.value) for each in self.names.star(item)]
        inner = item.unalias()
        name = item.alias if isinstance(item, exp.Alias) else default_name(inner)
        return [self.output(name, self.expressions.rewrite(inner, self.grouped))]

    def output(self, name: str, tree: exp.Expr) -> Column:
        place = place_of(tree.unnest())
        noisy = self.expressions.mentions_noise(tree)
        slopes: Influences = (
            slopes_over(self.expressions, tree) if noisy and not self.grouped else {}
        )
        source = None if self.grouped else place
        return Column(name, total(tree), noisy, source, is_whole(tree), tuple(slopes.items()))

    def grouped_unique(self, items: Sequence[Column]) -> tuple[frozenset[int], ...]:
        keys = {f"k{index}" for index in range(len(self.expressions.groups))}
        found = {item.sql: index for index, item in enumerate(items) if item.sql in keys}
        return (frozenset(found.values()),) if set(found) == keys else ()

    def test(self, clause: str) -> str | None:
        """WHERE, HAVING or QUALIFY as a test that is never an error."""
        node = self.select.args.get(clause)
        if node is None:
            return None
        grouped = self.grouped and clause != "where"
        tree = self.expressions.rewrite(node.this, grouped, aliases=clause != "where")
        if clause != "qualify" and any(_is_layer(c.name, "w") for c in tree.find_all(exp.Column)):
            self.expressions.refuse(
                node, "E_WINDOW", f"a window in {clause.upper()}", "QUALIFY tests windows"
            )
        self.expressions.chosen |= self.expressions.mentions_noise(tree)
        return f"TRY(CAST({sql_of(tree)} AS BOOLEAN))"

    def order(self, items: Sequence[Column], cut: bool) -> list[tuple[str, str]]:
        """The expressions of ORDER BY with their directions; ``cut`` says that LIMIT follows.

        Positions are those of the result columns, after ``*`` is written out.
        """
        order = self.select.args.get("order")
        out = []
        for item in order.expressions if order is not None else []:
            node = item.this
            if item.args.get("with_fill") or isinstance(node, exp.Var):
                self.expressions.refuse(
                    item, "E_ORDER_BY", f"ORDER BY {printable(node.name)}", "ORDER BY 1"
                )
            if isinstance(node, exp.Literal) and not node.is_string:
                column = self.column_at(items, node)
                text, noisy = column.sql, column.noisy
            else:
                tree = self.expressions.rewrite(self.named(node), self.grouped, aliases=True)
                text, noisy = total(tree), self.expressions.mentions_noise(tree)
            self.expressions.chosen |= cut and noisy
            nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
            how = f"{'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}"
            out.append((text, how))
        return out

    def column_at(self, items: Sequence[Column], node: exp.Expr) -> Column:
        position = int(node.name) if node.name.isdigit() else 0
        if not 1 <= position <= len(items):
            raise ProgrammingError(
                "E_ORDER_BY",
                f"ORDER BY {node.name}: there are {len(items)} columns",
                hint=f"write a name, or a position from 1 to {len(items)}",
                span=self.locate(node),
            )
        return items[position - 1]

    def named(self, node: exp.Expr) -> exp.Expr:
        """In ORDER BY the alias of a select item comes before a column of that name."""
        found = find_alias(self.select.expressions, node) if isinstance(node, exp.Column) else None
        return node if found is None else found


def origins_of(items: Sequence[Column]) -> tuple[tuple[str, int], ...]:
    """The columns that number the cells that slopes are of, each with its select."""
    keys = [key for item in items for key, _ in item.slopes]
    return tuple(dict.fromkeys((cell, select) for cell, select, _ in keys))


def _filtered(text: str, test: str | None) -> str:
    return text if test is None else f"SELECT * FROM ({text}) WHERE {test}"


def _is_layer(name: str, letter: str) -> bool:
    return name.startswith(letter) and name[1:].isdigit()


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


def slopes_over(expressions: Expressions, tree: exp.Expr) -> Influences:
    """The slopes of smooth arithmetic over noisy numbers; nothing where it is anything else."""

    def leaf(column: exp.Column) -> Influences:
        name, place = column.name, place_of(column)
        if place is not None:
            number, index = place
            table = expressions.sources[number].table
            slope, cell = f"d{number}_{index}_", f"r{number}_"
        elif name in expressions.scalars:
            table, index = expressions.scalars[name], 0
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
