"""SELECTs over rows of a private table inside one another -> one flat SELECT over that table.

Columns of an inner SELECT are replaced by the expressions they stand for, and its conditions are
added to those of the outer one, so that a view or a CTE that only projects, filters or computes
compiles exactly like the statement written without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.logical.functions import conjuncts, has
from dpsql.records import dataclass
from dpsql.sql.names import Names, find_alias, has_name
from dpsql.sql.public.public_joins import INSTEAD
from dpsql.sql.public.public_subqueries import PublicSubqueries
from dpsql.sql.relations import (
    WHOLE,
    Field,
    FromElement,
    Join,
    PrivateRows,
    column_of,
    renamed_fields,
)
from dpsql.sql.rewrites.star_items import of_star
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.shell.language import KEPT_ROWS, KEPT_SIDES, Locate, over_parts, quantified, refuse

MAX_SIZE = 20_000
"""Most nodes of a SELECT after all names are replaced: they may double with every step."""

_ROWS_ONLY = {
    "limit": ("E_LIMIT", "LIMIT on rows"),
    "offset": ("E_LIMIT", "OFFSET on rows"),
    "distinct": ("E_AGGREGATE", "DISTINCT on rows"),
    "qualify": ("E_WINDOW", "QUALIFY on rows"),
    "sample": ("E_SAMPLE", "sampling"),
    "windows": ("E_WINDOW", "a window that is named twice"),
    "laterals": ("E_JOIN", "LATERAL"),
    "pivots": ("E_STATEMENT", "PIVOT"),
}
_KNOWN = {"expressions", "from_", "joins", "where", "order", "with_"}
_HINT = "a sub-query over private rows may project, filter and compute; aggregate it outside"


_PLACES = (
    "where a row stands depends on all others: QUANTILE_DISC(x, [0.25, 0.5, 0.75]) has the cuts, "
    "and windows over groups work"
)


@dataclass(frozen=True, slots=True, eq=False)
class FlatSource:
    """One element of FROM, public rows where ``rows`` is None, and the names of its columns.

    ``fields`` are those of a private table whose columns are among those of the others' rows,
    ``unit`` is what USING makes of their privacy unit, where no column of a table is that.
    """

    element: FromElement
    rows: PrivateRows | None
    columns: tuple[str, ...] = ()
    fields: tuple[Field, ...] | None = None
    unit: Field | None = None

    @property
    def is_plain(self) -> bool:
        """True if a relation is a table of the catalog as it is."""
        is_table = isinstance(self.element.node, exp.Table)
        is_renamed = next(self.element.node.find_all(exp.TableAlias), exp.TableAlias()).columns
        return is_table and not is_renamed and (self.rows is None or self.rows.plain)


class FlatFrom:
    """The FROM clause of a SELECT over private rows, made flat, and what its names stand for.

    ``values`` are those of sub-queries over public tables. ``known`` are written expressions that
    are columns of the rows, such as windows over the rows of a unit.
    """

    def __init__(
        self,
        sources: Sequence[FlatSource],
        locate: Locate,
        values: PublicSubqueries,
    ) -> None:
        self.locate = locate
        self.values = values
        self.known: dict[exp.Expr, exp.Expr] = {}
        self.names = Names(locate)
        self.size = 0
        rows = next(each for each in sources if each.rows is not None)
        assert rows.rows is not None
        self.rows = rows.rows
        self.used = set(self.rows.names)
        self.where = list(self.rows.where)
        self.joins = list(self.rows.joins)
        for number, source in enumerate(sources):
            self.add(source, rows, number)

    def add(self, source: FlatSource, rows: FlatSource, number: int) -> None:
        """Add one element of FROM; public rows are joined to the private ones."""
        if source.fields is not None:
            self.absorb(source, source.fields)
            return
        own = source is rows
        element, join = source.element, source.element.join
        if own:
            fields = renamed_fields(self.rows.fields, _alias(element.node), self.locate)
        else:
            alias, table = self.fresh(element)
            fields = tuple(Field(name, column_of(name, alias)) for name in source.columns)
        self.names.add(element.alias, fields, element.node)
        side = "" if join is None else self.side(join, number)
        if join is not None and side == ("LEFT" if own else "RIGHT"):
            what = "private rows on the outer side of a join"
            self.refuse(join.node, "E_JOIN", what, KEPT_ROWS)
        if own and number > 0:
            # what stood before is public rows: they are joined to the private ones instead
            assert join is not None
            self.condition(join, self.joins[-1], number, "LEFT" if side == "RIGHT" else "")
        elif not own:
            clause = exp.Join(this=table)
            self.joins.append(clause)
            if join is not None:
                self.condition(join, clause, number, side)

    def absorb(self, source: FlatSource, fields: tuple[Field, ...]) -> None:
        """Add the names of a private table that is joined already."""
        element = source.element
        self.names.add(element.alias, fields, element.node)
        for name in () if element.join is None else element.join.using:
            first = next(alias for alias, known in self.names.sources if has_name(known, name.name))
            value = self.names.find(exp.column(name.name, first, quoted=True))
            if source.unit is not None:
                value = source.unit.value.copy()
            assert value is not None
            self.names.shared.setdefault(name.name.casefold(), value)

    def side(self, join: Join, number: int) -> str:
        if not join.is_plain:
            self.refuse(join.node, "E_JOIN", f"{join.method or join.kind} JOIN", INSTEAD)
        if join.side == "FULL":
            what = "a FULL JOIN, whose rows of either side may be without a partner,"
            self.refuse(join.node, "E_JOIN", what, KEPT_SIDES)
        if join.side == "RIGHT" and number > 1:
            self.refuse(join.node, "E_JOIN", "a RIGHT JOIN after another join", KEPT_SIDES)
        if join.using and join.side:
            self.refuse(join.node, "E_JOIN", "an outer join by USING", "write ON left = right")
        return join.side

    def condition(self, join: Join, clause: exp.Join, number: int, side: str) -> None:
        """The condition of a join, over the flat names."""
        if side:
            clause.set("side", side)
        if join.is_whole:
            clause.meta[WHOLE] = True
        before = clause.args.get("on")  # of public rows, where these stand before the private ones
        tests = [] if before is None else [before]
        tests += [] if join.on is None else [self.resolve(join.on)]
        for name in join.using:
            before, (alias, _) = self.names.sources[:number], self.names.sources[number]
            with_it = (each for each, known in before if has_name(known, name.name))
            written = [
                exp.column(name.copy(), each) for each in (next(with_it, before[0][0]), alias)
            ]
            left, right = map(self.names.find, written)
            assert left is not None
            assert right is not None
            own, other = (right, left) if self.is_own(right) else (left, right)
            self.names.shared[name.name.casefold()] = own
            tests.append(exp.EQ(this=own.copy(), expression=other))
        if tests:
            clause.set("on", _all(tests))

    def is_own(self, value: exp.Expr) -> bool:
        """True if a value is about the private table."""
        alias = self.rows.source.alias_or_name.casefold()
        return any(c.table.casefold() == alias for c in value.find_all(exp.Column))

    def fresh(self, source: FromElement) -> tuple[str, exp.Expr]:
        """Public rows under an alias that is not in use."""
        alias, number = source.alias or "rows", 2
        while alias in self.used:
            alias, number = f"{source.alias}_{number}", number + 1
        self.used.add(alias)
        table = source.node.copy()
        known = table.args.get("alias")
        columns = known.args.get("columns") if known is not None else None
        quoted = exp.to_identifier(alias, quoted=True)
        kept = columns if isinstance(table, exp.Values) else None
        table.set("alias", exp.TableAlias(this=quoted, columns=kept))
        return alias, table

    def refuse(self, node: Any, code: str, what: str, hint: str = _HINT) -> NoReturn:
        refuse(node, code, what, hint, self.locate)

    def resolve(self, node: exp.Expr, items: Sequence[exp.Expr] = ()) -> exp.Expr:
        """A copy of ``node`` over the flat names; ``items`` are select items to find aliases in.

        Raises: ProgrammingError (E_UNKNOWN_COLUMN, E_UNKNOWN_TABLE, E_TOO_COMPLEX).
        """
        if self.known and node in self.known:
            return self.known[node].copy()
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            return self.column(node, items)
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self.membership(node, items)
        if isinstance(node, exp.Query | exp.Exists | exp.Any | exp.All):
            value = self.values.value(node, self.names)
            if value is not None:
                return value
            self.refuse(
                node,
                "E_SUBQUERY",
                "a sub-query in a condition or an expression over private rows",
                quantified(node)
                or "ask for its value in a statement of its own, and write the value here",
            )
        return over_parts(node, lambda part: self.resolve(part, items))

    def column(self, node: exp.Column, items: Sequence[exp.Expr]) -> exp.Expr:
        found = self.names.find(node)
        if found is None:
            item = find_alias(items, node)
            if item is None:
                self.names.refuse_column(node)
            found = self.resolve(item)
        else:
            _place(found, node)
        self.size += sum(1 for _ in found.walk())
        if self.size > MAX_SIZE:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                "the statement is too long once its sub-queries are written out",
                hint="use fewer columns of columns",
                span=self.locate(node),
            )
        return found if isinstance(found, exp.Column) else exp.paren(found, copy=False)

    def membership(self, node: exp.In, items: Sequence[exp.Expr]) -> exp.Expr:
        """IN (SELECT column FROM public): the values are public, so they are written out."""
        values = self.values.listed(node.args["query"], self.names)
        if values is None:
            self.refuse(
                node,
                "E_SUBQUERY",
                "IN with a sub-query over private rows",
                "a list of values, or a column of a public table, works",
            )
        left = self.resolve(node.this, items)
        if not values:
            return exp.false()
        copy = exp.In(this=left, expressions=values)
        copy.meta.update(node.meta)
        return copy

    def filters(self, select: exp.Select) -> list[exp.Expr]:
        """The conditions, from within and from the SELECT's own WHERE."""
        where = select.args.get("where")
        own = [] if where is None else conjuncts(where.this)
        return [*(test.copy() for test in self.where), *(self.resolve(test) for test in own)]

    def project(self, select: exp.Select) -> PrivateRows:
        """A SELECT without aggregates as rows for the SELECT around it."""
        for key, (code, what) in _ROWS_ONLY.items():
            if select.args.get(key):
                self.refuse(select.args[key], code, what)
        for key, value in select.args.items():
            if value and key not in _KNOWN:
                self.refuse(value, "E_STATEMENT", key.strip("_").upper())
        fields: list[Field] = []
        for item in select.expressions:
            fields += self.fields(item)
        order = select.args.get("order")
        for each in order.expressions if order is not None else []:
            if not isinstance(each.this, exp.Literal):
                self.resolve(each.this, select.expressions)
        where = self.filters(select)
        joins = tuple(self.joins)
        return PrivateRows(
            self.rows.source, joins, tuple(where), tuple(fields), frozenset(self.used)
        )

    def fields(self, item: exp.Expr) -> list[Field]:
        """The columns of one select item."""
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            return of_star(star, self.names.star(item), self.resolve, self.locate)
        inner = item.unalias()
        found = self.resolve(inner).unnest()
        window = found.find(exp.Window)
        if window is not None:
            hint = _PLACES if has(window.this, "place") else _HINT
            self.refuse(window, "E_WINDOW", "a window over private rows", hint)
        return [Field(name_of(item), found)]

    def aggregate(self, select: exp.Select) -> exp.Select:
        """A SELECT that aggregates, as one over the private table itself."""
        items = select.expressions
        out = exp.Select(**{k: v for k, v in select.args.items() if k not in ("with_", "from_")})
        out = out.copy()
        out.meta.update(select.meta)
        out.set("expressions", [self.item(item) for item in items])
        out.set("from_", exp.From(this=self.rows.source.copy()))
        out.set("joins", [join.copy() for join in self.joins])
        where = self.filters(select)
        out.set("where", exp.Where(this=_all(where)) if where else None)
        for key in ("having", "qualify", "order"):
            if select.args.get(key) is not None:
                out.set(key, self.resolve(aliased(select.args[key], items), items))
        group = select.args.get("group")
        if group is not None:
            out.set("group", self.group(group, items))
        return out

    def item(self, item: exp.Expr) -> exp.Expr:
        """A select item under the name it has as written."""
        inner = item.unalias()
        star = inner.this if isinstance(inner, exp.Column) else inner
        if isinstance(star, exp.Star):
            return item.copy()
        found = self.resolve(inner).unnest()
        return exp.alias_(found, name_of(item), quoted=True, copy=False)

    def group(self, group: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr:
        out = self.resolve(group, items)
        kept = [
            after
            for before, after in zip(group.expressions, out.expressions, strict=True)
            if not isinstance(before, exp.Column) or after.find(exp.Column, exp.Anonymous)
        ]  # a column that is a constant groups nothing
        out.set("expressions", kept)
        return out


def aliased(clause: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr:
    """In ORDER BY the alias of a select item comes before a column of that name."""
    if not isinstance(clause, exp.Order):
        return clause
    out = clause.copy()
    for each in out.expressions:
        found = find_alias(items, each.this) if isinstance(each.this, exp.Column) else None
        if found is not None:
            each.set("this", found.copy())
    return out


def _alias(node: exp.Expr) -> exp.Expr | None:
    found = node.args.get("alias")
    return found if isinstance(found, exp.Expr) else None


def _all(tests: Sequence[exp.Expr]) -> exp.Expr:
    out = tests[0] if len(tests) == 1 else exp.paren(tests[0], copy=False)
    for test in tests[1:]:
        out = exp.And(this=out, expression=exp.paren(test, copy=False))
    return out


def _place(found: exp.Expr, node: exp.Column) -> None:
    """Note on a value that has no place of its own where its name stands."""
    if isinstance(found, exp.Column) and not any("start" in n.meta for n in found.walk()):
        start = [part.meta for part in node.walk() if "start" in part.meta]
        if start:
            found.this.meta.update(start[0])
