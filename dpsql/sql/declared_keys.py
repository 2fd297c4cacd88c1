"""Whether rows of two private tables belong together by some keys: what the catalog declares."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.catalog import Table
from dpsql.catalog.read_units import key_pairs
from dpsql.catalog.unit_local import DerivedTable


def is_declared(table: Table, other: Table, keys: Sequence[tuple[str, str]]) -> bool:
    """Whether the catalog declares a reference by these keys, one way or the other.

    Rows that belong to their unit through the same row of a third table belong together, too.
    """
    wanted = {(own.rsplit(".", 1)[-1], theirs.rsplit(".", 1)[-1]) for own, theirs in keys}
    flipped = {(theirs, own) for own, theirs in wanted}
    return any(
        _refers(one, two, wanted) or _refers(two, one, flipped) or _are_siblings(one, two, wanted)
        for one in _stored(table)
        for two in _stored(other)
    )


def _stored(table: Table) -> tuple[Table, ...]:
    return table.bases if isinstance(table, DerivedTable) else (table,)


def _are_siblings(one: Table, two: Table, keys: set[tuple[str, str]]) -> bool:
    """Whether rows of two tables belong to their units through the same row of a third."""
    ways = one.unit.through, two.unit.through
    if ways[0] is None or ways[1] is None or ways[0].table != ways[1].table:
        return False
    theirs = {key: name for name, key in ways[1].on}
    meets = {(name, theirs.get(key, "")) for name, key in ways[0].on}
    return keys == {(a.casefold(), b.casefold()) for a, b in meets}


def _refers(table: Table, other: Table, keys: set[tuple[str, str]]) -> bool:
    declared = (
        key_pairs(table, way, other) or ()
        for way in table.references
        if way.table == other.name.casefold()
    )
    return any({(a.casefold(), b.casefold()) for a, b in pairs} == keys for pairs in declared)
