"""Forms of SQL that mean other SQL: written out before names are looked up.

Nothing here knows a table. What is not written out stays as it is, and is refused by name later.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.logical.functions import has_aggregates
from dpsql.sql.dialects.dialect_functions import respell_all
from dpsql.sql.dialects.json_fields import FIELDS, write_out_fields
from dpsql.sql.dialects.report_format import write_out_reports
from dpsql.sql.joins.counted_rows import write_out_count
from dpsql.sql.rewrites.lists import write_out_lists
from dpsql.sql.rewrites.series import write_out_series
from dpsql.sql.rewrites.tree_parts import NodeLimit, any_of, size_of

_Test = Callable[[exp.Expr, exp.Expr], exp.Expr]
_Tests = Callable[[exp.Expr, list[exp.Expr]], exp.Expr]

_AROUND = (exp.Window, exp.Filter, exp.WithinGroup)
"""Clauses around an aggregate of a key by which it is another value than the key."""
COPIES = 3
"""Times that a part of a tuple is written where tuples are compared, at most."""


def plain(tree: exp.Query, room: NodeLimit) -> exp.Query:
    """Return a tree without tuples in comparisons, lists, series, FETCH and DISTINCT of groups.

    Functions are called as DuckDB calls them.
    Raises: ProgrammingError (E_TOO_COMPLEX) where that takes more nodes than there is room for.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("SELECT a FROM t WHERE (a, b) = (1, 2) FETCH FIRST ROW ONLY")
    >>> plain(tree, NodeLimit(20)).sql()
    'SELECT a FROM t WHERE (a IS NOT DISTINCT FROM 1 AND b IS NOT DISTINCT FROM 2) LIMIT 1'
    """
    if tree.find(exp.Window, exp.Bracket) is not None:
        from dpsql.sql.rewrites.named_windows import (
            write_out_windows,  # few statements have windows
        )

        write_out_windows(tree)
        write_out_reports(tree)
    write_out_lists(tree, room)
    write_out_series(tree)
    nodes, is_joined, has_fields = list(tree.walk(bfs=False)), False, False
    for node in reversed(nodes):  # those within others first, which may be repeated
        if isinstance(node, exp.In):
            _list_values(node, room)
        elif isinstance(node, exp.Tuple):
            _write_out(node, room)
        elif isinstance(node, exp.Exists):
            _over_values(node, room)
        elif isinstance(node, exp.Subquery):
            _of_nothing(node)
        elif isinstance(node, exp.Count) and _is_of_table(node.this):
            write_out_count(node)
    if any(isinstance(node, exp.In | exp.Tuple | exp.Exists) for node in nodes):
        nodes = list(tree.walk(bfs=False))
    for node in nodes:
        has_fields = has_fields or isinstance(node, FIELDS)
        if isinstance(node, exp.Fetch):
            _limit(node)
        elif isinstance(node, exp.Join):
            is_joined = True
    if is_joined:
        from dpsql.sql.rewrites.nested_joins import write_out_nested  # and few have joins

        write_out_nested(tree)
    if has_fields:
        write_out_fields(nodes)
    respell_all(nodes, room)
    _take_orders(nodes, room)
    for node in list(tree.find_all(exp.Select)):
        _name_joined(node)
        _first_of_each(node)
        if node.args.get("distinct") is not None and is_distinct(node):
            node.set("distinct", None)
        _name_keys(node)
    return tree


def _take_orders(nodes: list[exp.Expr], room: NodeLimit) -> None:
    """Take the room of aggregates WITHIN GROUP: they are shown with what they are ordered by twice.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("PERCENTILE_CONT(0.2) WITHIN GROUP (ORDER BY a)", read="duckdb")
    >>> tree.sql("duckdb")
    'QUANTILE_CONT(a, 0.2 ORDER BY a)'
    """
    sizes: dict[int, int] = {}
    for node in reversed(nodes if any(isinstance(each, exp.WithinGroup) for each in nodes) else []):
        sizes[id(node)] = 1 + sum(sizes.get(id(child), 1) for child in node.iter_expressions())
        if isinstance(node, exp.WithinGroup):
            room.take(sizes[id(node)])
            sizes[id(node)] *= 2


def _name_keys(node: exp.Select) -> None:
    """Write ANY_VALUE, MIN and MAX of a key of GROUP BY as that key, of which a group has one."""
    group = node.args.get("group")
    listed = [] if group is None else group.expressions
    if group is None or any(v for name, v in group.args.items() if name != "expressions"):
        return
    keys = {key_of(each, node.expressions) for each in listed}
    for item in [*node.expressions, *filter(None, [node.args.get("having")])]:
        for called in list(item.find_all(exp.AnyValue, exp.Min, exp.Max)):
            outer = called.parent if isinstance(called.parent, exp.IgnoreNulls) else called
            alone = not any(v for name, v in called.args.items() if name != "this")
            plain = alone and called.find_ancestor(exp.Select) is node
            if plain and called.this in keys and not isinstance(outer.parent, _AROUND):
                value = called.this.copy()
                if outer.parent is node:  # the item keeps its name
                    name = outer.sql("duckdb", comments=False).lower()
                    value = exp.alias_(value, name, quoted=True)
                outer.replace(value)


def key_of(node: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
    """Return the expression of a key: a select item by its position or alias, or itself."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        place = int(node.name) - 1
        return items[place].unalias() if 0 <= place < len(items) else node
    return node


