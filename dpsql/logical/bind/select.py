"""One SELECT as a plan: FROM, WHERE, groups, windows, what is shown, order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from sqlglot import exp

from dpsql.logical.bind.scope import (
    BindScope,
    BoundColumn,
    BoundQuery,
    NotYetBoundError,
    QueryBinder,
    SharedQueries,
)
from dpsql.logical.bind.terms import ExpressionBinder, Stage
from dpsql.logical.expressions import ColumnId, ColumnRef, Scalar, ScalarCall, SortKey
from dpsql.logical.functions import has_aggregates
from dpsql.logical.nodes import (
    LogicalAggregate,
    LogicalFilter,
    LogicalLimit,
    LogicalProject,
    LogicalWindow,
    Plan,
    columns_of,
)
from dpsql.records import dataclass, replace

Sets = tuple[tuple[int, ...], ...]
_BEYOND = ("laterals", "sample", "into", "match", "prewhere", "connect", "pivots", "kind")
"""Clauses that the binder has no rule for."""


@dataclass(frozen=True, slots=True)
class SelectItem:
    """An item of a SELECT: its name, and its expression or the column that ``*`` stands for."""

    name: str
    node: exp.Expr | None
    column: BoundColumn | None = None

    @property
    def hidden(self) -> bool:
        return self.column is not None and self.column.hidden


@dataclass(frozen=True, slots=True)
class BoundItem:
    """An item of a SELECT with its value, which is that of a column or worked out."""

    name: str
    value: Scalar
    hidden: bool
    borrowed: bool = False
    node: exp.Expr | None = None


class SelectBinder:
    """Binds one SELECT, of which the rows of FROM are a plan already."""

    def __init__(
        self, queries: QueryBinder, scope: BindScope, shared: SharedQueries, node: exp.Select
    ) -> None:
        self.node = node
        self.scope = scope
        self.numbers = queries.numbers
        self.terms = ExpressionBinder(queries, scope, shared)
        for name in _BEYOND:
            if node.args.get(name):
                raise NotYetBoundError(name)

    def bound(self, plan: Plan) -> BoundQuery:
        """The plan of the whole, over that of FROM. Raises: ProgrammingError; NotYetBoundError."""
        terms, args = self.terms, self.node.args
        items = self._items()
        terms.aliases = {
            item.name.casefold(): item.node
            for item in reversed(items)
            if item.node is not None and isinstance(item.node.parent, exp.Alias)
        }
        terms.named_windows = {
            each.name.casefold(): each for each in args.get("windows") or () if each.name
        }
        if args.get("where") is not None:
            tests = terms.bound(args["where"].this, Stage.ROWS)
            plan = LogicalFilter(terms.applied(plan, Stage.ROWS), conjuncts(tests))
        order = args.get("order")
        told = [each for name in ("having", "qualify") if (each := args.get(name)) is not None]
        after = [item.node for item in items if item.node is not None]
        after += [each.this for each in told]
        after += [] if order is None else order.expressions
        group = args.get("group")
        terms.grouped = group is not None or any(map(has_aggregates, after))
        keyed: dict[int, ColumnId] = {}
        sets: Sets | None = None
        if terms.grouped:
            plan, keyed, sets = self._keyed(plan, group, items)
        shown = [
            self._shown(item, keyed.get(place))
            for place, item in enumerate(items)
            if not (terms.grouped and item.hidden)
        ]
        having = self._tests("having")
        qualify = self._tests("qualify")
        keys = self._order(order, shown)
        if terms.grouped:
            calls = tuple((column, call) for call, column in terms.aggregates.items())
            by = tuple((column, key) for key, column in terms.keys.items())
            plan = terms.applied(plan, Stage.ROWS)
            plan = LogicalAggregate(plan, by, calls, sets, self.numbers.place(self.node))
            self.numbers.selects |= dict.fromkeys(columns_of(plan), self.node)
        plan = terms.applied(plan, Stage.ROWS)
        plan = terms.applied(plan, Stage.SHOWN)
        if having:
            plan = LogicalFilter(plan, having)
        if terms.windows:
            plan = LogicalWindow(plan, tuple((c, call) for call, c in terms.windows.items()))
        if qualify:
            plan = LogicalFilter(plan, qualify)
        return self._ended(plan, shown, keys)

    def _tests(self, clause: str) -> tuple[Scalar, ...]:
        node = self.node.args.get(clause)
        self.terms.is_having = clause == "having"
        found = () if node is None else conjuncts(self.terms.bound(node.this, Stage.SHOWN))
        self.terms.is_having = False
        return found

    # ---- items ---------------------------------------------------------------------------------

    def _items(self) -> list[SelectItem]:
        """The items with ``*`` written out."""
        found: list[SelectItem] = []
        for item in self.node.expressions:
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                table = item.table.casefold() if isinstance(item, exp.Column) else ""
                found += self._starred(item, star, table)
            else:
                node = item.this if isinstance(item, exp.Alias) else item
                name = item.alias if isinstance(item, exp.Alias) else _name_of(item)
                found.append(SelectItem(name, node))
        return found

    def _starred(self, item: exp.Expr, star: exp.Star, table: str) -> list[SelectItem]:
        """The columns that ``*`` stands for, one that USING merged once."""
        if table and not self.scope.has(table):
            message = f"no table in FROM is named {table}"
            self.numbers.refuse(item, "E_UNKNOWN_TABLE", message, "name one that is in FROM")
        dropped = {each.name.casefold() for each in star.args.get("except_") or ()}
        replaced = {each.alias.casefold(): each.this for each in star.args.get("replace") or ()}
        renamed = {each.this.name.casefold(): each.alias for each in star.args.get("rename") or ()}
        found: list[SelectItem] = []
        seen: set[str] = set()
        missing = (dropped | replaced.keys() | renamed.keys()) - {
            each.name.casefold() for _, each in self.scope.visible(table)
        }
        if missing:
            message = f"there is no column {min(missing)} among those of *"
            self.numbers.refuse(item, "E_UNKNOWN_COLUMN", message, "leave it out")
        for _, column in self.scope.visible(table):
            name = column.name.casefold()
            if name in self.scope.merged and not table:
                if name in seen:
                    continue
                seen.add(name)
                column = replace(column, column=self.scope.merged[name])
            if name in dropped:
                continue
            if name in replaced:
                found.append(SelectItem(column.name, replaced[name]))
            else:
                found.append(SelectItem(renamed.get(name, column.name), None, column))
        return found

    def _shown(self, item: SelectItem, key: ColumnId | None) -> BoundItem:
        if key is not None:
            place = None if item.node is None else self.numbers.place(item.node)
            return BoundItem(item.name, ColumnRef(key, place), item.hidden)
        if item.node is not None:
            value = self.terms.bound(item.node, Stage.SHOWN)
            return BoundItem(item.name, value, item.hidden, node=item.node)
        assert item.column is not None
        value = self.terms.lifted(ColumnRef(item.column.column))
        return BoundItem(item.name, value, item.hidden, item.column.borrowed)

    # ---- groups --------------------------------------------------------------------------------

    def _keyed(
        self, plan: Plan, group: exp.Expr | None, items: Sequence[SelectItem]
    ) -> tuple[Plan, dict[int, ColumnId], Sets | None]:
        """The rows with what keys need, the items that are keys, and the grouping sets."""
        keys = _GroupKeys(self, items)
        sets = keys.sets(group)
        plan = self.terms.applied(plan, Stage.ROWS)
        self.terms.rows = frozenset(columns_of(plan))
        return plan, keys.of_items, sets

    # ---- the end -------------------------------------------------------------------------------

    def _order(self, order: exp.Expr | None, shown: Sequence[BoundItem]) -> tuple[SortKey, ...]:
        """The values that rows are put in order by: positions, names, expressions, or ALL."""
        visible = [each for each in shown if not each.hidden]
        found: list[SortKey] = []
        for each in () if order is None else order.expressions:
            node = each.this if isinstance(each, exp.Ordered) else each
            if _is_all(node):
                found += [self.terms.sort_key(each, item.value) for item in visible]
                continue
            found.append(self.terms.sort_key(each, self._sorted_by(node, visible)))
        return tuple(found)

    def _sorted_by(self, node: exp.Expr, visible: Sequence[BoundItem]) -> Scalar:
        place = position(node)
        if place is not None:
            if not 1 <= place <= len(visible):
                message = f"ORDER BY {place}, of {len(visible)} columns"
                self.numbers.refuse(node, "E_ORDER_BY", message, "name the column")
            return visible[place - 1].value
        if isinstance(node, exp.Column) and not node.table:
            named = [e for e in visible if e.name.casefold() == node.name.casefold()]
            if named:
                return named[0].value
        return self.terms.bound(node, Stage.SHOWN)

    def _ended(
        self, plan: Plan, shown: Sequence[BoundItem], keys: tuple[SortKey, ...]
    ) -> BoundQuery:
        columns: list[BoundColumn] = []
        added: list[tuple[ColumnId, Scalar]] = []
        for item in shown:
            if isinstance(item.value, ColumnRef):
                column = item.value.column
            else:
                column = self.numbers.fresh()
                added.append((column, item.value))
                if item.node is not None:
                    self.numbers.items[column] = item.node
            columns.append(BoundColumn(item.name, column, item.hidden, item.borrowed))
        if added:
            plan = LogicalProject(plan, tuple(added), self.numbers.place(self.node))
        distinct = self.node.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on") is not None:
                raise NotYetBoundError("DISTINCT ON")
            values = {
                item.value: column.column for item, column in zip(shown, columns, strict=True)
            }
            plan, columns, keys = self._distinct(plan, columns, keys, values)
        return BoundQuery(self.limited(plan, self.node, keys), tuple(columns))

    def _distinct(
        self,
        plan: Plan,
        columns: Sequence[BoundColumn],
        keys: tuple[SortKey, ...],
        values: dict[Scalar, ColumnId],
    ) -> tuple[Plan, list[BoundColumn], tuple[SortKey, ...]]:
        """DISTINCT groups by what is shown, and is put in order by that."""
        kept = [each for each in columns if not each.hidden]
        fresh = {each.column: self.numbers.fresh() for each in kept}
        by = tuple((new, ColumnRef(old)) for old, new in fresh.items())
        plan = LogicalAggregate(plan, by, (), None, self.numbers.place(self.node))
        self.numbers.selects |= dict.fromkeys(columns_of(plan), self.node)
        order = []
        for key in keys:
            column = values.get(key.value)
            if column not in fresh:
                raise NotYetBoundError("DISTINCT in an order of what it does not show")
            order.append(SortKey(ColumnRef(fresh[column]), key.descending, key.nulls_first))
        shown = [BoundColumn(each.name, fresh[each.column]) for each in kept]
        return plan, shown, tuple(order)

    def limited(self, plan: Plan, node: exp.Expr, keys: tuple[SortKey, ...]) -> Plan:
        """A plan in an order, and cut as LIMIT and OFFSET of a query say."""
        limit, offset = self._number(node.args.get("limit")), self._number(node.args.get("offset"))
        if not keys and limit is None and offset is None:
            return plan
        return LogicalLimit(plan, keys, limit, offset, self.numbers.place(node))

    def _number(self, node: exp.Expr | None) -> Scalar | None:
        """A number of rows, which mentions no column."""
        if node is None:
            return None
        value = node.expression if isinstance(node, exp.Limit | exp.Offset) else node.args["count"]
        if value is None or value.find(exp.Column, exp.Query) is not None:
            raise NotYetBoundError("LIMIT that is worked out")
        return self.terms.bound(value, Stage.ROWS)


class _GroupKeys:
    """The keys of GROUP BY, each once, and the sets of them."""

    def __init__(self, select: SelectBinder, items: Sequence[SelectItem]) -> None:
        self.select = select
        self.terms = select.terms
        self.items = items
        self.visible = [place for place, item in enumerate(items) if not item.hidden]
        self.of_items: dict[int, ColumnId] = {}
        self.is_plain = True

    def sets(self, group: exp.Expr | None) -> Sets | None:
        """The grouping sets, None where there is one of all keys."""
        if group is None:
            return None
        if group.args.get("all"):
            for place in self.visible:
                node = self.items[place].node
                if node is None or not (has_aggregates(node) or node.find(exp.Window)):
                    self._of_item(place)
            return None
        listed = [self._element(each) for each in group.expressions]
        for name, ways in (("rollup", _rolled), ("cube", _cubed)):
            for each in group.args.get(name) or ():
                self.is_plain = False
                listed.append(ways([self._joined(part) for part in each.expressions]))
        for each in group.args.get("grouping_sets") or ():
            self.is_plain = False
            listed.append([one for part in each.expressions for one in self._element(part)])
        if self.is_plain:
            return None
        return tuple(
            tuple(dict.fromkeys(key for part in parts for key in part))
            for parts in product(*listed)
        )

    def _element(self, node: exp.Expr) -> list[tuple[int, ...]]:
        """The sets of keys that an element of GROUP BY stands for."""
        match node:
            case exp.Rollup() | exp.Cube():
                self.is_plain = False
                parts = [self._joined(each) for each in node.expressions]
                return (_rolled if isinstance(node, exp.Rollup) else _cubed)(parts)
            case exp.GroupingSets():
                self.is_plain = False
                return [one for each in node.expressions for one in self._element(each)]
            case exp.Tuple():
                return [self._joined(node)]
            case exp.Paren():
                return self._element(node.this)
        return [(self._key(node),)]

    def _joined(self, node: exp.Expr) -> tuple[int, ...]:
        """The keys that an element stands for together."""
        if isinstance(node, exp.Paren | exp.Tuple):
            parts = [node.this] if isinstance(node, exp.Paren) else node.expressions
            return tuple(key for part in parts for key in self._joined(part))
        return (self._key(node),)

    def _key(self, node: exp.Expr) -> int:
        """The place of a key: a position or a name of an item, or an expression."""
        numbers = self.select.numbers
        place = position(node)
        if place is not None:
            if not 1 <= place <= len(self.visible):
                message = f"GROUP BY {place}, of {len(self.visible)} columns"
                numbers.refuse(node, "E_GROUP_BY", message, "name the column")
            return self._of_item(self.visible[place - 1])
        if isinstance(node, exp.Column) and not node.table and self.select.scope.own(node) is None:
            named = [
                place
                for place in self.visible
                if self.items[place].name.casefold() == node.name.casefold()
            ]
            if named:
                return self._of_item(named[0])
        if has_aggregates(node):
            message, hint = "an aggregate cannot be a grouping key", "HAVING tests aggregates"
            numbers.refuse(node, "E_GROUP_BY", message, hint)
        return self._numbered(self.terms.bound(node, Stage.ROWS))

    def _of_item(self, place: int) -> int:
        item = self.items[place]
        if item.node is None:
            assert item.column is not None
            value: Scalar = ColumnRef(item.column.column)
        else:
            value = self.terms.bound(item.node, Stage.ROWS)
        number = self._numbered(value)
        self.of_items[place] = self.terms.keys[value]
        return number

    def _numbered(self, value: Scalar) -> int:
        keys = self.terms.keys
        if value not in keys:
            keys[value] = self.select.numbers.fresh()
        return list(keys).index(value)


def _rolled(parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Every beginning of some keys, the longest first."""
    ends = range(len(parts), -1, -1)
    return [tuple(key for part in parts[:end] for key in part) for end in ends]


def _cubed(parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Every choice of some keys, all of them first."""
    return [
        tuple(key for part, kept in zip(parts, chosen, strict=True) if kept for key in part)
        for chosen in product((True, False), repeat=len(parts))
    ]


def conjuncts(test: Scalar) -> tuple[Scalar, ...]:
    """The conditions that all have to hold for one to hold."""
    if isinstance(test, ScalarCall) and test.function == "and":
        return tuple(each for part in test.arguments for each in conjuncts(part))
    return (test,)


def position(node: exp.Expr) -> int | None:
    """The column that a whole number stands for in GROUP BY and ORDER BY."""
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
    return int(node.name) if is_number else None


def _is_all(node: exp.Expr) -> bool:
    word = (isinstance(node, exp.Column) and not node.table) or isinstance(node, exp.Var)
    return word and node.name.upper() == "ALL"


def _name_of(node: exp.Expr) -> str:
    """The name of an item that has none."""
    return node.name if isinstance(node, exp.Column) else node.sql("duckdb")
