"""Conditions in the form in which joins and comparisons with sub-queries are read.

``NOT (a.k <> b.k OR b.x > (SELECT ...))`` is ``a.k = b.k AND b.x <= (SELECT ...)``, and ``x BETWEEN
1 AND (SELECT ...)`` two comparisons. What all branches of an OR say is a condition of its own:
``(a.k = b.k AND b.x = 1) OR (a.k = b.k AND b.x = 2)`` is ``a.k = b.k AND (b.x = 1 OR b.x = 2)``. It
is so of unknown conditions too. Conditions that bring no rows together stay as they are written.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.logical.functions import INVERSE, conjuncts
from dpsql.sql.rewrites.tree_parts import all_of


def apart(tree: exp.Expr) -> exp.Expr:
    """The statement with such conditions apart from the others, in plain form."""
    found = [node for node in tree.find_all(exp.Where, exp.Join) if _may_have(node)]
    if not found:
        return tree
    tree = tree.copy()
    for node in tree.find_all(exp.Where, exp.Join):
        if _may_have(node):
            key = "this" if isinstance(node, exp.Where) else "on"
            node.set(key, all_of(_parts(node)))
    return tree


def _may_have(node: exp.Expr) -> bool:
    on = node.args.get("this" if isinstance(node, exp.Where) else "on")
    return on is not None and _parts(node) != conjuncts(on)


def _parts(node: exp.Expr) -> list[exp.Expr]:
    """The conditions of WHERE or ON; a sub-query may be joined to the SELECT around it."""
    select = node.parent
    is_joined = isinstance(select, exp.Select) and bool(select.args.get("joins") or select.parent)
    tests = conjuncts(node.args["this" if isinstance(node, exp.Where) else "on"])
    plain = [each for test in tests for each in _plain(test, is_joined)]
    return [each for test in plain for each in _out(test)] if is_joined else plain


def _plain(test: exp.Expr, is_joined: bool) -> list[exp.Expr]:
    """A condition without NOT and BETWEEN, where it brings rows together."""
    found = _said(test)
    if any((is_joined and _is_join(one)) or _asks(one) for one in found):
        return found
    return [test]


def _said(test: exp.Expr) -> list[exp.Expr]:
    """The comparisons that a condition says together."""
    inner = test.unnest()
    within = inner.this.unnest() if isinstance(inner, exp.Not) else inner
    if within is not inner and type(within) in INVERSE:
        sides = within.this.copy(), within.expression.copy()
        return [INVERSE[type(within)](this=sides[0], expression=sides[1])]
    if within is not inner and isinstance(within, exp.Not):
        return _said(within.this)
    if within is not inner and isinstance(within, exp.Or):
        both = (within.this, within.expression)
        return [each for side in both for each in _said(exp.Not(this=exp.paren(side)))]
    if isinstance(inner, exp.Between) and inner.find(exp.Query) and not inner.args.get("symmetric"):
        value, low, high = (inner.args[name] for name in ("this", "low", "high"))
        return [
            exp.GTE(this=value.copy(), expression=low.copy()),
            exp.LTE(this=value.copy(), expression=high.copy()),
        ]
    return [test]


def _asks(test: exp.Expr) -> bool:
    """True if a condition compares something with a sub-query."""
    sides = (test.this, test.expression) if type(test) in INVERSE else ()
    return any(isinstance(side.unnest(), exp.Query) for side in sides)


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
    rest: exp.Expr = all_of(left[0])
    for each in left[1:]:
        rest = exp.Or(this=exp.paren(rest, copy=False), expression=exp.paren(all_of(each)))
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
    """True if a condition sets two columns equal."""
    inner = test.unnest()
    return isinstance(inner, exp.EQ) and all(
        isinstance(side.unnest(), exp.Column) for side in (inner.this, inner.expression)
    )
