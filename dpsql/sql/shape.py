"""The shape of a statement: which of its SELECTs are inlined, which measured, and which are shell.

Rows of a private table flow inwards to outwards through SELECTs that only project and filter; the
first SELECT that aggregates them is measured; everything around it is the outer shell.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import View
from dpsql.catalog.catalog import OF_CATALOG, VIEW, PublicRows, names_of
from dpsql.errors import ProgrammingError, Span, printable
from dpsql.logical.bind.scope import SharedQuery
from dpsql.logical.bind.subqueries import SubqueryBinder, SubqueryNames
from dpsql.logical.functions import has_aggregates
from dpsql.records import cached_property, dataclass, replace
from dpsql.relation.unit_local import Test
from dpsql.sql.bind import leaf_of
from dpsql.sql.cells.cell_tests import as_test
from dpsql.sql.cells.constant_conditions import LIMITED
from dpsql.sql.groups.answer_parts import in_parts, needs_parts
from dpsql.sql.inline import FlatFrom, FlatSource
from dpsql.sql.joins.joined_names import AbsorbedTable
from dpsql.sql.joins.private_joins import PrivateJoin
from dpsql.sql.names import Names
from dpsql.sql.products import Compiler
from dpsql.sql.public.lookup_joins import flat_without_public, without_public
from dpsql.sql.public.outer_public_rows import OuterPublicRows, matched
from dpsql.sql.public.public_filters import picked
from dpsql.sql.public.public_subqueries import PublicSubqueries
from dpsql.sql.relations import (
    Field,
    FromElement,
    MeasuredSelect,
    PrivateRows,
    PublicTable,
    Relation,
    ShellTable,
    as_values,
    column_of,
    find_clause,
    find_table,
)
from dpsql.sql.rewrites.declared_views import DeclaredView
from dpsql.sql.rewrites.lateral_aliases import columns_of, expand_aliases
from dpsql.sql.rewrites.natural_joins import read_sources
from dpsql.sql.rewrites.series import not_written_out
from dpsql.sql.rewrites.star_items import is_spread
from dpsql.sql.shell.expressions import refuse_rows
from dpsql.sql.shell.language import locate, refuse
from dpsql.sql.shell.layers import Layers
from dpsql.sql.shell.over_tables import FromTable, TableExpressions
from dpsql.sql.shell.set_operations import set_operation
from dpsql.sql.shell.tables import Tables
from dpsql.sql.subqueries.result_subqueries import needs_split, split
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.extreme_rows import row_taken
from dpsql.sql.units.per_unit import UnitRows, is_per_unit, refuse_units, table_under
from dpsql.sql.units.private_sets import PrivateSets
from dpsql.sql.units.row_steps import over_own_columns
from dpsql.sql.units.unit_windows import UnitWindows, has_windows

_JOINS = "join public tables to the private one, or aggregate both sides in sub-queries first"


@dataclass(slots=True, eq=False)
class NamedQuery:
    """A CTE, or the view that is written as one: read when it is first mentioned."""

    tree: exp.Expr
    env: Env
    alias: exp.Expr
    view: View | None = None
    relation: Relation | None = None
    query: SharedQuery | None = None


Env = dict[str, NamedQuery]


class Shape:
    """Turns the queries of one statement into relations."""

    def __init__(self, statement: Statement, compiler: Compiler, public: PublicRows) -> None:
        self.statement = statement
        self.compiler = compiler
        self.catalog = compiler.catalog
        self.tables = Tables(compiler, public, self.locate)
        self.named: list[NamedQuery] = []
        self.sides: dict[tuple[int, ...], tuple[Relation, object]] = {}
        self.root: exp.Expr | None = None

    def locate(self, node: exp.Expr) -> Span:
        """The span of text that ``node`` was parsed from."""
        return locate(node, self.statement.fragment)

    def refuse(self, node: exp.Expr, code: str, what: str, hint: str) -> NoReturn:
        refuse(node, code, what, hint, self.locate)

    def whole(self, tree: exp.Expr) -> Relation:
        """The relation of the statement itself, which no rows can be."""
        self.root = tree
        found = self.relation(tree, {})
        if isinstance(found, PrivateRows):
            if tree.args.get("group"):
                refuse_units(tree, self.locate)
            refuse_rows(tree, self.locate)
        return found

    def relation(self, node: exp.Expr, env: Env, around: Names | None = None) -> Relation:
        """The relation that a query, a table or a list of values in FROM stands for."""
        if isinstance(node, exp.Subquery):
            return self.parenthesis(node, env, around)
        if isinstance(node, exp.SetOperation):
            return self.combine(node, env, around)
        if isinstance(node, exp.Select):
            return self.select(node, env, around)
        if isinstance(node, exp.Values):
            return self.tables.values(node)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self.table(node, env)
        if isinstance(node, exp.Lateral):
            self.refuse(node, "E_JOIN", "LATERAL", _JOINS)
        self.refuse(node, *not_written_out(node))

    def parenthesis(self, node: exp.Subquery, env: Env, around: Names | None) -> Relation:
        """A query in parentheses, which may have an order of its own."""
        env = self.opened(node, env)
        self.check_clauses(node, ("this", "alias", "with_", "order", "limit", "offset"))
        return self.ordered(node, self.relation(node.this, env, around))

    def ordered(self, node: exp.Expr, found: Relation) -> Relation:
        """ORDER BY, LIMIT and OFFSET after parentheses or a set operation."""
        clauses = {key: node.args.get(key) for key in ("order", "limit", "offset")}
        if not any(clauses.values()):
            return found
        if isinstance(found, PrivateRows):
            if node.args.get("limit") or node.args.get("offset"):
                self.refuse(node, "E_LIMIT", "LIMIT on rows", "LIMIT an aggregated result")
            return found
        placed = [FromTable(FromElement("", node), self.tables.known(found))]
        return self.shell(exp.Select(expressions=[exp.Star()], **clauses), placed, {}, None)

    def opened(self, node: exp.Expr, env: Env) -> Env:
        """The names that WITH adds."""
        clause = node.args.get("with_")
        if clause is None:
            return env
        if clause.args.get("recursive"):
            self.refuse(clause, "E_CTE", "WITH RECURSIVE", "a CTE may use those before it")
        env = dict(env)
        added: set[str] = set()
        for each in clause.expressions:
            name = each.alias.casefold()
            known = ("this", "alias", "materialized")
            extra = [k for k, v in each.args.items() if v and k not in known]
            if extra:
                self.refuse(each, "E_CTE", f"WITH ... {extra[0].upper()}", "WITH a AS (SELECT ...)")
            if name in added:
                raise ProgrammingError(
                    "E_CTE",
                    f"{printable(each.alias)!r} is defined twice",
                    hint="give each its own name",
                    span=self.locate(each),
                )
            added.add(name)
            view = self.catalog.views.get(each.meta.get(VIEW, ""))
            env[name] = NamedQuery(each.this, dict(env), each.args["alias"], view)
            self.named.append(env[name])
        return env

    def check_unused(self) -> None:
        """Names in CTEs that nothing uses are checked too; they are not measured."""
        if not (unused := [each for each in self.named if each.relation is None]):
            return
        other = Shape(self.statement, self.compiler, self.tables.public)
        other.tables, other.binder = self.tables.copy(), self.binder
        for each in unused:
            other.read(each)

    @cached_property
    def binder(self) -> SubqueryBinder:
        """The binder of queries that stand in no statement any more."""
        return SubqueryBinder(self.catalog, self.tables.public)

    def names(self, select: exp.Select, env: Env) -> SubqueryNames | None:
        """The names of the FROM of a SELECT, which sees these CTEs; None where it does not bind."""
        return self.binder.names(select, self.seen(env))

    def seen(self, env: Env) -> dict[str, SharedQuery]:
        """The CTEs of names, as the binder reads them."""
        found: dict[str, SharedQuery] = {}
        for name, each in env.items():  # those that one sees come before it
            if each.query is None:
                given = tuple(column.name for column in each.alias.args.get("columns") or ())
                view = "" if each.view is None else each.view.name.casefold()
                each.query = SharedQuery(each.tree, given, self.seen(each.env), view)
            found[name] = each.query
        return found

    def read(self, named: NamedQuery) -> Relation:
        """The relation that a CTE or a view stands for."""
        if named.relation is None:
            named.relation = self.relation(named.tree, named.env)
            if named.view is not None:
                view = (named.view, self.statement, self.compiler)
                named.relation = DeclaredView(named.alias, *view).rows(named.relation)
        return self.tables.aliased(named.relation, named.alias)

    def table(self, node: exp.Table, env: Env) -> Relation:
        """A table of FROM by name: a CTE, a table of the catalog or a view."""
        self.check_clauses(node, ("this", "alias", "db", "catalog"))
        name = node.name.casefold()
        if name in env and not node.args.get("db") and OF_CATALOG not in node.meta:
            return self.read(env[name])
        others = {*(view.name for view in self.catalog.views.values()), *env}
        table = find_table(self.catalog, node, sorted(others), self.locate)
        if table.public:
            return PublicTable(table, node)
        alias = node.alias_or_name
        fields = tuple(
            Field(name, column_of(name, alias), hidden) for name, hidden in names_of(table)
        )
        source = exp.Table(this=node.this.copy())
        source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        used = frozenset({alias.casefold()})
        return PrivateRows(source, (), (), fields, used, plain=True)

    def check_clauses(self, node: exp.Expr, known: tuple[str, ...]) -> None:
        """Refuse what follows a table or parentheses and is not ``known``."""
        if (found := find_clause(node, known)) is not None:
            code, what, value = found
            first = value[0] if isinstance(value, list) else value
            self.refuse(first if isinstance(first, exp.Expr) else node, code, what, _JOINS)

    def combine(self, node: exp.SetOperation, env: Env, around: Names | None) -> Relation:
        """UNION, INTERSECT and EXCEPT of aggregated results, or of rows of one unit."""
        env = self.opened(node, env)
        if isinstance(node, exp.Union) and not node.args.get("distinct"):
            from dpsql.sql.units.row_unions import united_rows  # few unions are of rows

            read = partial(self.side, env=env, around=around)
            rows = united_rows(node, read, self.statement, self.compiler)
            if rows is not None:
                return self.ordered(node, rows)
        parts = (node.this, node.expression)
        one, other = (self.side(part, env, around) for part in parts)
        if isinstance(one, PrivateRows) and isinstance(other, PrivateRows):
            sets = PrivateSets(node, self.statement, self.compiler)
            return self.ordered(node, sets.rows(one, other))
        for part, side in zip(parts, (one, other), strict=True):
            if isinstance(side, PrivateRows):
                hint = "aggregate each part: SELECT COUNT(*) ... UNION ALL SELECT COUNT(*) ..."
                self.refuse(part, "E_SET_OP", f"{node.key.upper()} of private rows", hint)
        left, right = (self.tables.known(each) for each in (one, other))
        text, known = set_operation(node, self.tables.fresh(), left, right, self.locate)
        return self.ordered(node, self.tables.add(text, known, node))

    def side(self, node: exp.Expr, env: Env, around: Names | None) -> Relation:
        """A side of a set operation, read once though those around it may look at it, too."""
        key = id(node), id(env), id(around)
        if key not in self.sides:
            self.sides[key] = self.lean(node, env, around, False), (node, env, around)
        return self.sides[key][0]

    def lean(self, node: exp.Expr, env: Env, around: Names | None, once: bool) -> Relation:
        """A query over private rows, without public ones where these only pick rows."""
        found = self.relation(node, env, around)
        if isinstance(found, PrivateRows) and found.joins and isinstance(node, exp.Select):
            tree = self.picked(node, env, once)
            found = found if tree is node else self.relation(tree, env, around)
        return self.bare(found, node)

    def picked(self, node: exp.Select, env: Env, once: bool) -> exp.Select:
        """A SELECT without public tables that only pick its rows."""
        return picked(node, self.names(node, env), self.binder, once)

    def bare(self, found: Relation, node: exp.Expr) -> Relation:
        """Private rows without public ones, where these are looked up by their keys."""
        if not isinstance(found, PrivateRows) or not found.joins:
            return found
        return without_public(found, node, self.statement, self.compiler, self.tables.public)

    def select(self, node: exp.Select, env: Env, around: Names | None) -> Relation:
        """A SELECT over rows, over tables of the shell, or over nothing."""
        inner, is_root = self.opened(node, env), node is self.root
        given = (self.tables.public, self.locate)
        found, notes = read_sources(node, lambda each: self.relation(each, inner), *given)
        self.tables.notes += notes
        if is_spread(node):
            # few items are about all columns
            from dpsql.sql.rewrites.columns_items import expand_column_lists, sources_of

            node = expand_column_lists(
                node, sources_of(found, *given), self.compiler.evaluator, self.locate
            )
        node = expand_aliases(node, lambda: columns_of(found, self.tables.public), self.locate)
        self.root = node if is_root else self.root
        private = [each for each, relation in found if isinstance(relation, PrivateRows)]
        if len(private) > 1:
            found = [(each, self.bare(relation, each.node)) for each, relation in found]
            joined, parts = PrivateJoin(found, self.catalog, self.locate, self.test).select(node)
            return self.over_rows(joined, parts, inner, around)
        if private:
            facts = (self.catalog, self.compiler.evaluator, self.tables.keys, self.locate)
            whole, placed_parts, kept = matched(node, found, *facts)
            return self.over_rows(whole, placed_parts, inner, around, kept)
        placed = []
        for each, relation in found:
            renamed = self.tables.aliased(relation, each.node.args.get("alias"))
            placed.append(FromTable(each, self.tables.known(renamed)))
        return self.shell(node, placed, inner, around)

    def test(self, source: exp.Table, where: Sequence[exp.Expr]) -> Test:
        """The test that conditions hold for the rows of a private table."""
        return as_test(source, where, self.statement.fragment, self.compiler)

    def over_rows(
        self,
        node: exp.Select,
        found: Sequence[tuple[FromElement, Relation | AbsorbedTable]],
        env: Env,
        around: Names | None = None,
        kept: OuterPublicRows | None = None,
    ) -> Relation:
        """A SELECT over rows of a private table: inlined, or measured if it aggregates."""
        sources = [self.source(each, relation) for each, relation in found]
        is_root = node is self.root
        values = PublicSubqueries(
            lambda q, names: self.relation(q, env, names), self.tables, self.locate
        )
        flat = FlatFrom(sources, self.locate, values)
        flat.names.parent = around
        facts, public = (self.statement, self.compiler), self.tables.public
        whole = node
        node = over_own_columns(
            flat,
            node,
            *facts,
            lambda q: self.lean(q, env, None, True),
            lambda q: self.names(q, env),
        )
        table = table_under(flat, self.compiler)
        if is_per_unit(flat, node, table):
            taken = row_taken(whole, table, flat.resolve) if node is whole else None
            if taken is not None:
                return self.relation(taken, env, around)
            tree = self.picked(whole, env, False) if flat.joins else whole
            if tree is not whole:
                return self.relation(tree, env, around)
            if is_root:
                return self.leaf(flat.aggregate(node), node)  # refused at the key
            node = flat_without_public(flat, node, *facts, public) if flat.joins else node
            return UnitRows(flat, table_under(flat, self.compiler), *facts).rows(node)
        aggregated = has_aggregates(node) or bool(node.args.get("group"))
        if not aggregated and not node.args.get("having"):
            if is_root:
                return self.leaf(flat.aggregate(node), node)  # refused as rows
            if has_windows(node) and table.unit.column is not None:
                node = flat_without_public(flat, node, *facts, public) if flat.joins else node
                return UnitWindows(flat, table_under(flat, self.compiler), *facts).rows(node)
            return flat.project(node)
        if needs_parts(flat, node, self.statement, table):
            if kept is not None:
                kept.not_declared()
            node = flat_without_public(flat, node, *facts, public) if flat.joins else node
            parts = in_parts(flat, node, *facts)
            leaves = [self.leaf(tree, node) for tree in parts.trees]
            if parts.outer is None:
                return leaves[0]
            return self.shell(parts.outer, parts.placed(map(self.tables.known, leaves)), env, None)
        if kept is not None or needs_split(node):
            inner, outer = split(flat, node)
            known = self.tables.known(self.leaf(flat.aggregate(inner), node))
            if kept is not None:
                known = self.tables.beside(known, kept.groups(inner), node)
            return self.shell(outer, [FromTable(FromElement("", node), known)], env, None)
        plain = node is whole and not flat.known and all(each.is_plain for each in sources)
        if plain and not any(query is not node for query in node.find_all(exp.Query)):
            copy = node.copy()
            copy.set("with_", None)
            return replace(self.leaf(copy, node), as_written=is_root)
        return self.leaf(flat.aggregate(node), node)

    def leaf(self, tree: exp.Select, node: exp.Expr) -> MeasuredSelect:
        return leaf_of(tree, node, self.statement, self.compiler, self.tables.public)

    def source(self, element: FromElement, relation: Relation | AbsorbedTable) -> FlatSource:
        """One element of the FROM clause of a SELECT over private rows."""
        part = element.node
        if isinstance(relation, AbsorbedTable):
            return FlatSource(element, None, fields=relation.fields, unit=relation.unit)
        if isinstance(relation, PrivateRows):
            return FlatSource(element, relation)
        named = part.args.get("alias") is not None and part.args["alias"].args.get("columns")
        if isinstance(relation, PublicTable) and relation.node is part and not named:
            return FlatSource(element, None, tuple(self.tables.public(relation.table)))
        if isinstance(part, exp.Values):
            return FlatSource(element, None, tuple(column.name for column in named or []))
        known = self.tables.known(self.tables.aliased(relation, part.args.get("alias")))
        if known.private:
            self.refuse(part, "E_JOIN", "a join of aggregated results to private rows", _JOINS)
        columns = tuple(trait.name for trait in known.traits)
        values = as_values(self.tables.rows_of(known), columns, element.alias)
        if values is None:
            self.refuse(part, "E_JOIN", "this sub-query beside private rows", _JOINS)
        return FlatSource(replace(element, node=values), None, columns)

    def shell(
        self, node: exp.Select, placed: list[FromTable], env: Env, around: Names | None
    ) -> ShellTable:
        """A SELECT over tables of the shell as a table of the shell."""

        def query(inner: exp.Expr, names: Names) -> ShellTable:
            found = self.relation(inner, env, names)
            if isinstance(found, PrivateRows):
                self.refuse(
                    inner,
                    "E_SUBQUERY",
                    "a sub-query that returns private rows",
                    "aggregate in the sub-query: (SELECT COUNT(*) FROM ...)",
                )
            return self.tables.known(found)

        rows = TableExpressions(node, placed, self.locate, query, around)
        layers = Layers(rows)
        text, known = layers.build(self.tables.fresh())
        self.tables.notes += [LIMITED] if layers.ranks_absent else []
        return self.tables.add(f"{known.name} AS MATERIALIZED ({text})", known, node)
