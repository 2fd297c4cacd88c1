"""Columns that number the rows of a unit: how many rows have one of their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dpsql.catalog.catalog import Column
from dpsql.relation.unit_local import FilterRows, JoinRows, MeetRows, UnitLocal, WindowRows


def rows_of_number(relation: UnitLocal, name: str, columns: Mapping[str, Column]) -> int | None:
    """Count the rows of a unit with one number of a column; None if it does not number rows.

    Rows beyond the last number that is declared have the last one.

    Args:
        relation: steps that make the column, or pass it on.
        name: case-folded.
        columns: declarations of the relation's columns; NULL is one more value to number by.
    """
    match relation:
        case WindowRows(_, column) if column.name.casefold() == name:
            if relation.kind != "row_number":
                return None
            return math.prod(columns[each].size + 1 for each in relation.by)
        case MeetRows(left) if name != relation.partner_of.casefold():
            return rows_of_number(left, name, columns)
        case JoinRows(left, one=True) if not relation.name.casefold().startswith(f"{name}."):
            return rows_of_number(left, name, columns)
        case WindowRows(rows) | FilterRows(rows):
            return rows_of_number(rows, name, columns)
    return None