def _first_of_each(node: exp.Select) -> None:
    """Write SELECT DISTINCT ON (k) ... ORDER BY k, x as QUALIFY: the first row by x of every k."""
    distinct, items = node.args.get("distinct"), node.expressions
    on = None if distinct is None else distinct.args.get("on")
    if on is None or any(node.args.get(name) for name in ("qualify", "windows")):
        return

    def written(part: exp.Expr) -> exp.Expr:
        named = [each.this for each in items if isinstance(each, exp.Alias)]
        known = {each.parent.alias.casefold(): each for each in reversed(named)}
        is_name = isinstance(part, exp.Column) and not part.table
        found = known.get(part.name.casefold()) if is_name else None
        return key_of(found or part, items).copy()

    keys = [written(each) for each in (on.expressions if isinstance(on, exp.Tuple) else [on])]
    order, by = node.args.get("order"), []
    for each in [] if order is None else order.expressions:
        item = each.copy()
        item.set("this", written(each.this))
        if item.this not in keys:
            by.append(item)
    first = exp.Window(this=exp.RowNumber(), partition_by=keys)
    if by:
        first.set("order", exp.Order(expressions=by))
    test = exp.EQ(this=first, expression=exp.Literal.number(1))
    node.set("qualify", exp.Qualify(this=test))
    node.set("distinct", None)
    if node.parent is not None and not node.args.get("limit"):
        node.set("order", None)


def _name_joined(node: exp.Select) -> None:
    """Give joined sub-queries without an alias the names that DuckDB gives them."""
    joins = [join.this for join in node.args.get("joins") or ()]
    start = node.args.get("from_")
    if not joins or start is None:
        return
    unnamed = [
        each for each in (start.this, *joins) if isinstance(each, exp.Subquery) and not each.alias
    ]
    for number, each in enumerate(unnamed, 1):
        name = f"unnamed_subquery{number if number > 1 else ''}"
        each.set("alias", exp.TableAlias(this=exp.to_identifier(name)))


def is_distinct(node: exp.Select) -> bool:
    """True if the rows of an aggregating SELECT differ anyway: it shows all keys of its groups."""
    group = node.args.get("group")
    if node.args["distinct"].args.get("on") is not None or not has_aggregates(node):
        return False
    if group is None or group.args.get("all"):
        return True
    if any(value for name, value in group.args.items() if name != "expressions"):
        return False
    shown = {item.unalias() for item in node.expressions}
    shown |= {exp.column(item.alias) for item in node.expressions if item.alias}
    shown |= {exp.Literal.number(place + 1) for place in range(len(node.expressions))}
    return all(key in shown for key in group.expressions)


