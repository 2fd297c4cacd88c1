"""Public tables of a SELECT over private rows that only pick its rows -> conditions on those rows.

``FROM sales, dates WHERE sales.day = dates.day AND dates.year = 2001`` with no other word about
``dates`` picks sales by their day: ``day IN (SELECT day FROM dates WHERE year = 2001)``. That holds
as it is where a row counts once however often it is matched, as in EXISTS, and elsewhere where no
two public rows have the same key.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.logical.bind.subqueries import SubqueryBinder, SubqueryNames
from dpsql.logical.facts import PlanFacts
from dpsql.logical.functions import conjuncts
from dpsql.records import dataclass
from dpsql.sql.relations import FromElement, read_from
from dpsql.sql.rewrites.tree_parts import set_where

_AROUND = ("where", "joins", "from_")


def picked(
    node: exp.Select,
    names: SubqueryNames | None,
    binder: SubqueryBinder,
    once: bool,
) -> exp.Select:
    """A SELECT with the public tables that only pick its rows written as conditions.

    ``names`` are those of its FROM; ``once`` says that a row counts once however often it is
    matched.
    """
    if names is None:
        return node
    try:
        return _Picks(names, binder.sources(names), binder, once).written(node)
    except ProgrammingError:
        return node  # refused by who compiles it


@dataclass(frozen=True, slots=True)
class _Picks:
    """Reads one SELECT."""

    bound: SubqueryNames
    facts: Mapping[str, PlanFacts | None]
    binder: SubqueryBinder
    once: bool

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
        self, select: exp.Select, each: FromElement, kept: list[FromElement], tests: list[exp.Expr]
    ) -> list[exp.Expr] | None:
        """The conditions with one for a public table that only picks rows; else None."""
        facts = self.facts.get(each.alias)
        if facts is None or not facts.is_public or self.is_told(select, each):
            return None
        mine = [test for test in tests if self.mentions(test, each)]
        links = [link for test in mine if (link := self.link(test, each, kept)) is not None]
        own = [test for test in mine if all(link[0] is not test for link in links)]
        whole = all(
            not test.find(exp.Query)
            and all(self.owner(c) == each.alias for c in test.find_all(exp.Column))
            for test in own
        )
        if len(links) != 1 or not whole:
            return None
        written, key, other = links[0]
        if not self.once and not self.is_unique(key):
            return None
        inner = exp.Select(expressions=[key.copy()])
        inner.set("from_", exp.From(this=each.node.copy()))
        set_where(inner, own)
        picked = exp.In(this=other.copy(), query=exp.Subquery(this=inner))
        rest = [test for test in tests if all(test is not one for one in own)]
        return [picked if test is written else test for test in rest]

    def is_told(self, select: exp.Select, each: FromElement) -> bool:
        """True if anything but the conditions is about a table."""
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
        return stars or any(self.mentions(part, each) for part in parts)

    def mentions(self, part: exp.Expr, each: FromElement) -> bool:
        """True where an expression is about a table."""
        return any(self.owner(c) == each.alias for c in part.find_all(exp.Column))

    def owner(self, column: exp.Column) -> str | None:
        """The element that a name is of; None for one of a SELECT around."""
        return self.bound.source(self.bound.column(column))

    def link(
        self, test: exp.Expr, each: FromElement, kept: list[FromElement]
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
                and self.owner(key) == each.alias
                and self.owner(other) in others
            ):
                return test, key, other
        return None

    def is_unique(self, key: exp.Column) -> bool:
        """True if no two public rows have the same value of a column; NULL meets nothing."""
        column = self.bound.column(key)
        plans = [s.plan for s in self.bound.scope.sources if s.name == self.bound.source(column)]
        return bool(plans) and self.binder.is_unique(plans[0], {column}, known=True)
