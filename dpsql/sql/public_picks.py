"""Public tables of a SELECT over private rows that only pick its rows -> conditions on those rows.

``FROM sales, dates WHERE sales.day = dates.day AND dates.year = 2001`` with no other word about
``dates`` picks sales by their day: ``day IN (SELECT day FROM dates WHERE year = 2001)``. That holds
as it is where a row counts once however often it is matched, as in EXISTS, and elsewhere where no
two public rows have the same key.
"""

from __future__ import annotations

from collections.abc import Container

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.records import dataclass
from dpsql.sql.names import names_of
from dpsql.sql.relations import Element, PublicRows, read_from
from dpsql.sql.rewritten import set_where
from dpsql.sql.scope import conjuncts

_AROUND = ("where", "joins", "from_")


def picked(
    node: exp.Expr, catalog: Catalog, hidden: Container[str], rows: PublicRows, once: bool
) -> exp.Expr:
    """A SELECT with the public tables that only pick its rows written as conditions.

    ``hidden`` are names of CTEs; ``once`` says that a row counts once however often it is matched.
    """
    if not isinstance(node, exp.Select):
        return node
    return _Picks(catalog, hidden, rows, once).written(node)


@dataclass(frozen=True, slots=True)
class _Picks:
    """Reads one SELECT."""

    catalog: Catalog
    hidden: Container[str]
    rows: PublicRows
    once: bool

    def table(self, node: exp.Expr) -> Table | None:
        """The table of the catalog that an element of FROM stands for."""
        is_named = isinstance(node, exp.Table) and node.name.casefold() not in self.hidden
        return self.catalog.tables.get(node.name.casefold()) if is_named else None

    def written(self, select: exp.Select) -> exp.Select:
        """The SELECT with those of its public tables written as conditions, if there are any."""
        elements = read_from(select)
        joins = [each.join for each in elements if each.join is not None]
        plain = all(join.is_plain and not join.side and not join.using for join in joins)
        if not plain or len(elements) < 2 or select.args.get("with_"):
            return select
        clauses = [join.on for join in joins]
        where = select.args.get("where")
        clauses.append(None if where is None else where.this)
        tests = [test for each in clauses if each is not None for test in conjuncts(each)]
        kept, count = list(elements), len(elements)
        for each in elements:
            found = self.pick(select, each, kept, tests)
            if found is not None and len(kept) > 1:
                kept.remove(each)
                tests = found
        if len(kept) == count:
            return select
        out = select.copy()
        first, *others = (each.node.copy() for each in kept)
        out.set("from_", exp.From(this=first))
        out.set("joins", [exp.Join(this=other) for other in others])
        set_where(out, tests)
        return out

    def pick(
        self, select: exp.Select, each: Element, kept: list[Element], tests: list[exp.Expr]
    ) -> list[exp.Expr] | None:
        """The conditions with one for a public table that only picks rows; else None."""
        table = self.table(each.node)
        if table is None or not table.public or self.is_told(select, each, kept):
            return None
        mine = [test for test in tests if self.mentions(test, each, kept)]
        links = [link for test in mine if (link := self.link(test, each, kept)) is not None]
        own = [test for test in mine if all(link[0] is not test for link in links)]
        whole = all(
            not test.find(exp.Query)
            and all(self.owner(c, kept) == each.alias for c in test.find_all(exp.Column))
            for test in own
        )
        if len(links) != 1 or not whole:
            return None
        written, key, other = links[0]
        if not self.once and not self.is_unique(table, key.name.casefold()):
            return None
        inner = exp.Select(expressions=[key.copy()])
        inner.set("from_", exp.From(this=each.node.copy()))
        set_where(inner, own)
        picked = exp.In(this=other.copy(), query=exp.Subquery(this=inner))
        rest = [test for test in tests if all(test is not one for one in own)]
        return [picked if test is written else test for test in rest]

    def is_told(self, select: exp.Select, each: Element, kept: list[Element]) -> bool:
        """Whether anything but the conditions is about a table."""
        parts = [
            part
            for key, value in select.args.items()
            if key not in _AROUND
            for part in (value if isinstance(value, list) else [value])
            if isinstance(part, exp.Expr)
        ]
        stars = any(
            isinstance(item, exp.Star) or (isinstance(item, exp.Column) and item.is_star)
            for item in select.expressions
        )
        return stars or any(self.mentions(part, each, kept) for part in parts)

    def mentions(self, part: exp.Expr, each: Element, kept: list[Element]) -> bool:
        """Whether an expression may be about a table."""
        return any(self.owner(c, kept) in (each.alias, "") for c in part.find_all(exp.Column))

    def owner(self, column: exp.Column, kept: list[Element]) -> str | None:
        """The table that a name is of; None for another's, empty where several have it."""
        if column.table:
            return column.table.casefold()
        name = column.name.casefold()
        having = [e.alias for e in kept if name in self.names(e)]
        return having[0] if len(having) == 1 else "" if having else None

    def names(self, each: Element) -> set[str]:
        table = self.table(each.node)
        return set() if table is None else {name.casefold() for name, _ in names_of(table)}

    def link(
        self, test: exp.Expr, each: Element, kept: list[Element]
    ) -> tuple[exp.Expr, exp.Column, exp.Column] | None:
        """A condition that sets a column of a table equal to one of another, and these two."""
        inner = test.unnest()
        sides = (
            (inner.this.unnest(), inner.expression.unnest()) if isinstance(inner, exp.EQ) else ()
        )
        others = {element.alias for element in kept} - {each.alias}
        for key, other in (sides, sides[::-1]) if sides else ():
            if (
                isinstance(key, exp.Column)
                and isinstance(other, exp.Column)
                and self.owner(key, kept) == each.alias
                and self.owner(other, kept) in others
            ):
                return test, key, other
        return None

    def is_unique(self, table: Table, name: str) -> bool:
        """Whether no two public rows have the same value of a column; NULL meets nothing."""
        found = {column.casefold(): values for column, (_, values) in self.rows(table).items()}
        known = [value for value in found.get(name, (None, None)) if value is not None]
        return name in found and len(set(known)) == len(known)
