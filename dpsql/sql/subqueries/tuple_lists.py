"""``(a, b) IN (SELECT x, y ...)``: several columns at once, as EXISTS or as a join.

Over private rows it is EXISTS with an equality for each column. Over answers and public rows it is
a join with the combinations that there are, each once, where WHERE asks for it.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.logical.bind.subqueries import SubqueryBinder, SubqueryNames
from dpsql.logical.functions import conjuncts
from dpsql.sql.rewrites.tree_parts import all_of


def without_tuples(tree: exp.Expr, binder: SubqueryBinder) -> exp.Expr:
    """The statement without such conditions; those that cannot be written so stay as they are."""
    if not any(map(_is_of_tuple, tree.find_all(exp.In))):
        return tree
    tree = tree.copy()
    for number, node in enumerate(list(tree.find_all(exp.In))):
        if not _is_of_tuple(node):
            continue
        query, alias = node.args["query"].unnest(), f"in {number}"
        if not isinstance(query, exp.Query) or not _fits(node, query):
            continue
        facts = binder.facts(query)
        if facts is not None and facts.is_rows:
            if _is_test(node) or _is_known(node, query, binder):
                node.replace(_exists(node, query, alias))
        else:
            _join(node, query, alias)
    return tree


def _is_of_tuple(node: exp.In) -> bool:
    return isinstance(node.this.unnest(), exp.Tuple) and node.args.get("query") is not None


def _fits(node: exp.In, query: exp.Query) -> bool:
    items = query.selects
    return len(items) == len(_parts(node)) and not any(item.is_star for item in items)


def _parts(node: exp.In) -> list[exp.Expr]:
    found: list[exp.Expr] = node.this.unnest().expressions
    return found


def _listed(node: exp.In, query: exp.Query, alias: str) -> tuple[exp.Subquery, list[exp.EQ]]:
    """The sub-query under names of its own, and what its columns equal."""
    names = [f"k{place}" for place in range(len(_parts(node)))]
    quoted = [exp.to_identifier(name, quoted=True) for name in names]
    known = exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=quoted)
    equal = [
        exp.EQ(this=exp.column(name, alias, quoted=True), expression=exp.paren(part.copy()))
        for name, part in zip(names, _parts(node), strict=True)
    ]
    return exp.Subquery(this=query.copy(), alias=known), equal


def _is_test(node: exp.Expr) -> bool:
    """True if a condition that is unknown is as good as one that does not hold, where it stands."""
    above = node.parent
    while isinstance(above, exp.And | exp.Or | exp.Paren):
        above = above.parent
    return isinstance(above, exp.Where)


def _is_known(node: exp.In, query: exp.Query, binder: SubqueryBinder) -> bool:
    """True if neither side can be NULL, as the catalog says: NOT IN is not NOT EXISTS otherwise."""
    around = node.find_ancestor(exp.Select)
    if around is None or not isinstance(query, exp.Select):
        return False
    sides = ((around, _parts(node)), (query, [item.unalias() for item in query.expressions]))
    return all(_are_known(parts, binder.names(select)) for select, parts in sides)


def _are_known(parts: list[exp.Expr], names: SubqueryNames | None) -> bool:
    """True where expressions are columns that are never NULL."""
    columns = [part for part in parts if isinstance(part, exp.Column)]
    if names is None or len(columns) != len(parts):
        return False
    return not any(map(names.is_optional, columns))


def _exists(node: exp.In, query: exp.Query, alias: str) -> exp.Exists:
    listed, equal = _listed(node, query, alias)
    inner = exp.Select(expressions=[exp.Literal.number(1)], from_=exp.From(this=listed))
    inner.set("where", exp.Where(this=all_of(equal)))
    found = exp.Exists(this=inner)
    inner.meta.update(node.this.meta)
    return found


def _join(node: exp.In, query: exp.Query, alias: str) -> None:
    """Join a SELECT whose WHERE asks for it with the combinations of the sub-query, each once."""
    around = node.find_ancestor(exp.Select)
    where = None if around is None else around.args.get("where")
    if around is None or where is None or around.args.get("from_") is None:
        return
    tests = conjuncts(where.this)
    rest = [test for test in tests if test.unnest() is not node]
    joins = around.args.get("joins") or []
    if len(rest) == len(tests) or any(join.side in ("RIGHT", "FULL") for join in joins):
        return
    if not _lists_groups(query):
        inner = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("q")))
        query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))
        query.set("distinct", exp.Distinct())
    listed, equal = _listed(node, query, alias)
    around.append("joins", exp.Join(this=listed, on=all_of(equal)))
    kept = all_of(rest) if rest else None
    around.set("where", None if kept is None else exp.Where(this=kept))


def _lists_groups(query: exp.Query) -> bool:
    """True if a SELECT has no row twice: it shows its groups."""
    group = query.args.get("group")
    if not isinstance(query, exp.Select) or group is None:
        return False
    shown = {item.unalias() for item in query.expressions}
    places = {exp.Literal.number(k + 1) for k in range(len(query.expressions))}
    return all(key in shown or key in places for key in group.expressions) and not any(
        value for name, value in group.args.items() if name != "expressions"
    )
