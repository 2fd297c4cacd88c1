"""The columns of queries: names and types, by the catalog and the text; nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sqlglot import exp, parse_one

from dpsql.catalog import Catalog
from dpsql.dialect import types
from dpsql.dialect.types import Type, arithmetic, common, result
from dpsql.records import dataclass, field
from dpsql.sql.dialects.dialect_queries import Columns, OutputColumn
from dpsql.sql.rewrites.qualified import find_key
from dpsql.sql.shell.expressions import name_of

TYPE = "postgres type"
"""Key under which an expression notes its type."""
_TESTS = (exp.Predicate, exp.Not, exp.Exists, exp.RegexpLike, exp.RegexpILike, exp.Connector)
_WITHIN = (exp.Paren, exp.Neg, exp.Filter, exp.WithinGroup, exp.Window, exp.Alias, exp.Distinct)
_WITHIN_TOO = (exp.Collate, exp.IgnoreNulls, exp.RespectNulls, exp.Ordered, exp.Any, exp.All)


_Sources = list[tuple[str, Columns | None]]
_Ctes = Mapping[str, Columns | None]


@dataclass(frozen=True, slots=True)
class TypingScope:
    """The names of one SELECT: its sources by alias, what is written around it, its aliases."""

    ctes: _Ctes
    around: TypingScope | None = None
    sources: _Sources = field(default_factory=list)
    aliases: dict[str, Type] = field(default_factory=dict)

    def find(self, column: exp.Column) -> Type:
        """The type of a column by its name; None where no source is known to have it."""
        name, table = column.name.casefold(), column.table.casefold()
        for alias, columns in self.sources:
            if table in ("", alias.casefold()):
                for each in columns or ():
                    if each.name.casefold() == name:
                        return each.type
        if not table and name in self.aliases:
            return self.aliases[name]
        return None if self.around is None else self.around.find(column)

    def has(self, column: exp.Column) -> bool:
        """Say whether a column of such a name may be there, of whatever type."""
        name, table = column.name.casefold(), column.table.casefold()
        for alias, columns in self.sources:
            if table in ("", alias.casefold()) and (
                columns is None or any(each.name.casefold() == name for each in columns)
            ):
                return True
        is_alias = not table and name in self.aliases
        return is_alias or (self.around is not None and self.around.has(column))

    def star(self, table: str) -> list[OutputColumn] | None:
        """The columns of all sources, or of one; None where they are not known."""
        found: list[OutputColumn] = []
        for alias, columns in self.sources:
            if table in ("", alias.casefold()):
                if columns is None:
                    return None
                found += columns
        return found


def type_of(node: exp.Expr | None) -> Type:
    """The type that was noted on an expression."""
    found: Type = None if node is None else node.meta.get(TYPE)
    return found


class Typing:
    """Notes the type of every expression of a query, parts first, and lets each be rewritten.

    ``tables`` tells the columns of tables and views by name in parts; ``label`` the name of an
    item; ``rewrite`` returns what stands in the place of an expression whose parts are typed.
    Where ``is_library``, quotients and means are doubles, and sums of integers are integers.
    ``is_missing`` says that a name was found nowhere.
    """

    def __init__(
        self,
        tables: Callable[[tuple[str, ...]], Columns | None],
        label: Callable[[exp.Expr], str],
        rewrite: Callable[[exp.Expr], exp.Expr] = lambda node: node,
        is_library: bool = False,
    ) -> None:
        self._tables, self._label, self._rewrite = tables, label, rewrite
        self._is_library = is_library
        self.is_missing = False

    def query(
        self, node: exp.Expr, ctes: _Ctes, around: TypingScope | None = None
    ) -> Columns | None:
        """The columns of a query; None where they are not known.

        Args:
            node: SELECT, set operation, VALUES or sub-query.
            ctes: columns of the CTEs that it sees, by case-folded name; None for one that is being
                typed.
            around: scope of the query that it is correlated with, if any.
        """
        clause = node.args.get("with_")
        is_recursive = clause is not None and bool(clause.args.get("recursive"))
        for cte in () if clause is None else clause.expressions:
            name = cte.alias.casefold()
            if is_recursive:
                found = self._recursive(cte, {**ctes, name: None})
            else:
                found = self.query(cte.this, ctes, around)
            ctes = {**ctes, name: _renamed(found, cte)}
        match node:
            case exp.Select():
                return self._select(node, TypingScope(ctes, around))
            case exp.SetOperation():
                return self._united(node, ctes, around)
            case exp.Subquery():
                columns = self.query(node.this, ctes, around)
                self._tail(node, columns, ctes)
                return columns
            case exp.Values():
                return self._values(node, TypingScope(ctes, around))
        return None

    def _recursive(self, cte: exp.Expr, ctes: _Ctes) -> Columns | None:
        """The columns of a CTE that may name itself: those of its first part."""
        whole = cte.this
        if not isinstance(whole, exp.SetOperation):
            return self.query(whole, ctes)
        first = self.query(whole.this, ctes)
        self.query(whole.expression, {**ctes, cte.alias.casefold(): _renamed(first, cte)})
        return first

    def _united(
        self, node: exp.SetOperation, ctes: _Ctes, around: TypingScope | None
    ) -> Columns | None:
        sides = [self.query(each, ctes, around) for each in (node.this, node.expression)]
        left, right = sides
        columns = None
        if left is not None and right is not None and len(left) == len(right):
            pairs = zip(left, right, strict=True)
            columns = [OutputColumn(a.name, common((a.type, b.type))) for a, b in pairs]
        self._tail(node, columns, ctes)
        return columns

    def _tail(self, node: exp.Expr, columns: Columns | None, ctes: _Ctes) -> None:
        """Type the ORDER BY and LIMIT after a set operation or parentheses."""
        scope = TypingScope(ctes, sources=[("", columns)])
        for name in ("order", "limit", "offset"):
            if node.args.get(name) is not None:
                self._children(node.args[name], scope)

    def _values(self, node: exp.Values, scope: TypingScope) -> Columns:
        self._children(node, scope)
        rows = [
            row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions
        ]
        known = [common(map(type_of, cells)) for cells in zip(*rows, strict=False)]
        return [OutputColumn(f"column{place}", each) for place, each in enumerate(known, 1)]

    def _select(self, node: exp.Select, scope: TypingScope) -> Columns | None:
        clause = node.args.get("from_")
        if clause is not None:
            self._source(clause.this, scope)
        for lateral in node.args.get("laterals") or ():
            self._source(lateral, scope)
        for join in node.args.get("joins") or ():
            self._joined(join, scope)
        for name in ("where", "distinct"):
            if node.args.get(name) is not None:
                self._children(node.args[name], scope)
        columns: list[OutputColumn] | None = []
        for item in list(node.expressions):
            found = self._item(item, scope)
            columns = None if columns is None or found is None else [*columns, *found]
        for name in ("group", "having", "windows", "qualify", "order", "limit", "offset"):
            for each in _listed(node.args.get(name)):
                self._children(each, scope)
        return columns

    def _item(self, item: exp.Expr, scope: TypingScope) -> list[OutputColumn] | None:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and item.is_star):
            star = item if isinstance(item, exp.Star) else item.this
            if any(star.args.get(key) for key in _OF_STAR):
                return None
            return scope.star(item.table.casefold() if isinstance(item, exp.Column) else "")
        name = self._label(item)
        found = self.expression(item, scope)
        if isinstance(found, exp.Alias):
            scope.aliases[found.alias.casefold()] = type_of(found)
        else:
            scope.aliases.setdefault(name.casefold(), type_of(found))
        return [OutputColumn(name, type_of(found))]

    def _joined(self, join: exp.Join, scope: TypingScope) -> None:
        before = len(scope.sources)
        self._source(join.this, scope)
        if join.args.get("on") is not None:
            self._children(join, scope, ("on",))
        used = {each.name.casefold() for each in join.args.get("using") or ()}
        if join.method.upper() == "NATURAL":
            left = scope.sources[:before]
            used = {c.name.casefold() for _, each in left for c in each or ()}
        if used:  # such a column is one, and shown first
            for place in range(before, len(scope.sources)):
                alias, columns = scope.sources[place]
                kept = [c for c in columns or () if c.name.casefold() not in used]
                scope.sources[place] = (alias, None if columns is None else kept)

    def _source(self, node: exp.Expr, scope: TypingScope) -> None:
        """Add an element of FROM to the sources, with the joins within it."""
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            self._source(node.this, scope)
        else:
            scope.sources.append((node.alias_or_name, _renamed(self._read(node, scope), node)))
        for join in node.args.get("joins") or ():
            self._joined(join, scope)

    def _read(self, node: exp.Expr, scope: TypingScope) -> Columns | None:
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                if node.args.get("pivots"):
                    return None
                parts = tuple(each.name for each in node.parts)
                name = parts[-1].casefold()
                return (
                    scope.ctes[name] if name in scope.ctes and not node.db else self._tables(parts)
                )
            case exp.Subquery() | exp.Values():
                return None if node.args.get("pivots") else self.query(node, scope.ctes, scope)
            case exp.Lateral() if isinstance(node.this, exp.Subquery):
                return self.query(node.this, scope.ctes, scope)
        self._children(node, scope)
        called = node.this if isinstance(node, exp.Table | exp.Lateral) else node
        if isinstance(called, exp.ExplodingGenerateSeries | exp.GenerateSeries):
            return [
                OutputColumn(node.alias or "generate_series", type_of(called.args.get("start")))
            ]
        return None

    def expression(self, node: exp.Expr, scope: TypingScope) -> exp.Expr:
        """Note the types of an expression and its parts; returns what stands in its place."""
        if isinstance(node, exp.Query):
            columns = self.query(node, scope.ctes, scope)
            node.meta[TYPE] = columns[0].type if columns else None
            return node
        self._children(node, scope)
        node.meta[TYPE] = self._typed(node, scope)
        around, key, index = node.parent, str(node.arg_key), node.index
        found = self._rewrite(node)
        if found is not node and around is not None:
            found.meta.setdefault(TYPE, node.meta[TYPE])
            around.set(key, found, index)  # what is put there may have the old one within
        return found

    def _children(
        self, node: exp.Expr, scope: TypingScope, names: Sequence[str] | None = None
    ) -> None:
        for name in list(node.args) if names is None else names:
            if name == "alias":
                continue
            for child in _listed(node.args[name]):
                if isinstance(child, exp.Expr) and not isinstance(child, exp.Identifier):
                    self.expression(child, scope)

    def _typed(self, node: exp.Expr, scope: TypingScope) -> Type:
        match node:
            case exp.Column():
                found = scope.find(node)
                self.is_missing |= found is None and not scope.has(node)
                return found
            case exp.Div() if self._is_library:
                return "float8"
            case exp.Literal():
                return types.literal(node)
            case exp.Cast():
                return types.written(node.to)
            case exp.Case():
                ways = [each.args.get("true") for each in node.args.get("ifs") or ()]
                return common(type_of(each) for each in (*ways, node.args.get("default")) if each)
            case exp.If():
                ways = [node.args.get("true"), node.args.get("false")]
                return common(type_of(each) for each in ways if each)
            case exp.Coalesce() | exp.Greatest() | exp.Least():
                return common(map(type_of, (node.this, *node.expressions)))
            case exp.Nullif():
                return common((type_of(node.this), type_of(node.expression)))
            case exp.Array():
                of = common(map(type_of, node.expressions))
                return None if of is None else f"{'text' if of == 'unknown' else of}[]"
            case exp.Bracket():
                return (type_of(node.this) or "").removesuffix("[]") or None
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod() | exp.IntDiv():
                return arithmetic(node, type_of(node.this), type_of(node.expression))
            case exp.PercentileDisc() | exp.Mode():
                return None  # of what they are within
            case exp.WithinGroup() if isinstance(node.this, exp.PercentileDisc | exp.Mode):
                ordered = node.expression.expressions
                return type_of(ordered[0]) if ordered else None
            case exp.Avg() if self._is_library:
                return "float8"
            case exp.Sum() if self._is_library and type_of(node.this) in types.INTEGERS:
                return "int8"
        if isinstance(node, _TESTS) and not isinstance(node, exp.Subquery):
            return "bool"
        if isinstance(node, (*_WITHIN, *_WITHIN_TOO)):
            first = node.this if node.this is not None else (node.expressions or [None])[0]
            return type_of(first) if isinstance(first, exp.Expr) else None
        if isinstance(node, exp.Order) and node.this is not None:
            return type_of(node.this)
        return result(node, [type_of(each) for each in arguments(node)])


_OF_STAR = ("except_", "except", "replace", "rename")


def arguments(node: exp.Expr) -> list[exp.Expr]:
    """The arguments of a function, in the order of the parser."""
    return [
        child
        for name, value in node.args.items()
        if name not in ("unit", "zone", "format", "separator", "order")
        for child in _listed(value)
        if isinstance(child, exp.Expr)
    ]


def _listed(value: object) -> list[exp.Expr]:
    found = value if isinstance(value, list) else [value]
    return [each for each in found if isinstance(each, exp.Expr)]


def _renamed(columns: Columns | None, node: exp.Expr) -> Columns | None:
    """Columns by the names that an alias gives the first of them."""
    alias = node.args.get("alias")
    given = [] if alias is None or isinstance(alias, str) else alias.args.get("columns") or []
    if columns is None or not given:
        return columns
    names = [*(each.name for each in given), *(each.name for each in columns[len(given) :])]
    return [OutputColumn(name, each.type) for name, each in zip(names, columns, strict=False)]


def columns_of(known: Catalog, parts: tuple[str, ...]) -> Columns | None:
    """The columns of a declared table or view; None for what is neither."""
    key = find_key(parts, known) or ""
    view = known.views.get(key)
    if view is not None:
        return columns_of_view(known, view.sql)
    table = known.tables.get(key)
    if table is None:
        return None
    kinds = types.DECLARED
    found = [OutputColumn(each.name, kinds.get(each.type)) for each in table.columns.values()]
    unit = table.unit.column
    if unit and unit.casefold() not in table.columns:
        found.insert(0, OutputColumn(unit, "text"))
    return found


def columns_of_view(known: Catalog, sql: str) -> Columns | None:
    """The columns of a query of the library's own dialect."""
    tree = parse_one(sql, dialect="duckdb")
    return library_typing(known).query(tree, {})


def library_typing(known: Catalog) -> Typing:
    """Return the typing of a query of the library's own dialect."""
    return Typing(partial(columns_of, known), name_of, is_library=True)
