"""Other spellings of a statement that mean the same: trees of sqlglot written otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sqlglot
from sqlglot import exp

Respelling = Callable[[exp.Expr, frozenset[str]], exp.Expr | None]
"""Writes a statement over tables otherwise; None where it has nothing to write so."""

_OPPOSITES: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.EQ: exp.NEQ,
}


def _tables(tree: exp.Expr, names: frozenset[str]) -> list[exp.Table]:
    """The tables of the catalog in a statement; none where a CTE has the name of one."""
    ctes = {each.alias.casefold() for each in tree.find_all(exp.CTE)}
    found = [each for each in tree.find_all(exp.Table) if each.name.casefold() in names - ctes]
    return [each for each in found if isinstance(each.this, exp.Identifier)]


def _named(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name))


def ctes(tree: exp.Expr, names: frozenset[str]) -> exp.Expr | None:
    """Every table is read through a CTE that selects all of it."""
    if not isinstance(tree, exp.Select) or tree.args.get("with_") is not None:
        return None
    found = _tables(tree, names)
    for each in found:
        each.set("alias", each.args.get("alias") or _named(each.name))
        each.set("this", exp.to_identifier(f"all_{each.name}"))
    for name in dict.fromkeys(each.name.removeprefix("all_") for each in found):
        tree = tree.with_(f"all_{name}", as_=f"SELECT * FROM {name}", dialect="duckdb")
    return tree if found else None


def sub_queries(tree: exp.Expr, names: frozenset[str]) -> exp.Expr | None:
    """Every table is read through a sub-query that selects all of it."""
    found = _tables(tree, names)
    for each in found:
        inner = sqlglot.parse_one(f"SELECT * FROM {each.name}", dialect="duckdb")
        each.replace(exp.Subquery(this=inner, alias=_named(each.alias or each.name)))
    return tree if found else None


def derived_ctes(tree: exp.Expr, _: frozenset[str]) -> exp.Expr | None:
    """Sub-queries in FROM of the whole statement are CTEs."""
    if not isinstance(tree, exp.Select) or tree.args.get("with_") is not None:
        return None
    joins = tree.args.get("joins") or []
    sources = [part.this for part in (tree.args.get("from_"), *joins) if part is not None]
    found = [each for each in sources if isinstance(each, exp.Subquery) and each.alias]
    for number, each in enumerate(found):
        name = f"derived_{number}"
        table = exp.Table(this=exp.to_identifier(name), alias=_named(each.alias))
        inner = each.this.copy()
        each.replace(table)
        tree = tree.with_(name, as_=inner)
    return tree if found else None


def wrapped(tree: exp.Expr, _: frozenset[str]) -> exp.Expr | None:
    """SELECT * around the whole."""
    if not isinstance(tree, exp.Select):
        return None
    if not all(item.alias or isinstance(item, exp.Column) for item in tree.expressions):
        return None
    return exp.select("*").from_(exp.Subquery(this=tree, alias=_named("whole")))


def negated(tree: exp.Expr, _: frozenset[str]) -> exp.Expr | None:
    """A comparison in WHERE is what its opposite is not."""
    found = [
        test
        for where in tree.find_all(exp.Where)
        for test in list(where.find_all(*_OPPOSITES))
        if test.find_ancestor(exp.Where) is where and not test.find(exp.Query)
    ]
    for test in found:
        inside = _OPPOSITES[type(test)](this=test.this, expression=test.expression)
        test.replace(exp.Not(this=exp.Paren(this=inside)))
    return tree if found else None


def between(tree: exp.Expr, _: frozenset[str]) -> exp.Expr | None:
    """BETWEEN is two comparisons."""
    found = list(tree.find_all(exp.Between))
    for test in found:
        low = exp.GTE(this=test.this.copy(), expression=test.args["low"].copy())
        high = exp.LTE(this=test.this.copy(), expression=test.args["high"].copy())
        test.replace(exp.Paren(this=exp.And(this=low, expression=high)))
    return tree if found else None


def cross_joins(tree: exp.Expr, _: frozenset[str]) -> exp.Expr | None:
    """What joins tables by ON stands in WHERE."""
    count = 0
    for select in tree.find_all(exp.Select):
        joins = select.args.get("joins") or []
        if any(each.side or each.kind or each.args.get("using") for each in joins):
            continue
        for join in joins:
            on = join.args.get("on")
            if on is not None:
                join.set("on", None)
                join.set("kind", "CROSS")
                select.where(on, copy=False)
                count += 1
    return tree if count else None


def true_conditions(tree: exp.Expr, _: frozenset[str]) -> exp.Expr | None:
    """Every SELECT has one condition more, which always holds."""
    for select in tree.find_all(exp.Select):
        if select.args.get("from_"):
            select.where("1 = 1", copy=False)
    return tree


def sums_of_one(tree: exp.Expr, _: frozenset[str]) -> exp.Expr | None:
    """COUNT(*) counts the rows for which 1 is not NULL."""
    found = [each for each in tree.find_all(exp.Count) if isinstance(each.this, exp.Star)]
    for each in found:
        each.set("this", exp.Literal.number(1))
    return tree if found else None


def shouted(tree: exp.Expr, _: frozenset[str]) -> exp.Expr | None:
    """Every name without quotes is in capitals, but where names become values."""
    if tree.find(exp.Pivot):
        return None
    found = [each for each in tree.find_all(exp.Identifier) if not each.quoted]
    for each in found:
        each.set("this", each.name.upper())
    return tree if found else None


def written_again(tree: exp.Expr, _: frozenset[str]) -> exp.Expr | None:
    """The statement as sqlglot writes it."""
    return tree


RESPELLINGS: dict[str, Respelling] = {
    each.__name__: each
    for each in (
        *(ctes, sub_queries, derived_ctes, wrapped, negated, between, cross_joins),
        *(true_conditions, sums_of_one, shouted, written_again),
    )
}


def respelled(sql: str, names: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The other spellings of a statement, by the names of what makes them."""
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    for name, respelling in RESPELLINGS.items():
        found = respelling(tree.copy(), names)
        if found is not None:
            yield name, found.sql("duckdb")
