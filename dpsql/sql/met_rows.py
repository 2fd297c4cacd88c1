"""What a SELECT over rows and over answers says of each: its conditions, told apart."""

from __future__ import annotations

from sqlglot import exp

from dpsql.records import dataclass, field
from dpsql.sql.functions import has
from dpsql.sql.kinds import Kinds
from dpsql.sql.relations import Element, Join, read_from
from dpsql.sql.scope import conjuncts
from dpsql.sql.sugar import has_aggregates

"""Parts of an expression that is NULL where one of its columns is, and nowhere else."""


class Unlike(Exception):
    """What is written cannot be said over counted rows."""


@dataclass(slots=True)
class Met:
    """The rows and the answers in FROM, and the columns of each by alias.

    ``inner`` are the conditions about rows alone, ``outer`` those that meet an answer, ``on`` those
    by which an answer is joined that rows need not meet.
    """

    select: exp.Select
    kinds: Kinds
    rows: list[Element]
    answers: list[Element]
    names: dict[str, set[str]]
    inner: list[exp.Expr] = field(default_factory=list)
    outer: list[exp.Expr] = field(default_factory=list)
    on: dict[str, list[exp.Expr]] = field(default_factory=dict)

    @classmethod
    def read(cls, select: exp.Select, kinds: Kinds) -> Met | None:
        """Tell rows from answers; None where there are not both, or it is not known."""
        rows: list[Element] = []
        answers: list[Element] = []
        for each in read_from(select):
            kind = kinds.of(each.node)
            if kind is None:
                return None
            (answers if kind == "answers" else rows).append(each)
        if not any(kinds.of(each.node) == "rows" for each in rows):
            return None
        names = {}
        for each in (*rows, *answers):
            known = kinds.names(each.node)
            if known is None or not each.alias or each.alias in names:
                return None
            names[each.alias] = known
        found = cls(select, kinds, rows, answers, names)
        found.sort_tests()
        return found if answers or any(map(found.is_listed, select.find_all(exp.In))) else None

    def source(self, column: exp.Column) -> str | None:
        """The alias of the element that a column is of."""
        if column.table:
            known = column.table.casefold()
            return known if known in self.names else None
        name = column.name.casefold()
        found = [alias for alias, names in self.names.items() if name in names]
        own = [alias for alias in found if alias not in self.beside]
        if own and own != found and not any(_uses(each, name) for each in self.answers):
            raise Unlike
        found = own or found
        return found[0] if found else None

    def mentions(self, node: exp.Expr) -> bool:
        """Whether an expression is about a column of an answer, or about what is in one."""
        if any(map(self.is_listed, node.find_all(exp.In))):
            return True
        return any(self.source(column) in self.beside for column in self.columns(node))

    @property
    def beside(self) -> set[str]:
        """The aliases of the answers."""
        return {each.alias for each in self.answers}

    def is_listed(self, node: exp.In) -> bool:
        query = node.args.get("query")
        return query is not None and self.is_here(node) and self.kinds.of(query) == "answers"

    def is_here(self, node: exp.Expr) -> bool:
        """Whether a part is of this SELECT, not of a sub-query in it."""
        around = node.find_ancestor(exp.Query)
        return around is None or around is self.select

    def columns(self, node: exp.Expr) -> list[exp.Column]:
        """The columns that an expression mentions, without those of sub-queries in it."""
        return [column for column in node.find_all(exp.Column) if self.is_here(column)]

    def sort_tests(self) -> None:
        """Conditions that meet an answer are for the outside, others stay with the rows."""
        where = self.select.args.get("where")
        self.sort([] if where is None else conjuncts(where.this))
        first, *others = self.rows
        if first.join is not None:
            self.sort_join(first, first.join, self.answers)
        if any(e.join.on is not None and self.mentions(e.join.on) for e in others if e.join):
            raise Unlike
        for each in self.answers:
            if each.join is not None:
                self.sort_join(each, each.join, self.rows)

    def sort(self, tests: list[exp.Expr]) -> None:
        for test in tests:
            (self.outer if self.mentions(test) else self.inner).append(test)

    def sort_join(self, each: Element, join: Join, others: list[Element]) -> None:
        """The conditions by which an answer is joined, or rows to answers before them."""
        if not join.is_plain or join.side not in ("", "LEFT"):
            raise Unlike
        tests = [] if join.on is None else conjuncts(join.on)
        for name in join.using:
            known = (e.alias for e in others if name.name.casefold() in self.names[e.alias])
            sides = [exp.column(name.copy(), alias) for alias in (*known, each.alias)]
            if len(sides) != 2:
                raise Unlike
            for column in sides:
                column.meta.update(name.meta)
            tests.append(exp.EQ(this=sides[0], expression=sides[1]))
        if not join.side:
            self.sort(tests)
        elif others is self.rows:
            self.on[each.alias] = tests
        else:
            raise Unlike

    def owners(self, test: exp.Expr) -> list[int]:
        """The numbers of the answers that a condition compares."""
        found = {self.source(column) for column in self.columns(test)}
        late = [number for number, each in enumerate(self.answers) if each.alias in found]
        return late if not any(self.answers[n].alias in self.on for n in late) else []

    def is_of_rows(self, node: exp.Expr) -> bool:
        """Whether an expression is about columns of rows alone."""
        found = self.columns(node)
        whole = isinstance(node, exp.Condition) and not node.find(
            exp.Query, exp.AggFunc, exp.Window
        )
        # a WHEN with its THEN is no value
        whole = whole and not (isinstance(node, exp.If) and isinstance(node.parent, exp.Case))
        known = all(self.source(column) is not None for column in found)
        return bool(found) and whole and known and not self.mentions(node)

    def is_coarse(self, column: exp.Column) -> bool:
        """Whether a column of the rows shows something of its cell, and not its value."""
        alias, name = self.source(column), column.name.casefold()
        return any(e.alias == alias and self.kinds.is_coarse(e.node, name) for e in self.rows)

    def equal(self, node: exp.Expr) -> exp.Expr:
        """What of the rows equals a column of an answer; all else is itself."""
        for test in (each.unnest() for each in self.outer):
            if isinstance(test, exp.EQ) and isinstance(node, exp.Column) and self.mentions(node):
                for one, two in ((test.this, test.expression), (test.expression, test.this)):
                    if one == node and self.is_of_rows(two):
                        found: exp.Expr = two
                        return found
        return node

    def is_unique(self, each: Element) -> bool:
        """Whether all keys of an answer equal something of the rows."""
        node = each.node
        inner = node.unnest() if isinstance(node, exp.Subquery) else None
        group = inner.args.get("group") if isinstance(inner, exp.Select) else None
        if not isinstance(inner, exp.Select):
            return False
        if group is None:
            return has_aggregates(inner)
        keys = self.kinds.keys(node, inner)
        tests = [*self.outer, *self.on.get(each.alias, [])]
        met: set[exp.Expr | None] = set()
        for test in (t.unnest() for t in tests):
            for one, two in ((test.this, test.expression), (test.expression, test.this)):
                if not isinstance(test, exp.EQ) or not isinstance(one, exp.Column):
                    continue
                if self.source(one) == each.alias and not self.mentions(two):
                    met.add(keys.get(one.name.casefold()))
        met.discard(None)
        return bool(group.expressions) and all(
            key in met or self.kinds.aliased(inner, key) in met for key in group.expressions
        )

    def is_optional(self, node: exp.Expr) -> bool:
        """Whether an expression about rows may be NULL."""
        if any(each.join is not None and each.join.side for each in self.rows):
            return True
        for part in node.walk():
            if isinstance(part, exp.Column):
                nodes = [each.node for each in self.rows if each.alias == self.source(part)]
                if any(self.kinds.is_optional(each, part.name.casefold()) for each in nodes):
                    return True
            elif not has(part, "total"):
                return True
        return False

    def is_plain(self, node: exp.Expr) -> bool:
        """Whether an expression is about no column of the rows."""
        known = all(self.source(column) in self.beside for column in self.columns(node))
        return known and not node.find(exp.Query)


def _uses(each: Element, name: str) -> bool:
    return each.join is not None and any(u.name.casefold() == name for u in each.join.using)
