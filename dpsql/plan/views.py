"""The declared view of a request: which columns decide, table by table, whether a row counts.

All statements that are answered together see the same rows of a table: those with declared values
in the columns that any of them mentions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from dpsql.catalog.view import left_out, view_of

if TYPE_CHECKING:
    from dpsql.sql.compiled import Compiled

Views: TypeAlias = "Mapping[str, tuple[str, ...]]"
"""By case-folded name of a private table, the columns that leave out rows."""


def find_views(statements: Sequence[Compiled]) -> Views:
    """The view of every private table that statements which are answered together ask about."""
    tables = {
        select.query.table: select.table
        for item in statements
        for select in item.selects
        if not select.table.synthetic
    }
    mentioned: dict[str, set[str]] = {key: set() for key in tables}
    for item in statements:
        for select in item.selects:
            if not select.table.synthetic:
                mentioned[select.query.table] |= select.query.mentioned
    return {key: view_of(table, mentioned[key]) for key, table in tables.items()}


def notes_of(item: Compiled, views: Views) -> tuple[str, ...]:
    """What the views leave out of the tables of a statement, in words."""
    found = {
        left_out(select.table, views[select.query.table]): None
        for select in item.selects
        if select.query.table in views
    }
    return tuple(note for note in found if note is not None)


def view_lines(statements: Sequence[Compiled]) -> tuple[str, ...]:
    """What a forecast says about the rows that count, and what the domains decide."""
    views = find_views(statements)
    standing = dict.fromkeys(note for item in statements for note in notes_of(item, views))
    decided = dict.fromkeys(note for item in statements for note in item.decided)
    return (
        *(f"left out    {note}" for note in standing),
        *(f"declared    {note}" for note in decided),
    )
