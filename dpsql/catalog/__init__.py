"""What is public: tables, columns, domains, bounds, privacy units and the total budget."""

from dpsql.catalog.catalog import Budget, Catalog, Column, Table, Unit, View

__all__ = ["Budget", "Catalog", "Column", "Table", "Unit", "View"]
