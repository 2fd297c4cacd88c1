"""True if rows of two private tables belong together by some keys: what the catalog declares."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from dpsql.catalog.catalog import Table
from dpsql.catalog.read_units import key_pairs, ways_of
from dpsql.relation.unit_local import DerivedTable


def is_declared(table: Table, other: Table, keys: Sequence[tuple[str, str]]) -> bool:
    """True if the catalog declares a reference by these keys, one way or the other.

    Rows that belong to their unit through the same row of a third table belong together, too, and
    so do those with the same value of a key that is of one unit.

    Args:
        table, other: stored or derived ones, of which the stored tables below are looked at.
        keys: pairs of columns that rows meet by, the one of ``table`` first.
    """
    wanted = _bare(keys)
    flipped = {(theirs, own) for own, theirs in wanted}
    return any(
        _refers(one, two, wanted)
        or _refers(two, one, flipped)
        or _are_siblings(one, two, wanted)
        or _are_of_units(one, two, wanted)
        or _is_of_unit(one, two, wanted)
        for one in _stored(table)
        for two in _stored(other)
    )


def _stored(table: Table) -> tuple[Table, ...]:
    return table.bases if isinstance(table, DerivedTable) else (table,)


def _are_siblings(one: Table, two: Table, keys: set[tuple[str, str]]) -> bool:
    """True if rows of two tables belong to their units through the same row of a third."""
    ways = one.unit.through, two.unit.through
    if ways[0] is None or ways[1] is None or ways[0].table != ways[1].table:
        return False
    theirs = {key: name for name, key in ways[1].on}
    meets = {(name, theirs.get(key, "")) for name, key in ways[0].on}
    return keys == {(a.casefold(), b.casefold()) for a, b in meets}


def belong_together(table: Table, other: Table, keys: Collection[tuple[str, str]]) -> bool:
    """True if rows that agree in keys, case-folded, are of one unit as the catalog declares it.

    Args:
        table, other: stored or derived ones, of which the stored tables below are looked at.
        keys: pairs of columns that rows agree in, the one of ``table`` first.
    """
    wanted = _bare(keys)
    return any(_are_of_units(one, two, wanted) for one in _stored(table) for two in _stored(other))


def _bare(keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Pairs of keys as their own tables call them."""
    return {(own.rsplit(".", 1)[-1], theirs.rsplit(".", 1)[-1]) for own, theirs in keys}


def _are_of_units(one: Table, two: Table, keys: Set[tuple[str, str]]) -> bool:
    """True if keys, case-folded, are of one unit, and the same column or part of a reference."""
    known = [{key.casefold() for key in each.unit_keys} for each in (one, two)]
    if not keys or any(own not in known[0] or theirs not in known[1] for own, theirs in keys):
        return False
    if one.name.casefold() == two.name.casefold():
        return all(own == theirs for own, theirs in keys)
    flipped = {(theirs, own) for own, theirs in keys}
    return any(
        {(a.casefold(), b.casefold()) for a, b in way.on} >= wanted
        for table, other, wanted in ((one, two, keys), (two, one, flipped))
        for way in ways_of(table)
        if way.table == other.name.casefold()
    )


def name_units(table: Table, other: Table, keys: Collection[tuple[str, str]]) -> bool:
    """True if a key, case-folded, of one table holds ids of units, and that of the other its own.

    Rows meet by it within their unit alone, as by any key.

    Args:
        table, other: stored or derived ones, of which the stored tables below are looked at.
        keys: pairs of columns that rows meet by, the one of ``table`` first.
    """
    wanted = _bare(keys)
    return any(_is_of_unit(one, two, wanted) for one in _stored(table) for two in _stored(other))


def _is_of_unit(one: Table, two: Table, keys: Set[tuple[str, str]]) -> bool:
    if len(keys) != 1 or one.unit.name != two.unit.name:
        return False
    ((own, theirs),) = keys
    return _names_unit(one, own, two, theirs) or _names_unit(two, theirs, one, own)


def _names_unit(table: Table, key: str, other: Table, unit: str) -> bool:
    is_unit = (other.unit.column or "").casefold() == unit and other.unit.through is None
    return is_unit and key in map(str.casefold, table.unit_columns)


def _refers(table: Table, other: Table, keys: set[tuple[str, str]]) -> bool:
    declared = (
        key_pairs(table, way, other) or ()
        for way in table.references
        if way.table == other.name.casefold()
    )
    return any({(a.casefold(), b.casefold()) for a, b in pairs} == keys for pairs in declared)
