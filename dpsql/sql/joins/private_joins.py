"""Joins of private tables: along the privacy unit or a declared reference, as one derived table.

Rows of different units never meet. A table that rows refer to adds columns to them, other tables
add pairs of rows of one unit. What is joined is a table like any other from then on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.errors import printable
from dpsql.logical.functions import conjuncts
from dpsql.records import replace
from dpsql.relation.unit_local import FilterRows
from dpsql.sql.joins.full_joins import (
    apart,
    flipped,
    header_of,
    joined_in_full,
    together,
    without_rows,
)
from dpsql.sql.joins.join_keys import ALONG, JoinKeys
from dpsql.sql.joins.joined_names import AbsorbedTable, JoinedNames
from dpsql.sql.joins.joined_part import JoinedPart, MemberTable, Pairs, attached, is_lookup
from dpsql.sql.joins.joined_where import PairConditions, joined_in_full_where, joined_where
from dpsql.sql.joins.outer_sides import AsTest, filtered, is_about
from dpsql.sql.names import Names
from dpsql.sql.relations import Field, FromElement, Join, PrivateRows, Relation, renamed_fields
from dpsql.sql.shell.language import Locate, refuse
from dpsql.sql.units.local_tables import relation_of


class PrivateJoin:
    """Joins the private tables in the FROM clause of one SELECT."""

    def __init__(
        self,
        found: Sequence[tuple[FromElement, Relation]],
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
        keys = {alias: self.keys_of(member.table) for alias, member in self.private.items()}
        self.keys = JoinKeys(self.private, keys, self.names, locate)

    def refuse(self, node: exp.Expr, what: str, hint: str = ALONG) -> NoReturn:
        refuse(node, "E_JOIN", what, hint, self.locate)

    def member(self, element: FromElement, rows: PrivateRows) -> MemberTable:
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

    def keys_of(self, table: Table) -> frozenset[str]:
        """The stored columns by which rows of a table can be matched, of derived ones, too."""
        if table.unit.column is None:
            return frozenset()
        return header_of(relation_of(table), self.catalog).keys

    def select(
        self, node: exp.Select
    ) -> tuple[exp.Select, list[tuple[FromElement, Relation | AbsorbedTable]]]:
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
        return JoinedNames(self.found, self.catalog, self.names, self.locate).shown(copy, whole)

    def meets(
        self, whole: JoinedPart, element: FromElement, place: int, loose: Sequence[exp.Expr]
    ) -> bool:
        """True if some condition joins an element: others of FROM may have to come before it."""
        join, part = element.join, self.part(self.private[element.alias])
        assert join is not None
        tests = [] if join.on is None else conjuncts(join.on)
        movable = not join.side or (join.side == "LEFT" and not join.using)
        pairs, _ = self.keys.pairs(whole, part, [*tests, *([] if join.side else loose)])
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
        part = JoinedPart(relation_of(table), (member,), member.alias, table.unit.max_rows)
        joins = [each.join for each, _ in self.found if each.join is not None]
        if any(join.side in ("RIGHT", "FULL") for join in joins):  # its rows may be left out later
            part = filtered(part, (), self.names, self.as_test)
        return part

    def join(
        self, whole: JoinedPart, part: JoinedPart, element: FromElement, loose: list[exp.Expr]
    ) -> tuple[JoinedPart, list[exp.Expr]]:
        """Join one table more; also returns the conditions that are left."""
        join = element.join
        assert join is not None
        if not join.is_plain:
            what = f"{join.method or join.kind} JOIN of private tables"
            hint = "name the columns, JOIN ... USING (...): a table may have more than are declared"
            self.refuse(join.node, what, hint if join.method == "NATURAL" else ALONG)
        tests = [] if join.on is None else conjuncts(join.on)
        tests += [self.keys.using(whole, part, name) for name in join.using]
        outer, on = bool(join.side), None
        at_once = outer or self.is_without(element)
        pairs, rest = self.keys.pairs(whole, part, [*tests, *([] if at_once else loose)])
        if join.side == "FULL":
            return self.full(whole, part, element, pairs, rest), loose
        if outer:
            side = part if join.side == "LEFT" else whole
            own = [test for test in rest if is_about(test, side, self.names)]
            on = self.on_pairs([test for test in rest if test not in own])
            side = filtered(side, own, self.names, self.as_test)
            whole, part = (whole, side) if join.side == "LEFT" else (side, part)
            rest = loose
        elif at_once:
            on, rest = self.on_pairs(rest), loose
        self.check_pairs(whole, part, element, pairs)
        there = self.units(whole, join, pairs)
        lone = whole
        if there:
            whole, lone = apart(whole, there, self.catalog)
        if join.side == "RIGHT":
            self.check_first(element, join)
            return self.attach(part, whole, flipped(pairs), True, join, on), rest
        found = self.attach(whole, part, pairs, outer, join, on)
        if there and outer:
            found = together(found, self.attach(lone, without_rows(part), pairs, outer, join))
        return found, rest

    def is_without(self, element: FromElement) -> bool:
        """True if a later join keeps rows that have no partner among those joined so far.

        What is said of an earlier join is no condition on them.
        """
        after = itertools.dropwhile(lambda each: each[0] is not element, self.found)
        joins = [each.join for each, _ in itertools.islice(after, 1, None)]
        return any(join is not None and join.side in ("RIGHT", "FULL") for join in joins)

    def full(
        self,
        whole: JoinedPart,
        part: JoinedPart,
        element: FromElement,
        pairs: Pairs,
        rest: Sequence[exp.Expr],
    ) -> JoinedPart:
        """FULL JOIN of one table more: rows of either side stay without a partner."""
        join = element.join
        assert join is not None
        self.check_pairs(whole, part, element, pairs)
        self.check_first(element, join)
        on = self.on_pairs(rest)
        first = whole.members[0]
        merged = [(alias, name) for (alias, name), _ in pairs if join.using]
        if any(
            alias != first.alias.casefold() or not first.is_unit(name) for alias, name in merged
        ):
            self.refuse(join.node, "a FULL JOIN by USING", "write ON left.key = right.key")
        if self.units(whole, join, pairs):
            hint = "USING, or the unit of a table that all rows have"
            self.refuse(join.node, "a FULL JOIN by the unit of an outer side", hint)
        sides = (filtered(each, (), self.names, self.as_test) for each in (whole, part))
        whole, part = sides
        keys = self.keys.beside(whole, part, pairs, join)
        if on is not None:
            return joined_in_full_where(whole, part, keys, on)
        return joined_in_full(whole, part, keys, self.catalog)

    def on_pairs(self, tests: Sequence[exp.Expr]) -> PairConditions | None:
        """Conditions of an outer join on the rows of both sides; None without any."""
        for test in tests:
            if test.find(exp.Query):
                hint = "in WHERE, or in a sub-query in FROM"
                self.refuse(test, "a sub-query in a condition of an outer join", hint)
        if not tests:
            return None
        return PairConditions(tests, self.names, self.as_test, self.catalog, self.locate(tests[0]))

    def check_pairs(
        self, whole: JoinedPart, part: JoinedPart, element: FromElement, pairs: Pairs
    ) -> None:
        """Refuse a join without anything that both have."""
        if not pairs:
            (one,), two = part.members, whole.members[0]
            self.refuse(
                element.node,
                "a join of private tables that leaves out their privacy unit",
                f"rows of different units never meet: ON {_unit_of(two)} = {_unit_of(one)} works",
            )

    def units(self, whole: JoinedPart, join: Join, pairs: Pairs) -> tuple[str, ...]:
        """The columns that say whether rows have the units by which they are joined.

        A column that USING merges is there in every row.
        """
        members = [(whole.member(alias), name) for (alias, name), _ in pairs if not join.using]
        found = [m.exists for m, name in members if m is not None and m.exists and m.is_unit(name)]
        return tuple(dict.fromkeys(each.casefold() for each in found))

    def check_first(self, element: FromElement, join: Join) -> None:
        """Refuse a join that keeps rows which a join with public rows before it left out."""
        before = itertools.takewhile(lambda each: each[0] is not element, self.found)
        if any(each.alias not in self.private for each, _ in before):
            self.refuse(
                join.node,
                f"a {join.side} JOIN of private tables after public rows",
                "join the private tables first, then the public ones",
            )

    def attach(
        self,
        left: JoinedPart,
        right: JoinedPart,
        pairs: Pairs,
        outer: bool,
        join: Join,
        on: PairConditions | None = None,
    ) -> JoinedPart:
        """Join two parts: a lookup where one refers to the other, else pairs of rows of a unit."""
        keys = self.keys.beside(left, right, pairs, join)
        if on is not None and not outer:
            found = self.attach(left, right, pairs, False, join)
            return replace(found, relation=FilterRows(found.relation, on.over(found)))
        if on is not None:
            return joined_where(left, right, keys, is_lookup(left, right, keys), on)
        if is_lookup(left, right, keys):
            return attached(left, right, keys, outer, one=True)
        if not outer and is_lookup(right, left, flipped(keys)):
            return attached(right, left, flipped(keys), False, one=True)
        return attached(left, right, keys, outer, one=False)


def _is_borrowed(field: Field, table: Table) -> bool:
    """True if a column is the unit of a table that stores none."""
    stored = {key.casefold() for key in table.keys} | table.columns.keys()
    return field.hidden and table.unit.through is not None and field.name.casefold() not in stored


def _unit_of(member: MemberTable) -> str:
    return f"{printable(member.alias)}.{printable(str(member.table.unit.column))}"
