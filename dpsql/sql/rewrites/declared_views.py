"""Views of the catalog: CTEs, of which some declare more than their SQL.

They declare how many rows of a unit count, and what counts and sums by unit may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog, View
from dpsql.catalog.catalog import OF_CATALOG, VIEW, Column
from dpsql.errors import Span, printable
from dpsql.records import dataclass, replace
from dpsql.relation.unit_local import FilterRows, PerUnit, Summary, UnitLocal, WindowRows
from dpsql.sql.cells.cell_tests import as_test
from dpsql.sql.products import Compiler
from dpsql.sql.relations import PrivateRows, Relation
from dpsql.sql.rewrites.qualified import unqualified
from dpsql.sql.shell.language import Locate, locate, refuse
from dpsql.sql.text.parse import Statement, parse_view
from dpsql.sql.units.local_tables import named_source, relation_of, table_of

_NUMBERS = (
    *("count", "distinct", "sum", "mean", "distinct_sum", "distinct_mean"),
    *("row_number", "rank", "dense_rank", "running_count", "running_sum", "since_previous"),
)
_COLUMNS = "a view may declare its COUNT, SUM and AVG by unit, and numbers of windows, as they are"
_JOINS = "join public tables to the private one, or aggregate both sides in sub-queries first"


@dataclass(frozen=True, slots=True)
class DeclaredView:
    """A view that a statement names first at ``node``."""

    node: exp.Expr
    view: View
    statement: Statement
    compiler: Compiler

    def locate(self, node: exp.Expr) -> Span:
        return locate(node, self.statement.fragment)

    def refuse(self, what: str, hint: str) -> NoReturn:
        refuse(self.node, "E_JOIN", what, hint, self.locate)

    def rows(self, found: Relation) -> Relation:
        """The relation that the view stands for: its rows are bounded after all that it does.

        Raises: NotSupportedError (E_JOIN); ProgrammingError.
        """
        if self.view.columns:
            found = self.declared(found)
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

    def declared(self, found: Relation) -> PrivateRows:
        """The rows with counts and sums as the view declares them; values beyond are clipped."""
        if not isinstance(found, PrivateRows):
            self.refuse(f"columns of the view {printable(self.view.name)}", _COLUMNS)
        table = self.compiler.catalog.find(found.source.name.casefold())
        values = {each.name.casefold(): each.value.unnest() for each in found.fields}
        given: dict[str, Column] = {}
        for name, column in self.view.columns.items():
            value = values.get(name)
            if not isinstance(value, exp.Column):
                self.refuse(f"the declaration of {printable(column.name)} in a view", _COLUMNS)
            given[value.name.casefold()] = column
        relation = redeclared(relation_of(table), given)
        if relation is None:
            names = ", ".join(printable(each.name) for each in self.view.columns.values())
            self.refuse(f"the declaration of {names} in a view", _COLUMNS)
        label, most = table.name.split(" #")[0], table.unit.max_rows
        other = table_of(self.compiler.catalog, relation, label, most, self.locate(self.node))
        source = named_source(other.name, found.source.alias_or_name)
        return replace(found, source=source, plain=False)


def redeclared(relation: UnitLocal, given: Mapping[str, Column]) -> UnitLocal | None:
    """A relation with other declarations of counts and sums by unit; None if it has not all."""
    match relation:
        case PerUnit(columns=columns):
            found = tuple(_with(each, given) for each in columns)
            names = {each.column.name.casefold() for each in columns if each.kind in _NUMBERS}
            return replace(relation, columns=found) if given.keys() <= names else None
        case WindowRows(rows, column):
            own = given.get(column.name.casefold())
            rest = {name: each for name, each in given.items() if each is not own}
            inner = redeclared(rows, rest) if rest else rows
            if inner is None or (own is not None and relation.kind not in _NUMBERS):
                return None
            column = column if own is None else replace(own, name=column.name)
            return replace(relation, rows=inner, column=column)
    return None


def _with(summary: Summary, given: Mapping[str, Column]) -> Summary:
    own = given.get(summary.column.name.casefold())
    if own is None or summary.kind not in _NUMBERS:
        return summary
    return replace(summary, column=replace(own, name=summary.column.name))


def with_views(tree: exp.Expr, catalog: Catalog, locate: Locate) -> exp.Expr:
    """A statement in which the views that it names are CTEs before its own.

    Raises: NotSupportedError (E_CTE) for a view of itself.
    """
    views = _Views(catalog, locate)
    if not any(map(views.find, tree.find_all(exp.Table))):
        return tree
    copy = tree.copy()
    views.taken = {cte.alias.casefold() for cte in copy.find_all(exp.CTE)}
    views.name(copy)
    clause = copy.args.get("with_")
    own = [] if clause is None else clause.expressions
    copy.set("with_", exp.With(expressions=[*views.ctes.values(), *own]))
    return copy


class _Views:
    """Writes the views of one statement as CTEs, those that others name before these."""

    def __init__(self, catalog: Catalog, locate: Locate) -> None:
        self.catalog = catalog
        self.locate = locate
        self.taken: set[str] = set()
        self.reading: list[str] = []
        self.ctes: dict[str, exp.CTE] = {}

    def find(self, node: exp.Table) -> View | None:
        """Return the view that a name in FROM stands for."""
        hidden = _cte_of(node) is not None and OF_CATALOG not in node.meta
        return (
            None if hidden or node.args.get("db") else self.catalog.views.get(node.name.casefold())
        )

    def name(self, tree: exp.Expr) -> None:
        """Let a query name the CTEs of its views."""
        for node in list(tree.find_all(exp.Table)):
            view = self.find(node)
            if view is None:
                continue
            name = view.name.casefold()
            own = exp.to_identifier(f"{name} of catalog" if name in self.taken else name, True)
            own.meta.update(node.this.meta)
            if name in self.reading:
                what, hint = f"the view {printable(name)} of itself", "drop the cycle"
                refuse(node, "E_CTE", what, hint, self.locate)
            if name not in self.ctes:
                self.reading.append(name)
                inner = self.parsed(node, view)
                self.name(inner)
                self.reading.pop()
                cte = exp.CTE(this=inner, alias=exp.TableAlias(this=own.copy()))
                cte.meta[VIEW] = name
                self.ctes[name] = cte
            if not node.args.get("alias"):
                node.set("alias", exp.TableAlias(this=node.this))
            node.set("this", own)
            node.meta.pop(OF_CATALOG, None)

    def parsed(self, node: exp.Table, view: View) -> exp.Expr:
        """Return the query of a view; its parts are located where the view is named."""
        tree = unqualified(parse_view(view.sql), self.catalog)
        place = next((part.meta for part in node.walk() if "start" in part.meta), {})
        for part in tree.walk():
            for key in ("start", "end", "line", "col"):
                part.meta.pop(key, None)
            if isinstance(part, exp.Identifier | exp.Star):
                part.meta.update(place)
        return tree


def _cte_of(node: exp.Table) -> exp.CTE | None:
    """The CTE that a name in FROM stands for; those after it in WITH are not known to it."""
    for clause, own in _clauses_around(node):
        for cte in clause.expressions:
            if cte is own:
                break
            if cte.alias.casefold() == node.name.casefold() and not node.args.get("db"):
                found: exp.CTE = cte
                return found
    return None


def _clauses_around(node: exp.Expr) -> Iterator[tuple[exp.With, exp.Expr | None]]:
    """Every WITH around a node, with the CTE in it that the node stands in."""
    own, around = None, node.parent
    while around is not None:
        clause = around.args.get("with_")
        if clause is not None:
            yield clause, own
        own = around if isinstance(around, exp.CTE) else own
        around = around.parent
