"""Whether a row of an outer join has a partner: what keys on the outer side are asked for."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.errors import Error
from dpsql.sql.joined_part import MemberTable
from dpsql.sql.names import Names


def tell_partners(node: exp.Select, members: Mapping[str, MemberTable], names: Names) -> None:
    """Say IS NULL and COUNT of a key on the outer side of a join by whether there is a partner."""
    for column in list(node.find_all(exp.Column)):
        member = members.get(_alias_of(column, names))
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
    distinct: exp.Distinct, partner: exp.Column, members: Mapping[str, MemberTable]
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


def _alias_of(column: exp.Column, names: Names) -> str:
    """The table that a name is a column of; as it is written where that is not clear."""
    try:
        place = None if column.table else names.place(column)
    except Error:
        place = None
    return column.table.casefold() if place is None else names.sources[place[0]][0]