def _limit(node: exp.Fetch) -> None:
    """FETCH FIRST n ROWS ONLY as LIMIT n; PERCENT and WITH TIES stay as they are."""
    options = node.args.get("limit_options")
    if options is None or not (options.args.get("percent") or options.args.get("with_ties")):
        count = node.args.get("count") or exp.Literal.number(1)
        node.replace(exp.Limit(expression=count.copy()))


def _list_values(node: exp.In, room: NodeLimit) -> None:
    """Write IN (VALUES (1), (2)) as IN (1, 2); of tuples as comparisons.

    Unlike those of a list, rows are compared as in SQL: what is NULL is equal to nothing.
    """
    listed, of = node.expressions, node.this
    if len(listed) != 1 or not isinstance(listed[0], exp.Values):
        return
    rows = [row for row in listed[0].expressions if isinstance(row, exp.Tuple)]
    if not isinstance(of, exp.Tuple):
        if all(len(row.expressions) == 1 for row in rows):
            node.set("expressions", [row.expressions[0] for row in rows])
    elif all(_fits(of, row) for row in rows):
        room.take(COPIES * (len(rows) * size_of(of) + size_of(listed[0])))
        tests = [exp.paren(_compared(of, row, _alike), copy=False) for row in rows]
        node.replace(exp.paren(any_of(tests), copy=False))


def _over_values(node: exp.Exists, room: NodeLimit) -> None:
    """Write EXISTS over rows of VALUES as its condition with the values of one of them."""
    select = node.this
    start = select.args.get("from_") if isinstance(select, exp.Select) else None
    listed = None if start is None else start.this
    used = {key for key, value in select.args.items() if value}
    if not isinstance(listed, exp.Values) or not used <= {"expressions", "from_", "where"}:
        return
    alias = listed.args.get("alias")
    names = [each.name.casefold() for each in alias.columns] if alias is not None else []
    rows = [row.expressions for row in listed.expressions if isinstance(row, exp.Tuple)]
    where = select.args.get("where")
    if not names or any(len(row) != len(names) for row in rows) or where is None:
        return
    if where.find(exp.Query) is not None or has_aggregates(select):
        return
    aliases = ("", listed.alias.casefold())

    def filled(part: exp.Expr, row: list[exp.Expr]) -> exp.Expr:
        if isinstance(part, exp.Column) and part.table.casefold() in aliases:
            name = part.name.casefold()
            return exp.paren(row[names.index(name)]) if name in names else part
        return part

    room.take(len(rows) * size_of(where) + sum(map(size_of, listed.expressions)))
    tests = [where.this.transform(filled, row) for row in rows]
    known = [exp.Is(this=exp.paren(test, copy=False), expression=exp.true()) for test in tests]
    node.replace(exp.paren(any_of(known), copy=False))


def _is_of_table(node: exp.Expr | None) -> bool:
    """True if a node is ``t.*``."""
    return isinstance(node, exp.Column) and isinstance(node.this, exp.Star)


def _of_nothing(node: exp.Subquery) -> None:
    """Write (SELECT 30), a value without a table, as the value."""
    select, around = node.this, node.parent
    used = {key for key, value in select.args.items() if value}
    if used != {"expressions"} or len(select.expressions) != 1 or node.alias:
        return
    value = select.expressions[0].unalias()
    if value.is_star or value.find(exp.AggFunc, exp.Window, exp.Query, exp.Unnest, exp.Explode):
        return
    if isinstance(around, exp.In) and node.arg_key == "query":
        around.set("query", None)
        around.set("expressions", [value.copy()])
    elif isinstance(around, _AROUND_VALUES) and not isinstance(around, exp.SubqueryPredicate):
        node.replace(exp.paren(value.copy(), copy=False))


_AROUND_VALUES = (exp.Binary, exp.Between, exp.Unary, exp.Case, exp.If, exp.Func, exp.In)


