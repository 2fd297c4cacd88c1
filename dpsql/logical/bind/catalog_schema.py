"""The tables of a catalog, as statements may name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dpsql.catalog.catalog import Catalog, Table, names_of
from dpsql.logical.bind.scope import SchemaColumn
from dpsql.records import dataclass


@dataclass(frozen=True, slots=True)
class CatalogSchema:
    """Return the schema of a catalog; ``public`` gives all columns of a public table."""

    catalog: Catalog
    public: Callable[[Table], Iterable[str]]

    def columns(self, table: str) -> Sequence[SchemaColumn] | None:
        """The columns of a table; of a private one the unit and keys are hidden if undeclared."""
        found = self.catalog.tables.get(table)
        if found is None:
            return None
        if found.public:
            return [SchemaColumn(name) for name in self.public(found)]
        unit = found.unit.column if found.unit.through is not None else None
        return [SchemaColumn(name, hidden, name == unit) for name, hidden in names_of(found)]

    def most_rows(self, view: str) -> int | None:
        """The rows of a view that each privacy unit has at most."""
        return self.catalog.views[view].max_rows
