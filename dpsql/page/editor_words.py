"""The words that the editor offers: tables, columns and declared values, all of them public."""

from __future__ import annotations

from dpsql.catalog import Catalog
from dpsql.catalog.catalog import Column, Table
from dpsql.catalog.describe import describe_values
from dpsql.dbapi.keywords import FUNCTIONS, KEYWORDS, STARTERS
from dpsql.page.json_shapes import Shape
from dpsql.sql.text.lexemes import render_literal

MOST_VALUES = 200
"""Declared values that are offered of a column: nobody chooses from more."""


def shape_vocabulary(known: Catalog) -> Shape:
    """The tables of a catalog with their columns, its views, and words of SQL."""
    return {
        "tables": [_shape_table(table) for table in known.tables.values()],
        "views": [view.name for view in known.views.values()],
        "keywords": KEYWORDS,
        "starters": STARTERS,
        "functions": FUNCTIONS,
    }


def _shape_table(table: Table) -> Shape:
    unit = table.unit.column
    kind = "synthetic" if table.synthetic else "public" if table.public else "private"
    return {
        "name": table.name,
        "kind": kind,
        "unit": unit or "row",
        "rows": table.unit.max_rows,
        "columns": [_shape_column(column) for column in table.columns.values()],
    }


def _shape_column(column: Column) -> Shape:
    cells = [cell for cell in column.cells[:MOST_VALUES] if cell is not None]
    return {
        "name": column.name,
        "type": column.type,
        "about": describe_values(column),
        "values": [render_literal(cell).strip("()") for cell in cells],
    }
