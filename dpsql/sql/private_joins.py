"""Joins of private tables: along the privacy unit or a declared reference, as one derived table.

Rows of different units never meet. A table that rows refer to adds columns to them, other tables
add pairs of rows of one unit. What is joined is a table like any other from then on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.catalog.unit_local import DerivedTable
from dpsql.errors import Error, printable
from dpsql.sql.joined_part import (
    JoinedPart,
    MemberTable,
    Pairs,
    Side,
    attached,
    declares,
    is_lookup,
)
from dpsql.sql.language import Locate, refuse
from dpsql.sql.local_tables import named_source, relation_of, table_of
from dpsql.sql.names import Names
from dpsql.sql.outer_sides import AsTest, filtered, is_about
from dpsql.sql.relations import (
    Element,
    Field,
    Join,
    PrivateRows,
    Relation,
    column_of,
    renamed_fields,
)
from dpsql.sql.scope import conjuncts

_FULL = "LEFT JOIN ... UNION ALL SELECT NULL, ... FROM other WHERE unit NOT IN (SELECT unit ...)"
_ALONG = "join by the privacy unit, or by columns that `references` of the catalog declare"


@dataclass(frozen=True, slots=True, eq=False)
class Absorbed:
    """An element of FROM whose rows are part of others': the columns that its names stand for."""

    fields: tuple[Field, ...]


