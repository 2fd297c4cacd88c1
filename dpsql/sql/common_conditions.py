"""What all branches of an OR say -> a condition of its own, as joins are written in them.

``(a.k = b.k AND b.x = 1) OR (a.k = b.k AND b.x = 2)`` is ``a.k = b.k AND (b.x = 1 OR b.x = 2)``, of
unknown conditions too. Only what compares two columns is taken out, by which tables are joined.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.scope import conjuncts


def apart(tree: exp.Expr) -> exp.Expr:
    """The statement with joins in every branch of an OR beside it; others are as they were."""
    found = [node for node in tree.find_all(exp.Where, exp.Join) if _may_have(node)]
    if not found:
        return tree
    tree = tree.copy()
    for node in tree.find_all(exp.Where, exp.Join):
        if _may_have(node):
            key = "this" if isinstance(node, exp.Where) else "on"
            node.set(key, _all([part for each in conjuncts(node.args[key]) for part in _out(each)]))
    return tree


def _may_have(node: exp.Expr) -> bool:
    """Whether a condition on several tables has an OR, every branch of which joins some.

    A sub-query may be joined to the SELECT around it.
    """
    select, on = node.parent, node.args.get("this" if isinstance(node, exp.Where) else "on")
    joined = isinstance(select, exp.Select) and bool(select.args.get("joins") or select.parent)
    return joined and on is not None and any(len(_out(each)) > 1 for each in conjuncts(on))


def _out(test: exp.Expr) -> list[exp.Expr]:
    """A condition as those that all of its branches have, and what is left of it."""
    branches = [conjuncts(each) for each in _branches(test)]
    first, *others = branches
    if not others:
        return [test]
    common = [
        one
        for one in first
        if _is_join(one) and all(any(_bare(one) == _bare(two) for two in each) for each in others)
    ]
    common = [one for k, one in enumerate(common) if all(one != two for two in common[:k])]
    if not common:
        return [test]
    said = [_bare(one) for one in common]
    left = [[one for one in each if _bare(one) not in said] for each in branches]
    if not all(left):
        return common  # one branch says nothing more: all that it says is enough
    rest: exp.Expr = _all(left[0])
    for each in left[1:]:
        rest = exp.Or(this=exp.paren(rest, copy=False), expression=exp.paren(_all(each)))
    return [*common, rest]


def _branches(test: exp.Expr) -> list[exp.Expr]:
    parts, found = [test], []
    while parts:
        node = parts.pop()
        inner = node.unnest()
        if isinstance(inner, exp.Or):
            parts += [inner.expression, inner.this]
        else:
            found.append(node)
    return found


def _bare(test: exp.Expr) -> exp.Expr:
    return test.unnest()


def _is_join(test: exp.Expr) -> bool:
    """Whether a condition sets two columns equal."""
    inner = test.unnest()
    return isinstance(inner, exp.EQ) and all(
        isinstance(side.unnest(), exp.Column) for side in (inner.this, inner.expression)
    )


def _all(tests: list[exp.Expr]) -> exp.Expr:
    kept = [exp.paren(test.copy(), copy=False) for test in tests]
    return exp.and_(*kept, copy=False)