def _write_out(node: exp.Tuple, room: NodeLimit) -> None:
    """Write a comparison of tuples as comparisons of their parts.

    As in DuckDB, NULLs in tuples are values: equal to each other, and above all others.
    """
    parent = node.parent
    if parent is None or parent.args.get("this") is not node:
        return
    if isinstance(parent, exp.In):
        others: list[exp.Expr] = parent.expressions
        test: _Tests | None = _one_of
    else:
        others, test = [parent.expression], _COMPARISONS.get(type(parent))
    if test is not None and others and all(_fits(node, each) for each in others):
        found = exp.paren(_by_inner(node, others, test, room), copy=False)
        found.meta["is_settled"] = True  # true or false, never unknown
        parent.replace(found)


def _by_inner(left: exp.Tuple, others: list[exp.Expr], test: _Tests, room: NodeLimit) -> exp.Expr:
    """The test of tuples, in which the longest comparison of tuples within is written once.

    The test is asked with that comparison true and with it false, so that comparisons within
    comparisons grow as their text does.
    """
    parts = [part for each in (left, *others) for part in each.expressions]
    inner = max(filter(_is_settled, parts), key=size_of, default=None)
    known = exp.true()
    if inner is not None:
        inner.replace(known)
    ways = 1 if inner is None else 2
    room.take(ways * COPIES * (len(others) * size_of(left) + sum(map(size_of, others))))
    if inner is None:
        return test(left, others)
    is_so = exp.paren(test(left, others), copy=False)
    known.replace(exp.false())
    is_not = exp.paren(test(left, others), copy=False)
    return exp.Case(ifs=[exp.If(this=inner, true=is_so)], default=is_not)


def _is_settled(part: exp.Expr) -> bool:
    """True of a comparison of tuples that is written out."""
    while isinstance(part, exp.Paren | exp.Not) and "is_settled" not in part.meta:
        part = part.this
    return "is_settled" in part.meta


def _one_of(left: exp.Expr, others: list[exp.Expr]) -> exp.Expr:
    return any_of([_compared(left, each, _equal) for each in others])


def _fits(node: exp.Tuple, other: exp.Expr) -> bool:
    return isinstance(other, exp.Tuple) and len(other.expressions) == len(node.expressions)


def _compared(left: exp.Expr, right: exp.Expr, test: _Test) -> exp.Expr:
    """The conjunction of one test over all pairs of parts."""
    pairs = zip(left.expressions, right.expressions, strict=True)
    return exp.and_(*(test(one, two) for one, two in pairs), copy=False)


def _equal(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.NullSafeEQ(this=left.copy(), expression=right.copy())


def _alike(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.EQ(this=left.copy(), expression=right.copy())


def _below(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    less = exp.LT(this=left.copy(), expression=right.copy())
    known = exp.Not(this=exp.Is(this=left.copy(), expression=exp.null()))
    if isinstance(right, exp.Literal):
        return exp.and_(known, less, copy=False)
    missing = exp.Is(this=right.copy(), expression=exp.null())
    return exp.and_(known, exp.paren(exp.or_(missing, less, copy=False), copy=False), copy=False)


def _sorted(strictly: bool, turned: bool) -> _Test:
    """The order of tuples: that of the first parts that differ."""

    def test(left: exp.Expr, right: exp.Expr) -> exp.Expr:
        pairs = list(zip(left.expressions, right.expressions, strict=True))
        if turned:
            pairs = [(two, one) for one, two in pairs]
        last = [] if strictly else [_equal(*pairs[-1])]
        ways = [_below(*pairs[-1]), *last]
        found = exp.or_(*ways, copy=False)
        for one, two in reversed(pairs[:-1]):
            rest = exp.and_(_equal(one, two), exp.paren(found, copy=False), copy=False)
            found = exp.or_(_below(one, two), rest, copy=False)
        return found

    return test


def _of_one(test: _Test) -> _Tests:
    return lambda left, others: test(left, others[0])


_ORDERS: dict[type[exp.Expr], _Test] = {
    exp.EQ: lambda left, right: _compared(left, right, _equal),
    exp.NEQ: lambda left, right: exp.not_(exp.paren(_compared(left, right, _equal)), copy=False),
    exp.LT: _sorted(True, False),
    exp.LTE: _sorted(False, False),
    exp.GT: _sorted(True, True),
    exp.GTE: _sorted(False, True),
}
_COMPARISONS = {of: _of_one(test) for of, test in _ORDERS.items()}