class PrivateJoin:
    """Joins the private tables in the FROM clause of one SELECT."""

    def __init__(
        self,
        found: Sequence[tuple[Element, Relation]],
        catalog: Catalog,
        locate: Locate,
        as_test: AsTest,
    ) -> None:
        self.found = found
        self.catalog = catalog
        self.locate = locate
        self.as_test = as_test
        self.names = Names(locate)
        self.private = {
            each.alias: self.member(each, relation)
            for each, relation in found
            if isinstance(relation, PrivateRows)
        }
        for element, relation in found:
            if isinstance(relation, PrivateRows):
                self.names.add(element.alias, self.private[element.alias].fields, element.node)

    def refuse(self, node: exp.Expr, what: str, hint: str = _ALONG) -> NoReturn:
        refuse(node, "E_JOIN", what, hint, self.locate)

    def member(self, element: Element, rows: PrivateRows) -> MemberTable:
        if rows.joins:
            self.refuse(
                element.node,
                "a join of private rows that public rows are joined to",
                "join the private tables first, then the public ones",
            )
        table = self.catalog.find(rows.source.name.casefold())
        if table.synthetic:
            self.refuse(element.node, "a join of a synthetic table", "aggregate it by itself")
        alias = element.node.args.get("alias")
        columns = alias if isinstance(alias, exp.Expr) else None
        fields = renamed_fields(rows.fields, columns, self.locate)
        fields = tuple(replace(f, borrowed=_is_borrowed(f, table)) for f in fields)
        return MemberTable(element.alias, table, rows, fields)

    def select(
        self, node: exp.Select
    ) -> tuple[exp.Select, list[tuple[Element, Relation | Absorbed]]]:
        """The SELECT without the conditions that join, and its FROM with one private table.

        Raises: NotSupportedError (E_JOIN); ProgrammingError.
        """
        where = node.args.get("where")
        loose = [] if where is None else conjuncts(where.this)
        waiting = [each for each, _ in self.found if each.alias in self.private]
        whole = self.part(self.private[waiting.pop(0).alias])
        while waiting:
            place = next((i for i, e in enumerate(waiting) if self.meets(whole, e, i, loose)), 0)
            element = waiting.pop(place)
            whole, loose = self.join(whole, self.part(self.private[element.alias]), element, loose)
        copy = node.copy()
        kept = [test.copy() for test in loose]
        copy.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
        return self.shown(copy, whole)

    def meets(
        self, whole: JoinedPart, element: Element, place: int, loose: Sequence[exp.Expr]
    ) -> bool:
        """Whether some condition joins an element: others of FROM may have to come before it."""
        join, part = element.join, self.part(self.private[element.alias])
        assert join is not None
        tests = [] if join.on is None else conjuncts(join.on)
        movable = not join.side or (join.side == "LEFT" and not join.using)
        pairs, _ = self.pairs(whole, part, [*tests, *([] if join.side else loose)])
        return bool(pairs or join.using) and (movable or place == 0)

    def part(self, member: MemberTable) -> JoinedPart:
        """One table by itself."""
        table = member.table
        if table.unit.column is None:
            self.refuse(
                member.rows.source,
                f"a join of {printable(table.name)}, each row of which is a privacy unit,",
                "declare whose rows they are: privacy_unit with a column, and [unit.NAME]",
            )
        return JoinedPart(relation_of(table), (member,), member.alias, table.unit.max_rows)

    def join(
        self, whole: JoinedPart, part: JoinedPart, element: Element, loose: list[exp.Expr]
    ) -> tuple[JoinedPart, list[exp.Expr]]:
        """Join one table more; also returns the conditions that are left."""
        join = element.join
        assert join is not None
        if not join.is_plain or join.side == "FULL":
            word, hint = join.method or join.side or join.kind, _FULL if join.side else _ALONG
            self.refuse(join.node, f"{word} JOIN of private tables", hint)
        tests = [] if join.on is None else conjuncts(join.on)
        tests += [self.using(whole, part, name) for name in join.using]
        outer = bool(join.side)
        pairs, rest = self.pairs(whole, part, [*tests, *([] if outer else loose)])
        if outer:
            side = part if join.side == "LEFT" else whole
            for test in rest:
                if not is_about(test, side, self.names):
                    hint = "in WHERE, or in a sub-query in FROM"
                    self.refuse(test, "this condition of an outer join of private tables", hint)
            side = filtered(side, rest, self.names, self.as_test)
            whole, part = (whole, side) if join.side == "LEFT" else (side, part)
            rest = loose
        if not pairs:
            (one,), two = part.members, whole.members[0]
            self.refuse(
                element.node,
                "a join of private tables that leaves out their privacy unit",
                f"rows of different units never meet: ON {_unit_of(two)} = {_unit_of(one)} works",
            )
        if join.side == "RIGHT":
            self.check_right(element, join)
            flipped = [(two, one) for one, two in pairs]
            return self.attach(part, whole, flipped, True, join), rest
        return self.attach(whole, part, pairs, outer, join), rest

    def check_right(self, element: Element, join: Join) -> None:
        """Refuse a RIGHT JOIN that keeps rows which a join with public rows before it left out."""
        before = itertools.takewhile(lambda each: each[0] is not element, self.found)
        if any(each.alias not in self.private for each, _ in before):
            self.refuse(
                join.node,
                "a RIGHT JOIN of private tables after public rows",
                "join the private tables first, then the public ones",
            )

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
        keys = {key.casefold() for key in member.table.keys}
        return (alias, name) if member.is_unit(name) or name in keys else None

    def alias_of(self, column: exp.Column) -> str:
        """The table that a name is a column of; as it is written where that is not clear."""
        try:
            place = None if column.table else self.names.place(column)
        except Error:
            place = None
        return column.table.casefold() if place is None else self.names.sources[place[0]][0]

    def check_known(self, column: exp.Column) -> None:
        """Refuse a join by a column that the catalog does not declare."""
        if column.table.casefold() in self.private:
            self.refuse(column, f"a join by {printable(column.name)}, which is not declared,")

    def attach(
        self,
        left: JoinedPart,
        right: JoinedPart,
        pairs: Pairs,
        outer: bool,
        join: Join,
    ) -> JoinedPart:
        """Join two parts: a lookup where one refers to the other, else pairs of rows of a unit."""
        keys = self.keys(left, right, pairs, join)
        if is_lookup(left, right, keys):
            return attached(left, right, keys, outer, one=True)
        flipped = [(two, one) for one, two in keys]
        if not outer and is_lookup(right, left, flipped):
            return attached(right, left, flipped, False, one=True)
        return attached(left, right, keys, outer, one=False)

    def keys(
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
            if units[0] != units[1]:
                self.refuse(join.node, "a join of a privacy unit with another column")
            by_unit |= units[0]
            found += [] if units[0] else [(one, two)]
        if not by_unit and not declares(left, right, found):
            self.refuse(join.node, "a join of private tables by this key alone")
        return found

    def shown(
        self, node: exp.Select, whole: JoinedPart
    ) -> tuple[exp.Select, list[tuple[Element, Relation | Absorbed]]]:
        """The SELECT over the joined rows, under the names that are in it."""
        label = " + ".join(each.table.title for each in whole.members)
        span = self.locate(self.found[-1][0].node)
        table = table_of(self.catalog, whole.relation, label, whole.most, span)
        alias = whole.members[0].alias
        source = named_source(table.name, alias)
        members = {each.alias: each for each in whole.members}
        fields = {each: self.fields(member, table, alias) for each, member in members.items()}
        tests = [
            _moved(test, member, table, alias)
            for member in members.values()
            for test in member.rows.where
        ]
        for member in members.values():
            if member.exists is not None and member.rows.where:
                self.refuse(
                    member.rows.where[0],
                    "a filtered sub-query on the outer side of a join",
                    "filter in WHERE",
                )
        _tell_partners(node, members, self.alias_of)
        out: list[tuple[Element, Relation | Absorbed]] = []
        first = True
        for element, relation in self.found:
            if element.alias not in members:
                out.append((element, relation))
            elif first:
                rows = PrivateRows(
                    source, (), tuple(tests), fields[element.alias], frozenset({alias})
                )
                out.append((element, rows))
                first = False
            else:
                out.append((element, Absorbed(fields[element.alias])))
        return node, out

    def fields(self, member: MemberTable, table: DerivedTable, alias: str) -> tuple[Field, ...]:
        """The columns of one table, as expressions over the joined rows."""
        found = [
            replace(each, value=_moved(each.value, member, table, alias)) for each in member.fields
        ]
        if member.exists is not None:
            found.append(Field(member.exists, column_of(member.exists, alias), hidden=True))
        return tuple(found)


def _is_borrowed(field: Field, table: Table) -> bool:
    """Whether a column is the unit of a table that stores none."""
    stored = {key.casefold() for key in table.keys} | table.columns.keys()
    return field.hidden and table.unit.through is not None and field.name.casefold() not in stored


def _unit_of(member: MemberTable) -> str:
    return f"{printable(member.alias)}.{printable(str(member.table.unit.column))}"


def _moved(value: exp.Expr, member: MemberTable, table: DerivedTable, alias: str) -> exp.Expr:
    """An expression over the columns of one table, over the joined rows."""

    def move(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if member.exists is None and member.is_unit(node.name):
            moved = column_of(str(table.unit.column), alias)
        else:
            moved = column_of(f"{member.prefix}{node.name}", alias)
        moved.meta.update(node.meta)
        return moved

    return value.copy().transform(move, copy=False)


def _tell_partners(
    node: exp.Select, members: dict[str, MemberTable], alias_of: Callable[[exp.Column], str]
) -> None:
    """Say IS NULL and COUNT of a key on the outer side of a join by whether there is a partner."""
    for column in list(node.find_all(exp.Column)):
        member = members.get(alias_of(column))
        if member is None or member.exists is None or column.find_ancestor(exp.Query) is not node:
            continue
        keys = {key.casefold() for key in member.table.keys}
        if not member.is_unit(column.name) and column.name.casefold() not in keys:
            continue
        partner = exp.column(
            exp.to_identifier(member.exists, quoted=True),
            exp.to_identifier(member.alias, quoted=True),
        )
        parent = column.parent
        if isinstance(parent, exp.Is) and isinstance(parent.expression, exp.Null):
            known = exp.Coalesce(this=partner, expressions=[exp.false()])
            parent.replace(exp.paren(exp.Not(this=known), copy=False))
        elif isinstance(parent, exp.Distinct) and member.is_unit(column.name):
            _count_partners(parent, partner, members)
        elif isinstance(parent, exp.Count):
            case = exp.Case(ifs=[exp.If(this=partner, true=exp.Literal.number(1))])
            column.replace(case)


def _count_partners(
    distinct: exp.Distinct, partner: exp.Column, members: dict[str, MemberTable]
) -> None:
    """COUNT(DISTINCT unit) on the outer side of a join, as one of the units with a partner."""
    count = distinct.parent
    owner = next(each for each in members.values() if each.exists is None)
    if not isinstance(count, exp.Count) or isinstance(count.parent, exp.Filter):
        return
    unit = exp.column(str(owner.table.unit.column), owner.alias, quoted=True)
    distinct.set("expressions", [unit])
    where = exp.Where(this=partner)
    count.replace(exp.Filter(this=count.copy(), expression=where))
