"""Public rows that are joined to private ones by unique keys, as columns of the private rows.

``FROM sales JOIN items ON sales.item = items.id`` gives a sale what its item is: a function of one
cell of the sale. Where no two public rows share the key, the join adds no rows, and a sale without
an item is left out, or with LEFT JOIN has NULL there. So such rows can be joined to others of their
unit, be part of a union, or be summed up by unit.

In a SELECT by unit a row may also meet several public rows, or without a condition all of them: it
is there once for each, and so a unit has so many times its rows at most.

Guarantee: every copy of a row is of the row's own unit, and rows are bounded per unit after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.catalog import Column, PublicRows
from dpsql.catalog.domain import IntegerRange
from dpsql.errors import Error
from dpsql.logical.functions import conjuncts
from dpsql.records import dataclass, field, replace
from dpsql.relation.unit_local import Among, FilterRows, MapRows, UnionRows, UnitLocal
from dpsql.sql.cells.cell_columns import column_of_values, mapped, plain, tells_values
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.relations import Field, PrivateRows, column_of, common_type, read_literal, rows_of
from dpsql.sql.shell.language import locate
from dpsql.sql.shell.whole_numbers import INTEGERS
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.local_tables import named_source, relation_of, table_of

Place = tuple[str, str]
"""The case-folded alias of public rows, and the case-folded name of a column of theirs."""
_KINDS = {"text": {"VARCHAR"}, "integer": set(INTEGERS), "date": {"DATE"}, "boolean": {"BOOLEAN"}}

MOST_MET = 100
"""Most public rows that one private row is there for."""


class _NoLookupError(Exception):
    """A join that is no such lookup, and is left as it is."""


@dataclass(slots=True)
class _Lookups:
    """Makes columns of the public rows that are joined to the rows of one private table.

    ``tests`` are the conditions on all of them, flat; ``made`` are the columns of the private rows
    that columns of public ones have become. Where rows may meet ``several``, each is there up to
    ``times`` times.
    """

    source: exp.Table
    tests: list[exp.Expr]
    used: set[Place]
    statement: Statement
    compiler: Compiler
    public: PublicRows
    several: bool = False
    times: int = 1
    made: dict[Place, exp.Column] = field(default_factory=dict)
    table: Table = field(init=False)
    relation: UnitLocal = field(init=False)
    columns: dict[str, Column] = field(init=False)

    def __post_init__(self) -> None:
        self.table = self.compiler.catalog.find(self.source.name.casefold())
        self.relation = relation_of(self.table)
        self.columns = dict(self.table.columns)

    @property
    def alias(self) -> str:
        """The alias of the private rows."""
        return self.source.alias_or_name

    def join(self, joins: Sequence[exp.Join]) -> None:
        """Look up all public rows, those first that others are looked up by."""
        waiting = list(joins)
        while waiting:
            found = next((each for each in waiting if self.add(each)), None)
            if found is None and self.several:
                found = next((each for each in waiting if self.cross(each)), None)
            if found is None:
                raise _NoLookupError
            waiting.remove(found)

    def add(self, join: exp.Join) -> bool:
        """Look up the rows of one join, if what they are looked up by is there already."""
        alias, keeps = join.this.alias_or_name.casefold(), join.args.get("side") == "LEFT"
        on = join.args.get("on")
        own = [] if on is None else conjuncts(on)
        links = [(test, link) for test in own if (link := self.link(test, alias)) is not None]
        if keeps and len(own) != 1:
            raise _NoLookupError
        if not keeps:
            links += [(t, link) for t in self.tests if (link := self.link(t, alias)) is not None]
        known = [
            (test, name, self.met(join, key, self.columns[name])) for test, (key, name) in links
        ]
        told = [(test, name, met) for test, name, met in known if met is not None]
        if not told:
            return False
        test, name, met = min(told, key=lambda each: max(map(len, each[2])))
        if any(len(each) > 1 for each in met):
            self.meet(join, (name,), met, keeps)
        else:
            self.look(join, name, [each[0] if each else None for each in met], keeps)
        kept = [*self.tests, *([] if keeps else own)]
        self.tests = [each for each in kept if each is not test]
        return True

    def cross(self, join: exp.Join) -> bool:
        """Let every row meet all rows of a join, of which nothing is told by one of its columns."""
        rows = self.rows(join)
        count = max((len(values) for _, values in rows.values()), default=0)
        if join.args.get("side") or not count:
            return False
        alias, on = join.this.alias_or_name.casefold(), join.args.get("on")
        own = [] if on is None else conjuncts(on)
        if any(self.link(test, alias) is not None for test in [*own, *self.tests]):
            return False
        self.tests = [*self.tests, *own]
        self.meet(join, (), [list(range(count))], False)
        return True

    def meet(
        self, join: exp.Join, of: tuple[str, ...], met: Sequence[Sequence[int]], keeps: bool
    ) -> None:
        """Repeat rows for each public row that they meet, and let them have its columns.

        ``met`` are the numbers for each cell of the column ``of``, if there is one.
        """
        times = max(map(len, met), default=0)
        if not 0 < times * self.times <= MOST_MET:
            raise _NoLookupError
        self.times *= times
        name = self.fresh(f"row of {join.this.alias_or_name}")
        top = max(number for each in met for number in each)
        column = Column(name, "integer", IntegerRange(0, top), null=True)
        parts: list[UnitLocal] = []
        for turn in range(times):
            numbers = [each[turn] if turn < len(each) else None for each in met]
            part: UnitLocal = replace(mapped(column, of, numbers), rows=self.relation)
            if None in numbers and not (keeps and turn == 0):
                cells = np.array([number is not None for number in numbers], np.uint8)
                part = FilterRows(part, Among(of, cells.tobytes()))
            parts.append(part)
        self.relation = UnionRows(tuple(parts)) if len(parts) > 1 else parts[0]
        self.columns[name.casefold()] = column
        places = [cell if isinstance(cell, int) else None for cell in column.cells]
        self.look(join, name.casefold(), places, keeps=True)

    def fresh(self, name: str) -> str:
        """A name that no column has."""
        while name.casefold() in self.columns:
            name = f"{name} 2"
        return name

    def link(self, test: exp.Expr, alias: str) -> tuple[str, str] | None:
        """The key of public rows, and the column of the private ones, that a condition equates."""
        inner = test.unnest()
        sides = (
            (inner.this.unnest(), inner.expression.unnest()) if isinstance(inner, exp.EQ) else ()
        )
        for key, other in (sides, sides[::-1]) if sides else ():
            if isinstance(key, exp.Column) and isinstance(other, exp.Column):
                place = (other.table.casefold(), other.name.casefold())
                told = self.made.get(place, other)
                is_own = told.table.casefold() == self.alias.casefold()
                name = told.name.casefold()
                if key.table.casefold() == alias and is_own and name in self.columns:
                    return key.name.casefold(), name
        return None

    def rows(self, join: exp.Join) -> dict[str, tuple[str, Sequence[Any]]]:
        """The public rows of a join: case-folded column names to DuckDB types and values."""
        if isinstance(join.this, exp.Values):
            names = [each.name for each in join.this.args["alias"].args.get("columns") or ()]
            listed = [[read_literal(each, _refuse) for each in row] for row in rows_of(join.this)]
            values = zip(names, zip(*listed, strict=True), strict=True)
            return {name.casefold(): (common_type(each), each) for name, each in values}
        found = self.public(self.compiler.catalog.find(join.this.name.casefold()))
        return {name.casefold(): each for name, each in found.items()}

    def met(self, join: exp.Join, key: str, column: Column) -> list[list[int]] | None:
        """The public rows for each cell of a column; None where they are not known, or too many."""
        kind, values = self.rows(join).get(key, ("", ()))
        if not tells_values(column) or kind not in _KINDS.get(column.type, ()):
            return None
        found: dict[Any, list[int]] = {}
        for place, value in enumerate(values):
            if value is not None:
                found.setdefault(plain(value), []).append(place)
        if not self.several and any(len(places) > 1 for places in found.values()):
            return None
        return [found.get(plain(value), []) for value in column.cells]

    def look(self, join: exp.Join, of: str, places: Sequence[int | None], keeps: bool) -> None:
        """Let the rows have the columns of public rows that are used."""
        alias = join.this.alias_or_name.casefold()
        rows = self.rows(join)
        if not keeps and None in places:
            cells = np.array([place is not None for place in places], np.uint8)
            self.relation = FilterRows(self.relation, Among((of,), cells.tobytes()))
        for name in sorted(name for owner, name in self.used if owner == alias):
            kind, values = rows[name]
            looked = [None if place is None else plain(values[place]) for place in places]
            fresh = self.fresh(f"{join.this.alias_or_name}.{name}")
            column = column_of_values(fresh, kind, looked)
            if column is None:
                raise _NoLookupError
            found: MapRows = mapped(column, (of,), looked)
            self.relation = replace(found, rows=self.relation)
            self.columns[fresh.casefold()] = column
            self.made[alias, name] = column_of(fresh, self.alias)

    def written(self, node: exp.Expr) -> exp.Expr:
        """A flat expression over the private rows alone."""

        def over(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column):
                return part
            made = self.made.get((part.table.casefold(), part.name.casefold()))
            if made is None:
                return part
            copy = made.copy()
            copy.meta.update(part.meta)
            return copy

        return node.copy().transform(over, copy=False)

    def source_of_all(self, node: exp.Expr) -> exp.Table:
        """The private rows with these columns, in FROM."""
        label, most = self.table.name.split(" #")[0], self.table.unit.max_rows * self.times
        span = locate(node, self.statement.fragment)
        table = table_of(self.compiler.catalog, self.relation, label, most, span)
        return named_source(table.name, self.alias)


def _refuse(node: exp.Expr) -> Any:
    raise _NoLookupError


def _used(nodes: Iterable[exp.Expr], joins: Sequence[exp.Join]) -> set[Place]:
    """The columns of joined public rows that flat expressions mention."""
    aliases = {join.this.alias_or_name.casefold() for join in joins}
    columns = [each for node in nodes for each in node.find_all(exp.Column)]
    places = {(each.table.casefold(), each.name.casefold()) for each in columns}
    return {place for place in places if place[0] in aliases}


def without_public(
    rows: PrivateRows,
    node: exp.Expr,
    statement: Statement,
    compiler: Compiler,
    public: PublicRows,
    several: bool = False,
) -> PrivateRows:
    """Private rows whose public ones are columns of theirs, where these are looked up by keys.

    Where a row may meet ``several`` it is there for each.
    """
    table = compiler.catalog.find(rows.source.name.casefold())
    if not rows.joins or table.unit.column is None or table.synthetic:
        return rows
    tests = [test.copy() for test in rows.where]
    ons = [join.args["on"] for join in rows.joins if join.args.get("on") is not None]
    used = _used([*tests, *ons, *(each.value for each in rows.fields)], rows.joins)
    lookups = _Lookups(rows.source, tests, used, statement, compiler, public, several)
    try:
        lookups.join(rows.joins)
    except (_NoLookupError, Error):
        return rows
    fields = tuple(replace(each, value=lookups.written(each.value)) for each in rows.fields)
    where = tuple(lookups.written(test) for test in lookups.tests)
    source = lookups.source_of_all(node)
    return PrivateRows(source, (), where, fields, rows.names)


def _outside_from(select: exp.Select) -> Iterator[exp.Column]:
    """The columns of a SELECT but for those within the sub-queries of its FROM."""
    for column in select.find_all(exp.Column):
        inner = column.find_ancestor(exp.Query)
        while inner is not None and inner is not select:
            if isinstance(inner.parent, exp.From | exp.Join):
                break
            inner = inner.find_ancestor(exp.Query)
        if inner is select:
            yield column


def flat_without_public(
    flat: FlatFrom, select: exp.Select, statement: Statement, compiler: Compiler, public: PublicRows
) -> exp.Select:
    """The SELECT over such rows, which ``flat`` is of from then on; else the SELECT as it was."""
    if any(isinstance(each, exp.Star) or each.is_star for each in select.expressions):
        return select
    fields: dict[exp.Expr, exp.Expr] = {}
    for column in _outside_from(select):
        try:
            found = flat.names.find(column)
        except Error:
            return select
        if found is not None:
            fields[found] = found
    named = tuple(Field(str(k), each) for k, each in enumerate(fields))
    joins, where = tuple(flat.joins), tuple(flat.filters(select))
    before = PrivateRows(flat.rows.source, joins, where, named, frozenset(flat.used))
    after = without_public(before, select, statement, compiler, public, several=True)
    if after is before:
        return select
    values = {old.value: new.value for old, new in zip(named, after.fields, strict=True)}
    flat.names.sources = [
        (alias, tuple(replace(each, value=values.get(each.value, each.value)) for each in known))
        for alias, known in flat.names.sources
    ]
    flat.names.shared = {name: values.get(v, v) for name, v in flat.names.shared.items()}
    flat.rows = replace(flat.rows, source=after.source, joins=(), plain=False)
    flat.joins, flat.where = [], list(after.where)
    copy = select.copy()
    copy.set("where", None)
    return copy
