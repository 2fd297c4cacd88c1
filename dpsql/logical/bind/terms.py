"""Expressions of one SELECT: over its rows, and over its groups."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NoReturn

from sqlglot import exp

from dpsql.errors import ProgrammingError, Span
from dpsql.logical.bind.scope import (
    BindScope,
    Correlation,
    NotYetBoundError,
    QueryBinder,
    SharedQueries,
)
from dpsql.logical.expressions import (
    AggregateCall,
    ColumnId,
    ColumnRef,
    LogicalConstant,
    Scalar,
    ScalarCall,
    SortKey,
    WindowCall,
    columns_in,
)
from dpsql.logical.functions import MODIFIERS, called, has, is_aggregate
from dpsql.logical.nodes import ApplyKind, LogicalApply, Plan
from dpsql.records import replace

_CONSTANT = (
    *(exp.Literal, exp.Null, exp.Boolean, exp.DataType, exp.Var, exp.Identifier),
    *(exp.DataTypeParam, exp.IntervalSpan),
)
_BEYOND = (
    *(exp.Lambda, exp.Columns, exp.Star, exp.Placeholder, exp.Parameter, exp.Any, exp.All),
    *(exp.Unnest, exp.Explode, exp.Lateral),
)
"""Forms that the binder has no rule for."""


class Stage(Enum):
    """The place of an expression: among rows, as in WHERE, or among what is shown of groups."""

    ROWS = "rows"
    SHOWN = "shown"


class ExpressionBinder:
    """Binds the expressions of one SELECT; aggregates and windows become columns on the way."""

    def __init__(self, queries: QueryBinder, scope: BindScope, shared: SharedQueries) -> None:
        self.queries = queries
        self.numbers = queries.numbers
        self.scope = scope
        self.shared = shared
        self.aliases: dict[str, exp.Expr] = {}
        self.named_windows: dict[str, exp.Window] = {}
        self.grouped = False
        self.is_having = False
        self.keys: dict[Scalar, ColumnId] = {}
        self.rows: frozenset[ColumnId] = frozenset()
        self.aggregates: dict[AggregateCall, ColumnId] = {}
        self.windows: dict[WindowCall, ColumnId] = {}
        self._waiting: dict[Stage, list[LogicalApply]] = {stage: [] for stage in Stage}
        self._reading: set[str] = set()

    # ---- sub-queries --------------------------------------------------------------------------

    def applied(self, plan: Plan, stage: Stage) -> Plan:
        """The plan with a column for every sub-query that was met since in a stage."""
        for each in self._waiting[stage]:
            plan = replace(each, left=plan)
        self._waiting[stage].clear()
        return plan

    @property
    def is_waiting(self) -> bool:
        """True if sub-queries among rows were met that are not applied."""
        return bool(self._waiting[Stage.ROWS])

    def _sub_query(
        self,
        node: exp.Expr,
        kind: ApplyKind,
        stage: Stage,
        arguments: Sequence[Scalar] = (),
        around_it: exp.Expr | None = None,
    ) -> ColumnRef:
        around = Correlation(self.numbers, self._around)
        found = self.queries.query(node, self.shared, around)
        width = len(found.shown)
        if kind is not ApplyKind.EXISTS and width != max(1, len(arguments)):
            self.numbers.refuse(
                node,
                "E_SUBQUERY",
                f"a sub-query has {width} columns where {max(1, len(arguments))} are compared",
                "select as many as stand on the other side",
            )
        mark, place = self.numbers.fresh(), self.numbers.place(around_it or node)
        parameters = around.values()
        if stage is Stage.SHOWN:
            parameters = tuple((column, self.lifted(value)) for column, value in parameters)
            made = frozenset(self.windows.values())
            if any(ref.column in made for _, value in parameters for ref in columns_in(value)):
                raise NotYetBoundError("a sub-query that mentions a window around it")
        shown = () if kind is ApplyKind.EXISTS else tuple(each.column for each in found.shown)
        self._waiting[stage].append(
            LogicalApply(
                found.plan,  # until it is applied to a plan
                *(found.plan, kind, mark, shown, tuple(arguments), parameters, place),
            )
        )
        return ColumnRef(mark, place)

    def _around(self, node: exp.Column) -> Scalar | None:
        """The value of this SELECT that a column of a sub-query stands for."""
        found = self.scope.find(node)
        if found is not None:
            return found
        return self._alias(node, Stage.ROWS) if not node.table else None

    # ---- expressions ---------------------------------------------------------------------------

    def bound(self, node: exp.Expr, stage: Stage) -> Scalar:
        """An expression over the rows, or over what the groups are shown as.

        Raises: ProgrammingError; NotYetBoundError.
        """
        found = self._bound(node, stage)
        return self.lifted(found) if stage is Stage.SHOWN else found

    def _bound(self, node: exp.Expr, stage: Stage) -> Scalar:
        match node:
            case exp.Paren() | exp.Alias():
                return self._bound(node.this, stage)
            case exp.Column() if not isinstance(node.this, exp.Star):
                return self._column(node, stage)
            case exp.Subquery() | exp.Query():
                return self._sub_query(node, ApplyKind.SCALAR, stage)
            case exp.Exists() if isinstance(node.this, exp.Query):
                return self._sub_query(node.this, ApplyKind.EXISTS, stage)
            case exp.In() if node.args.get("query") is not None:
                left = node.this.unnest()
                parts = left.expressions if isinstance(left, exp.Tuple) else [left]
                arguments = [self.bound(part, stage) for part in parts]
                return self._sub_query(node.args["query"], ApplyKind.IN, stage, arguments, node)
            case exp.Window():
                return self._window(node, stage)
        if is_aggregate(called(node)):
            return self._aggregate(node, stage)
        if isinstance(node, exp.Func) and has(node, "per_row") and node.key != "grouping":
            self._misplaced(node, "E_WINDOW", f"{node.sql_name()} is asked without OVER")
        if isinstance(node, _BEYOND):
            raise NotYetBoundError(node.key)
        if isinstance(node, _CONSTANT):
            return LogicalConstant(_written(node), self._own_place(node))
        return self._call(node, stage)

    def _column(self, node: exp.Column, stage: Stage) -> Scalar:
        own = self.scope.own(node)
        if own is not None and not (stage is Stage.SHOWN and self._is_alias_in_having(node, own)):
            return ColumnRef(own, self.numbers.place(node))
        found = (None if node.table else self._alias(node, stage)) or self.scope.find(node)
        if found is None:
            found = self._field(node)
        if found is None:
            self.scope.refuse_unknown(node)
        return found

    def _field(self, node: exp.Column) -> Scalar | None:
        """The value of a field, where the first name is that of a column: ``r.result.value``."""
        parts = list(node.parts)
        for count in range(1, min(3, len(parts))):
            names = [part.copy() for part in reversed(parts[:count])]
            column = exp.Column(**dict(zip(("this", "table"), names, strict=False)))
            known = count == 1 or self.scope.has(column.table)
            found = self.scope.find(column) if known else None
            if found is not None:
                fields = [LogicalConstant(f"'{part.name}'") for part in parts[count:]]
                value: Scalar = found
                for each in fields:
                    value = ScalarCall("struct_extract", (value, each), "", found.place)
                return value
        return None

    def _is_alias_in_having(self, node: exp.Column, own: ColumnId) -> bool:
        """Say whether a name in HAVING is an item's: a column that is no key comes after it."""
        is_item = not node.table and node.name.casefold() in self.aliases
        return self.is_having and is_item and ColumnRef(own) not in self.keys

    def _alias(self, node: exp.Column, stage: Stage) -> Scalar | None:
        """The value of the item of this SELECT that has a name."""
        name = node.name.casefold()
        if name not in self.aliases or name in self._reading:
            return None
        self._reading.add(name)
        try:
            return self._bound(self.aliases[name], stage)
        finally:
            self._reading.discard(name)

    def _call(self, node: exp.Expr, stage: Stage) -> ScalarCall:
        arguments, form = self._arguments(node, stage)
        return ScalarCall(_function(node), arguments, form, self._spanned(node, arguments))

    def _arguments(
        self, node: exp.Expr, stage: Stage, leave: Sequence[str] = ()
    ) -> tuple[tuple[Scalar, ...], str]:
        """The arguments of a call in the order of its text, and what else is said of it."""
        arguments: list[Scalar] = []
        form: list[str] = []
        for name, value in node.args.items():
            if name in leave or value is None or value is False:
                continue
            listed = value if isinstance(value, list) else [value]
            parts = [each for each in listed if isinstance(each, exp.Expr)]
            words = [str(each) for each in listed if not isinstance(each, exp.Expr)]
            arguments += [self._bound(each, stage) for each in parts]
            form.append(f"{name}:{len(parts)}{'=' if words else ''}{','.join(words)}")
        return tuple(arguments), " ".join(form)

    def lifted(self, expression: Scalar) -> Scalar:
        """An expression over rows as one over groups: keys are columns of the groups.

        Raises: ProgrammingError (E_GROUP_BY) for a column of rows that is no key.
        """
        if not self.grouped:
            return expression
        if expression in self.keys:
            return ColumnRef(self.keys[expression], expression.place)
        match expression:
            case ColumnRef() if expression.column in self.rows:
                self._misplaced_column(expression.place)
            case ScalarCall():
                arguments = tuple(map(self.lifted, expression.arguments))
                return replace(expression, arguments=arguments)
        return expression

    def order(self, node: exp.Expr | None, stage: Stage) -> tuple[SortKey, ...]:
        """The expressions of ORDER BY, each with its direction."""
        listed = node.expressions if node is not None else ()
        return tuple(self.sort_key(each, self.bound(_ordered(each), stage)) for each in listed)

    @staticmethod
    def sort_key(node: exp.Expr, value: Scalar) -> SortKey:
        """A value that rows are put in order by, with the direction that is written."""
        if not isinstance(node, exp.Ordered):
            return SortKey(value)
        return SortKey(value, bool(node.args.get("desc")), node.args.get("nulls_first"))

    # ---- aggregates and windows ----------------------------------------------------------------

    def _aggregate(self, node: exp.Expr, stage: Stage) -> ColumnRef:
        """An aggregate of the rows of a group, as a column of the groups."""
        if stage is Stage.ROWS or not self.grouped:
            self._misplaced(node, "E_AGGREGATE", "an aggregate stands where rows are not grouped")
        call = self._aggregate_call(node)
        if call not in self.aggregates:
            self.aggregates[call] = self.numbers.fresh()
        return ColumnRef(self.aggregates[call], call.place)

    def _aggregate_call(self, node: exp.Expr) -> AggregateCall:
        condition, order, inner = self._modified(node, Stage.ROWS)
        distinct, argument = False, inner.args.get("this")
        if isinstance(argument, exp.Order):
            order = (*order, *self.order(argument, Stage.ROWS))
            argument = argument.this
        if isinstance(argument, exp.Distinct):
            distinct = True
            if argument.args.get("on") is not None:
                raise NotYetBoundError("DISTINCT ON in an aggregate")
            listed = argument.expressions
        else:
            own = isinstance(argument, exp.Expr) and not isinstance(argument, exp.Star)
            listed = [argument] if own else []
        first = [self._bound(each, Stage.ROWS) for each in listed]
        rest, form = self._arguments(inner, Stage.ROWS, ("this",))
        place = self._spanned(inner, (*first, *rest))
        mentioned = {ref.column for each in (*first, *rest) for ref in columns_in(each)}
        if mentioned and mentioned <= self._parameters():
            raise NotYetBoundError("an aggregate of columns around the sub-query")
        return AggregateCall(
            _function(inner), (*first, *rest), distinct, order, condition, form, place
        )

    def _parameters(self) -> set[ColumnId]:
        """The columns that stand for those around this query."""
        around = self.scope.around
        return set() if around is None else {column for column, _ in around.values()}

    def _modified(
        self, node: exp.Expr, stage: Stage
    ) -> tuple[Scalar | None, tuple[SortKey, ...], exp.Expr]:
        """The condition and the order that stand around a call, and the call."""
        condition: Scalar | None = None
        order: tuple[SortKey, ...] = ()
        while isinstance(node, MODIFIERS):
            if isinstance(node, exp.Filter):
                condition = self.bound(node.expression.this, stage)
            elif isinstance(node, exp.WithinGroup):
                order = self.order(node.expression, stage)
            node = node.this
        return condition, order, node

    def _window(self, node: exp.Window, stage: Stage) -> ColumnRef:
        if stage is Stage.ROWS:
            self._misplaced(node, "E_WINDOW", "a window stands where rows are not shown")
        node = self._named_window(node)
        condition, _, inner = self._modified(node.this, stage)
        whole = isinstance(inner.args.get("this"), exp.Star)
        arguments, form = self._arguments(inner, stage, ("this",) if whole else ())
        partition = tuple(self.bound(each, stage) for each in node.args.get("partition_by") or ())
        spec = node.args.get("spec")
        if spec is not None and spec.find(exp.Column, exp.Query) is not None:
            raise NotYetBoundError("a frame that is worked out")
        call = WindowCall(
            _function(inner),
            tuple(map(self.lifted, arguments)),
            partition,
            self.order(node.args.get("order"), stage),
            condition,
            "" if spec is None else spec.sql("duckdb"),
            form,
            self.numbers.place(node),
        )
        made = frozenset(self.windows.values())
        inside = [*call.arguments, *call.partition, *(key.value for key in call.order)]
        if any(ref.column in made for each in inside for ref in columns_in(each)):
            self._misplaced(node, "E_WINDOW", "a window within a window")
        if call not in self.windows:
            self.windows[call] = self.numbers.fresh()
        return ColumnRef(self.windows[call], call.place)

    def _named_window(self, node: exp.Window) -> exp.Window:
        """A window with what the WINDOW clause says of it."""
        alias = node.args.get("alias")
        if alias is None:
            return node
        known = self.named_windows.get(alias.name.casefold())
        if known is None:
            self.numbers.refuse(
                node, "E_WINDOW", f"no window is named {alias.name}", "WINDOW name AS (...)"
            )
        given = {name: value for name, value in node.args.items() if value and name != "alias"}
        kept = ("partition_by", "order", "spec", "alias")
        rest = {name: known.args.get(name) for name in kept if known.args.get(name)}
        return self._named_window(exp.Window(**{**rest, **given}))

    # ---- places and refusals --------------------------------------------------------------------

    def _own_place(self, node: exp.Expr) -> Span | None:
        meta, text = node.meta, self.numbers.fragment
        if text is None or "start" not in meta:
            return None
        return text.span(meta["start"], meta["end"] + 1)

    def _spanned(self, node: exp.Expr, arguments: Sequence[Scalar]) -> Span | None:
        """The text from the first to the last of what is known of a call."""
        if self.numbers.fragment is None:
            return None
        known = [each.place for each in arguments if each.place is not None]
        own = self._own_place(node)
        known += [own] if own is not None else []
        if not known:
            return None
        start, end = min(each.start for each in known), max(each.end for each in known)
        return Span(known[0].text, start, end)

    def _misplaced(self, node: exp.Expr, code: str, message: str) -> NoReturn:
        self.numbers.refuse(node, code, message, "work it out in a sub-query in FROM")

    def _misplaced_column(self, place: Span | None) -> NoReturn:
        text = "a column" if place is None else place.text[place.start : place.end]
        raise ProgrammingError(
            "E_GROUP_BY",
            f"{text} is neither a key nor within an aggregate",
            hint=f"GROUP BY {text}, or ANY_VALUE({text})",
            span=place,
        )


def _function(node: exp.Expr) -> str:
    """The name of a function: that of its class, or as it is written where it has none."""
    return node.this.casefold() if isinstance(node.this, str) else node.key


def _written(node: exp.Expr) -> str:
    """SQL of a constant; most are plain literals, which need no generator."""
    if isinstance(node, exp.Literal) and "'" not in node.name:
        return f"'{node.name}'" if node.is_string else node.name
    return node.sql("duckdb")


def _ordered(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Ordered) else node
