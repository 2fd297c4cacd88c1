"""By which columns private tables are joined: their privacy unit, and keys that are declared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from sqlglot import exp

from dpsql.errors import Error, printable
from dpsql.records import dataclass
from dpsql.sql.joins.joined_part import JoinedPart, MemberTable, Pairs, Side, declares
from dpsql.sql.names import Names
from dpsql.sql.relations import Join
from dpsql.sql.shell.language import Locate, refuse

_OTHERS = (
    'say in the catalog that it holds ids of units: unit_columns = ["..."]; rows meet by it where '
    "they are of one unit"
)
ALONG = "join by the privacy unit, or by columns that `references` of the catalog declare"


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """Reads the conditions between the private tables of one FROM clause, given by alias.

    ``keys`` are the case-folded names of the columns of each by which rows can be matched.
    """

    private: Mapping[str, MemberTable]
    keys: Mapping[str, Collection[str]]
    names: Names
    locate: Locate

    def refuse(self, node: exp.Expr, what: str, hint: str = ALONG) -> NoReturn:
        refuse(node, "E_JOIN", what, hint, self.locate)

    def using(self, whole: JoinedPart, part: JoinedPart, name: exp.Expr) -> exp.Expr:
        """USING as a condition; its column is that of the first table that has it."""
        (right,) = part.members
        key = name.name.casefold()
        for left in whole.members:
            if any(each.name.casefold() == key for each in left.fields):
                sides = (exp.column(name.name, each.alias, quoted=True) for each in (left, right))
                return exp.EQ(this=next(sides), expression=next(sides))
        self.refuse(name, f"USING ({printable(name.name)})")

    def pairs(
        self, whole: JoinedPart, part: JoinedPart, tests: Sequence[exp.Expr]
    ) -> tuple[list[tuple[Side, Side]], list[exp.Expr]]:
        """The columns by which two parts are joined; and the conditions that say something else."""
        pairs: list[tuple[Side, Side]] = []
        rest: list[exp.Expr] = []
        for test in tests:
            inner = test.unnest()
            sides = [inner.this, inner.expression] if isinstance(inner, exp.EQ) else []
            found = [self.side(each) for each in sides]
            one, two = found if found else (None, None)
            if one and two and part.member(one[0]) and whole.member(two[0]):
                one, two = two, one
            if one and two and whole.member(one[0]) and part.member(two[0]):
                pairs.append((one, two))
            else:
                rest.append(test)
        return pairs, rest

    def side(self, node: exp.Expr) -> Side | None:
        """The alias and stored column that a name stands for, if rows can be joined by it."""
        inner = node.unnest()
        if not isinstance(inner, exp.Column):
            return None
        try:
            place = self.names.place(inner)
        except Error:
            return None
        if place is None:
            self.check_known(inner)
            return None
        alias, fields = self.names.sources[place[0]]
        value, member = fields[place[1]].value, self.private[alias]
        if not isinstance(value, exp.Column):
            return None
        name = value.name.casefold()
        return (alias, name) if member.is_unit(name) or name in self.keys[alias] else None

    def check_known(self, column: exp.Column) -> None:
        """Refuse a join by a column that the catalog does not declare."""
        alias = column.table.casefold()
        if alias in self.private:
            unit = self.private[alias].table.unit.column
            known = dict.fromkeys([*([unit] if unit else []), *self.keys[alias]])
            hint = f"rows of {printable(column.table)} are joined by {', '.join(known)}"
            what = f"a join by {printable(column.name)}, which is not declared,"
            self.refuse(column, what, hint if known else ALONG)

    def beside(
        self,
        left: JoinedPart,
        right: JoinedPart,
        pairs: Pairs,
        join: Join,
    ) -> list[tuple[Side, Side]]:
        """The pairs but for those of the unit, with which a unit's rows meet anyway."""
        found = []
        by_unit = False
        for one, two in pairs:
            members = left.member(one[0]), right.member(two[0])
            units = [
                m is not None and m.is_unit(name)
                for m, name in zip(members, (one[1], two[1]), strict=True)
            ]
            if units[0] != units[1] and not declares(left, right, [(one, two)]):
                self.refuse(join.node, "a join of a privacy unit with another column", _OTHERS)
            by_unit |= all(units)
            found += [] if all(units) else [(one, two)]
        if not by_unit and not declares(left, right, found):
            self.refuse(join.node, "a join of private tables by this key alone")
        return found
