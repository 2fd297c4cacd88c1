"""Keys of several columns at once: one column whose cells are the combinations that were found.

Its values are texts of one part per column. No key has a control character, so the parts are told
apart beyond doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dpsql.catalog.catalog import SERVERS, Column, Table
from dpsql.catalog.discovery import SEPARATOR, Sought
from dpsql.catalog.domain import Values
from dpsql.records import replace

if TYPE_CHECKING:
    from dpsql.catalog.discovery import Key

MOST_PARTS = 3
"""Columns that keys may have together: the number of a combination fits 64 bits."""


def joint_name(parts: Iterable[str]) -> str:
    """Return the name of the column that columns make together.

    >>> joint_name(["product", "region"])
    'product, region'
    """
    return ", ".join(parts)


def join_key(parts: Iterable[Key]) -> str:
    """Return the text of a combination."""
    return SEPARATOR.join(map(str, parts))


def joint_column(columns: Sequence[Column]) -> Column:
    """Return the column of several whose keys nobody listed, before its keys are found.

    As many combinations of a unit count as keys of one of its columns do at most.
    """
    most = max(column.sought.max_keys for column in columns if column.sought is not None)
    parts = tuple((column.type, column.name.casefold()) for column in columns)
    label = join_key("" if column.other is None else str(column.other) for column in columns)
    sought = Sought("keys", most, parts=parts)
    return Column(joint_name(c.name for c in columns), "text", other=label, sought=sought)


def parts_of(column: Column) -> tuple[tuple[str, str], ...]:
    """Return the type and the name of the columns that one is made of; none for a stored one."""
    return () if column.sought is None else column.sought.parts


def joint_columns(table: Table) -> dict[str, Column]:
    """Return the columns of a table that are made of several, by case-folded name."""
    return {key: column for key, column in table.columns.items() if parts_of(column)}


def hidden_name(column: str, part: str) -> str:
    """Return the name under which a part of a column of several is read."""
    return f"{column}\0{part}"


def of_column(hidden: str, table: Table) -> bool:
    """Return whether a column, or that which it is a hidden part of, is one of a table."""
    return hidden.partition("\0")[0] in table.columns


def apart(table: Table) -> Table:
    """Return a table in which columns of several are read one by one, each on the keys it has."""
    joint = joint_columns(table)
    if not joint:
        return table
    columns = {key: each for key, each in table.columns.items() if key not in joint}
    for key, column in joint.items():
        for place, (kind, part) in enumerate(parts_of(column)):
            stored = table.columns[part].name if part in table.columns else part
            listed = tuple(dict.fromkeys(_values(column, place, kind)))
            hidden = Column(stored, kind, Values(listed))  # type: ignore[arg-type]
            columns[hidden_name(key, part)] = hidden
    return replace(table, columns=columns)


def _values(column: Column, place: int, kind: str) -> list[Key]:
    """Return the values at one place of every combination, in their order."""
    listed = () if column.domain is None else column.domain.representatives
    texts = [str(value).split(SEPARATOR)[place] for value in listed]
    return [int(text) for text in texts] if kind == "integer" else [*texts]


def stored_parts(table: Table, column: Column) -> list[Column]:
    """Return the stored columns that a column is made of."""
    return [table.columns[part] for _, part in parts_of(column)] or [column]


def sought_column(table: Table, column: str, sought: Sought) -> Column | None:
    """Return the column whose keys are to be found, or that of several; None for neither.

    Args:
        table: stored table that the column is of.
        column: its name, in any case; not looked at where several are sought together.
        sought: declaration of what is to be found; its parts name the columns of a composite key.

    Returns: None also for parts in a table on a server, whose keys are counted where its rows are.
    """
    if not sought.parts:
        return table.columns.get(column.casefold())
    parts = [table.columns.get(part) for part in sought.names]
    known = [each for each in parts if each is not None and each.sought is not None]
    is_sought = len(known) == len(parts) and table.engine not in SERVERS
    are_keys = all(each.sought is not None and each.sought.what == "keys" for each in known)
    return joint_column(known) if is_sought and are_keys else None


def describe_joint(column: Column) -> str:
    """Return a few words on the combinations of a column of several."""
    count = 0 if column.domain is None else column.domain.size
    return f"{count:,} combinations, else one row for all others"
