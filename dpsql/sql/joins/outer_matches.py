"""True if a row of an outer join has a partner: what keys on the outer side are asked for."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.errors import Error
from dpsql.sql.joins.joined_part import MemberTable
from dpsql.sql.names import Names

WHOSE = " unit"
"""The hidden column with the privacy unit of joined rows, where no table is in all of them."""


def write_matches(node: exp.Select, members: Mapping[str, MemberTable], names: Names) -> None:
    """Say IS NULL and COUNT of a unit on the outer side of a join by whether there is a partner.

    So it is with what rows belong to their unit by, but with no other key, which may be NULL in a
    partner. COALESCE of the units of all tables is the unit of the row.
    """
    for merged in list(node.find_all(exp.Coalesce)):
        if merged.find_ancestor(exp.Query) is node and _is_unit(merged, members, names):
            merged.replace(_unit_of(members))
    for column in list(node.find_all(exp.Column)):
        member = members.get(_alias_of(column, names))
        if member is None or column.find_ancestor(exp.Query) is not node:
            continue
        name = _own_name(column, names)
        if member.exists is None:
            _tell_owner(column, name, member)
            continue
        if not member.is_unit(name) and not member.is_owner(name):
            continue
        partner = exp.column(
            exp.to_identifier(member.exists, quoted=True),
            exp.to_identifier(member.alias, quoted=True),
        )
        parent = column.parent
        if isinstance(parent, exp.Is) and isinstance(parent.expression, exp.Null):
            known = exp.Coalesce(this=partner, expressions=[exp.false()])
            parent.replace(exp.paren(exp.Not(this=known), copy=False))
            continue
        counted = _taken_by(column)
        if isinstance(counted, exp.Count) or (
            isinstance(counted, exp.Distinct) and member.is_unit(name)
        ):
            is_one = isinstance(counted, exp.Count)
            of = exp.Literal.number(1) if is_one else _unit_of(members)
            column.replace(exp.Case(ifs=[exp.If(this=partner, true=of)]))


def _taken_by(value: exp.Expr) -> exp.Expr | None:
    """The parent of a value, or of the CASE that it is a value of."""
    parent = value.parent
    is_value = value.arg_key != "this" or isinstance(parent, exp.Paren)
    is_case = isinstance(parent, exp.Case | exp.If | exp.Paren)
    return _taken_by(parent) if parent is not None and is_case and is_value else parent


def _tell_owner(column: exp.Column, name: str, member: MemberTable) -> None:
    """Say what is asked of what a row belongs to its unit by, in a table that all rows have."""
    is_owner, parent = member.is_owner(name), column.parent
    if isinstance(parent, exp.Count) and is_owner:
        column.replace(exp.Star())
    is_null = isinstance(parent, exp.Is) and isinstance(parent.expression, exp.Null)
    if parent is not None and is_null and (is_owner or member.is_unit(name)):
        parent.replace(exp.false())


def _unit_of(members: Mapping[str, MemberTable]) -> exp.Column:
    """The privacy unit of a row: that of a table that is in all rows, or else a column for it."""
    for each in members.values():
        if each.exists is None:
            return exp.column(str(each.table.unit.column), each.alias, quoted=True)
    return exp.column(WHOSE, next(iter(members)), quoted=True)


def _is_unit(merged: exp.Coalesce, members: Mapping[str, MemberTable], names: Names) -> bool:
    """True if COALESCE is of units alone, of which every row has one."""
    found = []
    for part in (merged.this, *merged.expressions):
        member = members.get(_alias_of(part, names)) if isinstance(part, exp.Column) else None
        if member is None or not member.is_unit(_own_name(part, names)):
            return False
        found.append(member)
    is_one = any(each.exists is None for each in found)
    return is_one or {each.alias for each in found} == set(members)


def _own_name(column: exp.Column, names: Names) -> str:
    """The table's own name of a column that a sub-query may have renamed."""
    try:
        found = names.find(column)
    except Error:
        return column.name
    inner = None if found is None else found.unnest()
    return inner.name if isinstance(inner, exp.Column) else column.name


def _alias_of(column: exp.Column, names: Names) -> str:
    """The table that a name is a column of; as it is written where that is not clear."""
    try:
        place = None if column.table else names.place(column)
    except Error:
        place = None
    return column.table.casefold() if place is None else names.sources[place[0]][0]
