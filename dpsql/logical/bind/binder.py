"""Queries as plans: CTEs, set operations, FROM with its joins, and SELECTs within each other."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.catalog.catalog import OF_CATALOG, VIEW
from dpsql.logical.bind.scope import (
    BindingSchema,
    BindScope,
    BoundColumn,
    BoundQuery,
    ColumnNumbers,
    Correlation,
    NotYetBoundError,
    SharedQueries,
    SharedQuery,
    Siblings,
    StatementText,
    owned,
)
from dpsql.logical.bind.select import SelectBinder, conjuncts, position
from dpsql.logical.bind.terms import ExpressionBinder, Stage
from dpsql.logical.expressions import (
    ColumnId,
    ColumnRef,
    LogicalConstant,
    Scalar,
    ScalarCall,
    SortKey,
)
from dpsql.logical.nodes import (
    BoundStatement,
    JoinKind,
    LogicalBound,
    LogicalFilter,
    LogicalJoin,
    LogicalProject,
    LogicalScan,
    LogicalSetOperation,
    LogicalShared,
    LogicalValues,
    Plan,
)
from dpsql.records import replace

_SIDES = {"": JoinKind.INNER, **{each.name: each for each in JoinKind}}


def bind_query(
    tree: exp.Expr,
    schema: BindingSchema,
    fragment: StatementText | None,
    selects: dict[ColumnId, exp.Select] | None = None,
) -> BoundStatement:
    """Look up the names of a query.

    Args:
        tree: the query as it is parsed.
        schema: the tables that it may name; views are CTEs.
        fragment: its text, for carets; None where no refusal is shown.
        selects: the SELECTs by which groups are made are put here, by the columns of these.

    Raises: ProgrammingError with a caret where a name stands for nothing, or for several things;
        NotYetBoundError where a form is beyond the binder.
    """
    numbers = ColumnNumbers(fragment, {} if selects is None else selects)
    found = StatementBinder(schema, numbers).query(tree, {}, None)
    first = next(iter(tree.selects), tree) if isinstance(tree, exp.Query) else tree
    shown = tuple((each.name, each.column) for each in found.shown)
    return BoundStatement(found.plan, shown, numbers.place(first))


class StatementBinder:
    """Binds the queries of one statement."""

    def __init__(self, schema: BindingSchema, numbers: ColumnNumbers) -> None:
        self.schema = schema
        self.numbers = numbers

    def query(
        self, node: exp.Expr, shared: SharedQueries, around: Correlation | None
    ) -> BoundQuery:
        """The plan of a query. Raises: ProgrammingError; NotYetBoundError."""
        shared = self.with_ctes(node, shared)
        match node:
            case exp.Subquery():
                if node.args.get("pivots"):
                    raise NotYetBoundError("PIVOT")
                return self._ordered(node, self.query(node.this, shared, around), shared)
            case exp.SetOperation():
                return self._ordered(node, self._set_operation(node, shared, around), shared)
            case exp.Select():
                return self._select(node, shared, around)
            case exp.Values():
                return self._values(node, shared)
            case exp.Table():
                return self._table(node, shared)
        raise NotYetBoundError(node.key)

    def with_ctes(self, node: exp.Expr, shared: SharedQueries) -> SharedQueries:
        """The CTEs that a query sees: those around it, and its own. Raises: NotYetBoundError."""
        clause = node.args.get("with_")
        if clause is None:
            return shared
        return ctes_of(clause, shared)

    # ---- set operations -------------------------------------------------------------------------

    def _set_operation(
        self, node: exp.SetOperation, shared: SharedQueries, around: Correlation | None
    ) -> BoundQuery:
        left = self.query(node.this, shared, around)
        right = self.query(node.expression, shared, around)
        plans = [left.plan, right.plan]
        sides = [list(left.shown), list(right.shown)]
        if node.args.get("by_name"):
            plans[0], sides[0] = self._padded(plans[0], sides[0], sides[1])
            plans[1], sides[1] = self._padded(plans[1], sides[1], sides[0])
            order = [each.name.casefold() for each in sides[0]]
            sides[1].sort(key=lambda each: order.index(each.name.casefold()))
        if len(sides[0]) != len(sides[1]):
            self.numbers.refuse(
                node,
                "E_SET_OP",
                f"{node.key.upper()} of {len(sides[0])} columns and {len(sides[1])}",
                "select as many on both sides",
            )
        columns = tuple(BoundColumn(each.name, self.numbers.fresh()) for each in sides[0])
        parts = tuple(
            (plan, tuple(each.column for each in side))
            for plan, side in zip(plans, sides, strict=True)
        )
        for side, part in ((node.this, left), (node.expression, right)):
            if isinstance(side.unnest(), exp.Select):
                for each in part.shown:
                    self.numbers.selects.setdefault(each.column, side.unnest())
        every = not node.args.get("distinct", True)
        numbers = tuple(each.column for each in columns)
        place = self.numbers.place(node)
        return BoundQuery(LogicalSetOperation(node.key, every, parts, numbers, place), columns)

    def _padded(
        self, plan: Plan, own: list[BoundColumn], other: Sequence[BoundColumn]
    ) -> tuple[Plan, list[BoundColumn]]:
        """The columns of a side of UNION BY NAME, NULL for those that the other alone has."""
        names = {each.name.casefold() for each in own}
        more = [
            BoundColumn(each.name, self.numbers.fresh())
            for each in other
            if each.name.casefold() not in names
        ]
        if not more:
            return plan, own
        added = tuple((each.column, LogicalConstant("NULL")) for each in more)
        return LogicalProject(plan, added), [*own, *more]

    def _ordered(self, node: exp.Expr, found: BoundQuery, shared: SharedQueries) -> BoundQuery:
        """A query in parentheses, or a set operation, with its own ORDER BY and LIMIT."""
        order = node.args.get("order")
        if order is None and not node.args.get("limit") and not node.args.get("offset"):
            return found
        scope = BindScope(self.numbers)
        scope.add(node, "", found)
        binder = SelectBinder(self, scope, shared, exp.Select())
        keys: list[SortKey] = []
        for each in () if order is None else order.expressions:
            inner = each.this if isinstance(each, exp.Ordered) else each
            place = position(inner)
            if place is None:
                value: Scalar = binder.terms.bound(inner, Stage.SHOWN)
            elif 1 <= place <= len(found.shown):
                value = ColumnRef(found.shown[place - 1].column)
            else:
                message = f"ORDER BY {place}, of {len(found.shown)} columns"
                self.numbers.refuse(inner, "E_ORDER_BY", message, "name the column")
            keys.append(binder.terms.sort_key(each, value))
        plan = binder.terms.applied(found.plan, Stage.SHOWN)
        return BoundQuery(binder.limited(plan, node, tuple(keys)), found.columns)

    # ---- FROM -----------------------------------------------------------------------------------

    def _select(
        self, node: exp.Select, shared: SharedQueries, around: Correlation | None
    ) -> BoundQuery:
        scope = BindScope(self.numbers, around)
        plan = self.rows(node, scope, shared)
        return SelectBinder(self, scope, shared, node).bound(plan)

    def rows(self, node: exp.Select, scope: BindScope, shared: SharedQueries) -> Plan:
        """The plan of the FROM of a SELECT, whose columns are added to the scope.

        Raises: ProgrammingError; NotYetBoundError.
        """
        clause = node.args.get("from_")
        if clause is None:
            return LogicalValues(((),), (), self.numbers.place(node))
        return self._joined(clause.this, node.args.get("joins") or (), scope, shared)

    def _joined(
        self, first: exp.Expr, joins: Sequence[exp.Join], scope: BindScope, shared: SharedQueries
    ) -> Plan:
        plan = self._source(first, scope, shared)
        for join in (*(first.args.get("joins") or ()), *joins):
            plan = self._join(plan, join, scope, shared)
        return plan

    def _source(self, node: exp.Expr, scope: BindScope, shared: SharedQueries) -> Plan:
        """The plan of an element of FROM, whose columns are added to the scope."""
        if isinstance(node, exp.Lateral | exp.Unnest) or node.args.get("sample"):
            raise NotYetBoundError(node.key)
        is_joins = isinstance(node, exp.Subquery) and isinstance(
            node.this, exp.Table | exp.Subquery
        )
        if is_joins and not node.alias:
            inner = BindScope(self.numbers, scope.around)
            plan = self._joined(node.this, node.args.get("joins") or (), inner, shared)
            for each in inner.sources:
                scope.add(node, each.name, BoundQuery(each.plan, each.columns))
            scope.merged.update(inner.merged)
            return plan
        found = self.query(node, shared, Siblings(scope))
        names = _given_names(node) if not isinstance(node, exp.Values) else ()
        alias = node.alias if isinstance(node, exp.Values) else node.alias_or_name
        columns = self._renamed(node, found.columns, names)
        scope.add(node, alias, BoundQuery(found.plan, columns))
        return found.plan

    def _renamed(
        self, node: exp.Expr, columns: Sequence[BoundColumn], names: Sequence[str]
    ) -> tuple[BoundColumn, ...]:
        """Columns by the names that an alias gives the first of them."""
        visible = [each for each in columns if not each.hidden]
        if len(names) > len(visible):
            self.numbers.refuse(
                node,
                "E_UNKNOWN_COLUMN",
                f"{len(names)} names for {len(visible)} columns",
                "name as many as there are",
            )
        given = dict(zip((each.column for each in visible), names, strict=False))
        return tuple(replace(each, name=given.get(each.column, each.name)) for each in columns)

    def _table(self, node: exp.Table, shared: SharedQueries) -> BoundQuery:
        """The rows of a CTE or of a table, in this order."""
        if not isinstance(node.this, exp.Identifier) or node.args.get("pivots"):
            raise NotYetBoundError("PIVOT" if node.args.get("pivots") else node.this.key)
        name = ".".join(part.name for part in node.parts).casefold()
        if name in shared and OF_CATALOG not in node.meta:
            return self._mentioned(node, shared[name])
        columns = self.schema.columns(name)
        if columns is not None:
            known = tuple(
                BoundColumn(each.name, self.numbers.fresh(), each.hidden, each.borrowed)
                for each in columns
            )
            shown = tuple((each.column, each.name) for each in known)
            return BoundQuery(LogicalScan(name, shown, self.numbers.place(node)), known)
        message = f"there is no table {node.name}"
        self.numbers.refuse(node, "E_UNKNOWN_TABLE", message, "SHOW tables lists them")

    def _mentioned(self, node: exp.Table, query: SharedQuery) -> BoundQuery:
        """A CTE or a view where it is named: its plan is one, its columns are new."""
        if query.bound is None:
            found = self.query(query.node, query.seen, None)
            columns = self._renamed(query.node, found.columns, query.names)
            plan = found.plan
            most = self.schema.most_rows(query.view) if query.view else None
            if most is not None:
                plan = LogicalBound(plan, most, place=self.numbers.place(node))
            query.bound = BoundQuery(plan, columns)
        once = dict.fromkeys(each.column for each in query.bound.columns)
        new = {column: self.numbers.fresh() for column in once}
        pairs = tuple((number, column) for column, number in new.items())
        mention = LogicalShared(node.name, query.bound.plan, pairs, self.numbers.place(node))
        columns = tuple(replace(each, column=new[each.column]) for each in query.bound.columns)
        return BoundQuery(mention, columns)

    def _values(self, node: exp.Values, shared: SharedQueries) -> BoundQuery:
        terms = ExpressionBinder(self, BindScope(self.numbers), shared)
        rows = [
            tuple(
                terms.bound(each, Stage.ROWS)
                for each in (row.expressions if isinstance(row, exp.Tuple) else [row])
            )
            for row in node.expressions
        ]
        if terms.is_waiting:
            raise NotYetBoundError("a sub-query in VALUES")
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            message = "rows of VALUES have different lengths"
            self.numbers.refuse(node, "E_PARSE", message, "write as many values in each")
        columns = [BoundColumn(f"col{place}", self.numbers.fresh()) for place in range(width)]
        numbers = tuple(each.column for each in columns)
        plan = LogicalValues(tuple(rows), numbers, self.numbers.place(node))
        return BoundQuery(plan, self._renamed(node, columns, _given_names(node)))

    # ---- joins ----------------------------------------------------------------------------------

    def _join(self, left: Plan, node: exp.Join, scope: BindScope, shared: SharedQueries) -> Plan:
        if node.method.upper() not in ("", "NATURAL"):
            raise NotYetBoundError(f"{node.method} JOIN")
        before = len(scope.sources)
        right = self._source(node.this, scope, shared)
        word = node.kind.upper()
        kind = _SIDES[word if word in ("SEMI", "ANTI") else node.side.upper()]
        using = [each.name for each in node.args.get("using") or ()]
        if node.method.upper() == "NATURAL":
            using = self._common(node, scope, before)
        on: list[Scalar] = []
        merged: list[tuple[ColumnId, Scalar]] = []
        for name in using:
            one = self._side(node, name, scope, range(before))
            two = self._side(node, name, scope, range(before, len(scope.sources)))
            on.append(ScalarCall("eq", (ColumnRef(one), ColumnRef(two)), "this:1 expression:1"))
            scope.merged[name.casefold()] = two if kind is JoinKind.RIGHT else one
            if kind is JoinKind.FULL:
                number = self.numbers.fresh()
                either = ScalarCall("coalesce", (ColumnRef(one), ColumnRef(two)))
                merged.append((number, either))
                scope.merged[name.casefold()] = number
        plan = self._matched(left, right, kind, on, node, scope, shared)
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            del scope.sources[before:]
        return LogicalProject(plan, tuple(merged)) if merged else plan

    def _matched(
        self,
        left: Plan,
        right: Plan,
        kind: JoinKind,
        on: list[Scalar],
        node: exp.Join,
        scope: BindScope,
        shared: SharedQueries,
    ) -> Plan:
        """Two plans joined by equal columns and by what ON says."""
        place = self.numbers.place(node)
        if node.args.get("on") is None:
            return LogicalJoin(left, right, kind, tuple(on), place)
        terms = ExpressionBinder(self, scope, shared)
        tests = conjuncts(terms.bound(node.args["on"], Stage.ROWS))
        if not terms.is_waiting:
            return LogicalJoin(left, right, kind, (*on, *tests), place)
        if kind is not JoinKind.INNER:
            raise NotYetBoundError("a sub-query in ON of an outer join")
        pairs = terms.applied(LogicalJoin(left, right, kind, tuple(on), place), Stage.ROWS)
        return LogicalFilter(pairs, tests, place)

    def _common(self, node: exp.Join, scope: BindScope, before: int) -> list[str]:
        """The names of columns on both sides of a NATURAL JOIN."""
        left = {c.name.casefold() for each in scope.sources[:before] for c in each.columns}
        right = [c.name for each in scope.sources[before:] for c in each.columns]
        found = [name for name in right if name.casefold() in left]
        if not found:
            message = "no column of a NATURAL JOIN has one name on both sides"
            self.numbers.refuse(node, "E_JOIN", message, "JOIN ... ON, or CROSS JOIN")
        return found

    def _side(self, node: exp.Join, name: str, scope: BindScope, places: range) -> ColumnId:
        """The column of one side of a join that USING names."""
        folded = name.casefold()
        if places.start == 0 and folded in scope.merged:
            return scope.merged[folded]
        named = owned(
            each
            for place in places
            for each in scope.sources[place].columns
            if each.name.casefold() == folded
        )
        found = {each.column for each in named}
        if len(found) != 1:
            what = "is not on both sides" if not found else "is in several tables of one side"
            message = f"column {name} of USING {what}"
            self.numbers.refuse(node, "E_UNKNOWN_COLUMN", message, "JOIN ... ON")
        return found.pop()


def ctes_of(clause: exp.With, seen: SharedQueries, last: exp.Expr | None = None) -> SharedQueries:
    """The CTEs of WITH and those ``seen`` around it, each knows those before it.

    Args: last: a CTE of it, which is none of them, nor are those after it.

    Raises: NotYetBoundError.
    """
    if clause.args.get("recursive"):
        raise NotYetBoundError("WITH RECURSIVE")
    found = dict(seen)
    for cte in clause.expressions:
        if cte is last:
            break
        view = cte.meta.get(VIEW, "")
        found[cte.alias.casefold()] = SharedQuery(cte.this, _given_names(cte), dict(found), view)
    return found


def _given_names(node: exp.Expr) -> tuple[str, ...]:
    """The names of columns in an alias: ``AS t(a, b)``."""
    alias = node.args.get("alias")
    columns = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    return tuple(each.name for each in columns or ())
