"""A SELECT over tables of the shell -> its layers, from FROM outwards.

The tables hold noisy numbers, declared keys and public rows. An expression over them is NULL where
it fails, since no error may depend on noisy numbers after a charge: every expression stands in a
layer of its own around aggregates, windows and sub-queries, and is wrapped in TRY. Rows stay in
the order of the tables they come from, so that equal requests give equal results.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.records import replace
from dpsql.sql.bind import CLAUSES
from dpsql.sql.query import Output, Tail, filtered
from dpsql.sql.relations import ShellTable
from dpsql.sql.rewrites.star_items import of_star
from dpsql.sql.shell.expressions import Expressions, name_of, total
from dpsql.sql.shell.over_groups import GroupExpressions
from dpsql.sql.shell.over_tables import TableExpressions, place_of
from dpsql.sql.shell.table_joins import ColumnSets, From, Joins
from dpsql.sql.shell.tables import traits_of
from dpsql.sql.shell.whole_numbers import is_integer, rounded
from dpsql.sql.units.ranked_rows import ranked

_CLAUSES = CLAUSES | {"distinct", "with_"}
_REFUSED = {"windows": ("E_WINDOW", "a window that is named twice")}

FEW = 1_000
"""Rows of which it is not asked whether there are fewer groups."""
MAX_TESTS = 100_000_000
"""Most comparisons of IN with a sub-query."""


class Layers:
    """Puts the layers of one SELECT around its tables.

    ``rows`` are its expressions over the tables, ``top`` those over what HAVING is about.
    ``ranks_absent`` says, once it is built, that groups without rows may take places of others.
    """

    def __init__(self, rows: TableExpressions) -> None:
        self.rows = rows
        self.top: Expressions = rows
        self.groups: GroupExpressions | None = None
        self.select = rows.select
        self.sources = rows.sources
        self.names = rows.names
        self.hoisted = rows.hoisted
        self.distinct = bool(rows.select.args.get("distinct"))
        self.ranks_absent = False

    def build(self, name: str) -> tuple[str, ShellTable]:
        """The SQL of the SELECT as a table called ``name``.

        Raises: ProgrammingError or NotSupportedError with a caret and a hint.
        """
        for key, value in self.select.args.items():
            if value and key not in _CLAUSES:
                code, what = _REFUSED.get(key, ("E_STATEMENT", key.strip("_").upper()))
                self.rows.refuse(value, code, what)
        joins = Joins(self.rows)
        source = joins.join()
        self.rows.select = joins.rest(self.select)
        rows = source.rows
        where = self.rows.test("where")
        if self.rows.grouped:
            self.top = self.groups = GroupExpressions(self.rows)
        items = [column for item in self.select.expressions for column in self.items(item)]
        complete = not self.chosen and not self.select.args.get("having")
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
        agreeing = partial(self.agreeing, items, source)
        if self.groups is not None:
            rows = sum(min(rows, self.most(each, source)) for each in self.groups.sets)
            unique = self.groups.unique([item.sql for item in items])
        else:
            unique = _carried(source.unique, items)
        self.ranks_absent = complete and self.has_groups and tail.places(rows)
        unique += ranked(self.select) if len(items) == len(self.select.expressions) else ()
        if tail.limit is not None:
            rows = min(rows, tail.limit)
        if self.distinct:
            unique = (frozenset(range(len(items))),)
        if tail.cut:
            body = f"SELECT * FROM ({body}) ORDER BY i{tail.cut}"
        origins = origins_of(items)
        selects = tuple(select for _, select in origins)
        traits = traits_of(items, origins)
        private = self.hoisted.private
        listed = partial(self.listed, items, source)
        facts = (private, unique, self.chosen, selects, listed, agreeing)
        return body, ShellTable(name, traits, rows, *facts)

    def most(self, keys: Sequence[int], source: From) -> int:
        """At most how many groups one grouping set has."""
        if not keys or source.bound is None or source.rows <= FEW:
            return source.rows if keys else 1
        assert self.groups is not None
        return source.bound.most(wanted=_places(self.groups.keys[key] for key in keys))

    def agreeing(
        self,
        items: Sequence[Output],
        source: From,
        known: frozenset[int],
        wanted: frozenset[int] | None,
    ) -> int:
        """At most how many rows agree on result columns; of ``wanted``, how many combinations."""
        groups, bound = self.groups, source.bound
        if bound is None or (groups is not None and len(groups.sets) > 1):
            return sys.maxsize
        keys = {} if groups is None else {f"k{k}": sql for k, sql in enumerate(groups.keys)}
        texts = [keys.get(item.sql, item.sql) for item in items]
        told = {each for k in known for each in _places([texts[k]]) if _name(each) == texts[k]}
        asked = None if wanted is None else [items[k].sql for k in wanted]
        if groups is not None and (asked is None or not all(each in keys for each in asked)):
            asked = list(keys)
        if asked is None:
            return bound.most(frozenset(told))
        shown = [keys.get(each, each) for each in asked]
        if groups is None and not all(_of_rows(each) for each in shown):
            return bound.most(frozenset(told))
        return bound.most(frozenset(told), _places(shown))

    def listed(self, items: Sequence[Output], source: From) -> dict[int, Sequence[Any]]:
        """Values of the result columns that a table tells, each row of which counts once."""
        keys = self.groups.keys if self.groups is not None else []
        shown = {f"k{index}": sql for index, sql in enumerate(keys)}
        named = [shown.get(item.sql, item.sql) for item in items]
        for number in source.once:
            table = {(number, k): v for k, v in self.sources[number].table.listed().items()}
            table |= {column: table[by] for column, by in source.told if by in table}
            values = {f"x{place}_{k}": column for (place, k), column in table.items()}
            found = {index: values[sql] for index, sql in enumerate(named) if sql in values}
            if found:
                return found
        return {}

    @property
    def has_groups(self) -> bool:
        """True where a table may have groups that no private row is in."""
        return any(each.table.private and each.table.rows > 1 for each in self.sources)

    @property
    def chosen(self) -> bool:
        """True if noisy numbers decide which rows there are."""
        return self.rows.chosen or self.top.chosen

    def traced(self, items: Sequence[Output]) -> list[Output]:
        """The columns with slopes only where no noisy number decides which rows there are."""
        self.top.chosen |= self.distinct and any(item.noisy for item in items)
        self.top.chosen |= self.groups is not None and any(self.groups.key_noise)
        if self.chosen:
            return [replace(item, slopes=()) for item in items]
        return list(items)

    def layers(self, source: str, where: str | None, items: Sequence[Output], tail: Tail) -> str:
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
            if len(self.groups.sets) > 1:  # those that leave out more come after
                firsts.append(f"grouping({', '.join(self.groups.keys)}) AS j")
                places = [*places, "j"]
            text = (
                f"(SELECT {', '.join((*keys, *sums, *firsts))} FROM {text}{self.groups.clause()})"
            )
            if hoisted:
                text = f"(SELECT b.*{extra} FROM {text} AS b{hoisted})"
        elif tail.having is not None:
            self.rows.refuse(self.select.args["having"], "E_GROUP_BY", "HAVING without GROUP BY")
        return self.outer_layers(tail.over(text), items, tail.order, places)

    def outer_layers(
        self,
        text: str,
        items: Sequence[Output],
        order: Sequence[tuple[str, str]],
        places: Sequence[str],
    ) -> str:
        """Project, remove duplicates, and number the rows in their order."""
        outputs = [f"{item.sql} AS c{index}" for index, item in enumerate(items)]
        errors = {f"e{i}": item.stddev for i, item in enumerate(items) if item.stddev is not None}
        slopes = {
            f"d{index}_{part}": f"TRY(CAST({sql} AS DOUBLE))"
            for index, item in enumerate(items)
            for part, (_, sql) in enumerate(item.slopes)
            if sql != "1"
        }
        slopes |= {f"r{m}": cell for m, (cell, _) in enumerate(origins_of(items))}
        outputs += [f"{sql} AS {name}" for name, sql in (errors | slopes).items()]
        outputs += [f"{sql} AS q{index}" for index, (sql, _) in enumerate(order)]
        text = f"SELECT {', '.join((*outputs, *places))} FROM {text}"
        kept = [f"c{index}" for index in range(len(items))]
        if self.distinct:
            if self.select.args["distinct"].args.get("on"):
                self.rows.refuse(self.select, "E_STATEMENT", "DISTINCT ON")
            other = [f"any_value(q{index}) AS q{index}" for index in range(len(order))]
            other += [f"min({place}) AS {place}" for place in places]
            text = f"SELECT {', '.join((*kept, *other))} FROM ({text}) GROUP BY {', '.join(kept)}"
        kept += [*errors, *slopes]
        by = ", ".join((*(f"q{i} {how}" for i, (_, how) in enumerate(order)), *places))
        return f"SELECT {', '.join(kept)}, row_number() OVER (ORDER BY {by}) AS i FROM ({text})"

    def items(self, item: exp.Expr) -> list[Output]:
        """The result columns of a select item."""
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            if self.groups or not self.sources:
                self.rows.refuse(item, "E_STATEMENT", "* with GROUP BY", "list the columns")
            found = of_star(star, self.names.star(item), self.top.rewrite, self.rows.locate)
            return [self.output(each.name, each.value) for each in found]
        return [self.output(name_of(item), self.top.rewrite(item.unalias()))]

    def output(self, name: str, tree: exp.Expr) -> Output:
        """A result column; its standard error is known where it repeats one that has one."""
        only, noisy = tree.unnest(), self.top.mentions_noise(tree)
        only = rounded(only) if self.distinct else only
        traced = not (self.groups or self.distinct)
        place = place_of(only) if traced else None
        known = place is not None and self.sources[place[0]].table.traits[place[1]].error
        return Output(
            name,
            total(only),
            f"y{place[0]}_{place[1]}" if place is not None and known else None,
            noisy,
            slopes=tuple(self.rows.slopes(tree).items()) if noisy and traced else (),
            whole=is_integer(tree),
        )


_PLACE = re.compile(r"\bx([0-9]+)_([0-9]+)\b")
"""A column of a table in FROM, as layers name it."""


def _places(texts: Iterable[str]) -> frozenset[tuple[int, int]]:
    """The columns of the tables that SQL mentions."""
    found = (each for text in texts for each in _PLACE.findall(text))
    return frozenset((int(number), int(column)) for number, column in found)


def _name(place: tuple[int, int]) -> str:
    return f"x{place[0]}_{place[1]}"


def _of_rows(text: str) -> bool:
    """True if SQL is a column of the tables as it is."""
    return _PLACE.fullmatch(text) is not None


def origins_of(items: Sequence[Output]) -> tuple[tuple[str, int], ...]:
    """The columns that number the cells that slopes are of, each with its select."""
    keys = [key for item in items for key, _ in item.slopes]
    return tuple(dict.fromkeys((cell, select) for cell, select, _ in keys))


def _carried(unique: ColumnSets, items: Sequence[Output]) -> tuple[frozenset[int], ...]:
    """The keys all of whose columns are among the result columns."""
    where = {item.sql: index for index, item in enumerate(items)}
    named = [{f"x{table}_{column}" for table, column in keys} for keys in unique]
    return tuple(frozenset(where[name] for name in keys) for keys in named if keys <= where.keys())
