"""Private tables joined so far: what their columns are called, and how two parts are joined."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpsql.catalog import Table
from dpsql.catalog.read_units import key_pairs
from dpsql.records import dataclass, replace
from dpsql.relation.declared_keys import belong_together, name_units
from dpsql.relation.unit_local import JoinRows, UnitLocal
from dpsql.sql.relations import Field, PrivateRows

Side = tuple[str, str]
"""An alias and a column that rows are joined by, both case-folded."""
Pairs = Sequence[tuple[Side, Side]]


@dataclass(frozen=True, slots=True, eq=False)
class MemberTable:
    """One private table in FROM: what its columns are called in the joined rows.

    ``exists`` is the column that says whether a row has a part of it, None where every row has.
    """

    alias: str
    table: Table
    rows: PrivateRows
    fields: tuple[Field, ...]
    prefix: str = ""
    exists: str | None = None

    def below(self, join: JoinRows) -> MemberTable:
        """The same table on the right of a join."""
        prefix = f"{join.name}."
        exists = join.partner_of if join.outer else None
        exists = exists if self.exists is None else prefix + self.exists
        return replace(self, prefix=prefix + self.prefix, exists=exists)

    def is_unit(self, name: str) -> bool:
        """True if a column tells the privacy units apart."""
        unit = self.table.unit.column
        return unit is not None and name.casefold() == unit.casefold()

    def is_owner(self, name: str) -> bool:
        """True if a column is what rows belong to their unit by, and so never NULL."""
        way = self.table.unit.through
        return way is not None and name.casefold() in (own.casefold() for own, _ in way.on)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedPart:
    """Tables that are joined so far.

    ``root`` is the alias whose rows they are, each at most once; None where rows are pairs.
    """

    relation: UnitLocal
    members: tuple[MemberTable, ...]
    root: str | None
    most: int

    def member(self, alias: str) -> MemberTable | None:
        """The table of an alias, if it is one of these."""
        return next((each for each in self.members if each.alias == alias), None)


def _key_of(part: JoinedPart, side: Side) -> str:
    """The name of a key in joined rows."""
    member = part.member(side[0])
    assert member is not None
    return f"{member.prefix}{side[1]}".casefold()


def keys_of(left: JoinedPart, right: JoinedPart, keys: Pairs) -> tuple[tuple[str, str], ...]:
    """The names of keys in the rows on the left and on the right."""
    return tuple((_key_of(left, mine), _key_of(right, theirs)) for mine, theirs in keys)


def declares(left: JoinedPart, right: JoinedPart, keys: Pairs) -> bool:
    """True if the catalog declares a reference by these keys, or that they are of one unit."""
    flipped = [(two, one) for one, two in keys]
    whole = refers(left, right, keys) or refers(right, left, flipped)
    return whole or _are_of_units(left, right, keys)


def _are_of_units(left: JoinedPart, right: JoinedPart, keys: Pairs) -> bool:
    """True if keys of two tables are such that each value of them is, or belongs to, one unit."""
    found = _tables_of(left, right, keys)
    names = {(mine[1], theirs[1]) for mine, theirs in keys}
    tests = belong_together, name_units
    return found is not None and any(each(*found, names) for each in tests)


def _tables_of(left: JoinedPart, right: JoinedPart, keys: Pairs) -> tuple[Table, Table] | None:
    """The two tables that all keys are of, None where they are of more."""
    aliases = {(one[0], two[0]) for one, two in keys}
    if len(aliases) != 1:
        return None
    ((one_alias, two_alias),) = aliases
    one, two = left.member(one_alias), right.member(two_alias)
    return None if one is None or two is None else (one.table, two.table)


def refers(left: JoinedPart, right: JoinedPart, keys: Pairs) -> bool:
    """True if a table on the left refers to one on the right by just these keys."""
    found = _tables_of(left, right, keys)
    if found is None:
        return False
    one, two = found
    wanted = {(mine[1], theirs[1]) for mine, theirs in keys}
    for way in one.references:
        if way.table == two.name.casefold():
            declared = key_pairs(one, way, two) or ()
            if {(mine.casefold(), theirs.casefold()) for mine, theirs in declared} == wanted:
                return True
    return False


def is_lookup(left: JoinedPart, right: JoinedPart, keys: Pairs) -> bool:
    """True if a row on the left has at most one partner."""
    if not keys:
        return right.most == 1
    is_root = all(two[0] == right.root for _, two in keys)
    return is_root and refers(left, right, keys)


def free_names(taken: Sequence[MemberTable], *parts: JoinedPart) -> list[str]:
    """A name for each of some parts that are joined, which no table joined so far has.

    One that was joined in a sub-query has left its name in those of the columns.
    """
    columns = (f"{each.prefix}{name}" for each in taken for name in each.table.columns)
    used = {each.prefix.casefold() for each in taken}
    used |= {name[: dot.end()].casefold() for name in columns for dot in re.finditer(r"\.", name)}
    names: list[str] = []
    for part in parts:
        label = name = (part.member(part.root or "") or part.members[0]).table.title
        number = 2
        while f"{name}.".casefold() in used:
            name, number = f"{label} {number}", number + 1
        used.add(f"{name}.".casefold())
        names.append(name)
    return names


def attached(
    left: JoinedPart,
    right: JoinedPart,
    keys: Pairs,
    outer: bool,
    *,
    one: bool,
    name: str = "",
) -> JoinedPart:
    """Join two parts by keys within a unit; with ``one``, rows on the left have one partner."""
    name = name or free_names(left.members, right)[0]
    on = keys_of(left, right, keys)
    node = JoinRows(left.relation, right.relation, name, on, outer, one)
    members = (*left.members, *(each.below(node) for each in right.members))
    if one:
        return JoinedPart(node, members, left.root, left.most)
    flipped = [(theirs, mine) for mine, theirs in keys]
    # every row on the right has one partner; rows on the left without any are left over
    most = left.most * right.most
    if keys and is_lookup(right, left, flipped):
        most = left.most + right.most - 1
    return JoinedPart(node, members, None, most)
