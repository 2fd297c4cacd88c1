"""The catalog of public facts: tables, columns, domains, bounds, privacy units, the total budget.

``read``, ``read_domain`` and ``read_discovery`` read a TOML file strictly, ``draft`` writes a first
one, and ``describe`` tells what is declared. ``read_units`` follows references between tables.

Its nouns: a *table* has a source and a *unit*, whose rows privacy protects together; a *column* has
a *domain*, which lists its *cells*: values, ranges of integers, *bins* or *periods* of dates; its
*bounds* clip what is added up; a *view* is a SELECT with a name; a *budget* is a total epsilon.
"""

from dpsql.catalog.catalog import Budget, Catalog, Column, Table, Unit, View

__all__ = ["Budget", "Catalog", "Column", "Table", "Unit", "View"]
