"""Views of the catalog that declare more than their SQL: how many rows of a unit count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import View
from dpsql.catalog.unit_local import FilterRows
from dpsql.errors import Span, printable
from dpsql.sql.cell_tests import as_test
from dpsql.sql.language import locate, refuse
from dpsql.sql.local_tables import named_source, relation_of, table_of
from dpsql.sql.parse import Statement
from dpsql.sql.products import Compiler
from dpsql.sql.relations import PrivateRows, Relation

_JOINS = "join public tables to the private one, or aggregate both sides in sub-queries first"


@dataclass(frozen=True, slots=True)
class DeclaredView:
    """A view that a statement names at ``node``."""

    node: exp.Table
    view: View
    statement: Statement
    compiler: Compiler

    def locate(self, node: exp.Expr) -> Span:
        return locate(node, self.statement.fragment)

    def refuse(self, what: str, hint: str) -> NoReturn:
        refuse(self.node, "E_JOIN", what, hint, self.locate)

    def rows(self, found: Relation) -> Relation:
        """What the view stands for: its rows are bounded after all that it does.

        Raises: NotSupportedError (E_JOIN); ProgrammingError.
        """
        most, name = self.view.max_rows, printable(self.view.name)
        if most is None:
            return found
        if not isinstance(found, PrivateRows):
            self.refuse(f"max_rows of the view {name}, which has no private rows,", _JOINS)
        if found.joins:
            hint = "join public tables in the statement"
            self.refuse(f"max_rows of the view {name}, which joins public rows,", hint)
        catalog = self.compiler.catalog
        relation = relation_of(catalog.find(found.source.name.casefold()))
        if found.where:
            fragment = self.statement.fragment
            relation = FilterRows(
                relation, as_test(found.source, found.where, fragment, self.compiler)
            )
        table = table_of(catalog, relation, self.view.name, most, self.locate(self.node))
        source = named_source(table.name, found.source.alias_or_name)
        return PrivateRows(source, (), (), found.fields, found.names)
