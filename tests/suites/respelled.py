"""Other spellings of a statement that mean the same: trees of sqlglot written otherwise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise

import sqlglot
from sqlglot import exp

Names = Mapping[str, tuple[str, ...]]
"""The tables of a catalog, case-folded, each with its columns; its privacy unit comes first."""
Respelling = Callable[[exp.Expr, Names], exp.Expr | None]
"""Writes a statement over tables otherwise; None where it has nothing to write so."""
SEEN = "_seen"
"""What the name of a table's view ends in: SELECT * FROM the table."""

_OPPOSITES: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.EQ: exp.NEQ,
}


def _tables(tree: exp.Expr, names: Names) -> list[exp.Table]:
    """The tables of the catalog in a statement; none where a CTE has the name of one."""
    ctes = {each.alias.casefold() for each in tree.find_all(exp.CTE)}
    found = [
        each for each in tree.find_all(exp.Table) if each.name.casefold() in names.keys() - ctes
    ]
    return [each for each in found if isinstance(each.this, exp.Identifier)]


def _named(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name))


def ctes(tree: exp.Expr, names: Names) -> exp.Expr | None:
    """Every table is read through a CTE that selects all of it."""
    if not isinstance(tree, exp.Select):
        return None
    found = _tables(tree, names)
    for each in found:
        each.set("alias", each.args.get("alias") or _named(each.name))
        each.set("this", exp.to_identifier(f"all_{each.name}"))
    before = tree.args.get("with_")
    given = [] if before is None else list(before.expressions)
    for name in dict.fromkeys(each.name.removeprefix("all_") for each in found):
        tree = tree.with_(f"all_{name}", as_=f"SELECT * FROM {name}", dialect="duckdb")
    if given and found:  # those of the statement read the new ones
        every = tree.args["with_"].expressions
        tree.args["with_"].set("expressions", [*every[len(given) :], *given])
    return tree if found else None


def views(tree: exp.Expr, names: Names) -> exp.Expr | None:
    """Every table is read through a view of the catalog that selects all of it."""
    found = [each for each in _tables(tree, names) if f"{each.name.casefold()}{SEEN}" in names]
    for each in found:
        each.set("alias", each.args.get("alias") or _named(each.name))
        each.set("this", exp.to_identifier(f"{each.name}{SEEN}"))
    return tree if found else None


def sub_queries(tree: exp.Expr, names: Names) -> exp.Expr | None:
    """Every table is read through a sub-query that selects all of it."""
    found = _tables(tree, names)
    for each in found:
        inner = sqlglot.parse_one(f"SELECT * FROM {each.name}", dialect="duckdb")
        each.replace(exp.Subquery(this=inner, alias=_named(each.alias or each.name)))
    return tree if found else None


def derived_ctes(tree: exp.Expr, _: Names) -> exp.Expr | None:
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


def wrapped(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """SELECT * around the whole."""
    if not isinstance(tree, exp.Select):
        return None
    if not all(item.alias or isinstance(item, exp.Column) for item in tree.expressions):
        return None
    return exp.select("*").from_(exp.Subquery(this=tree, alias=_named("whole")))


def negated(tree: exp.Expr, _: Names) -> exp.Expr | None:
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


def between(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """BETWEEN is two comparisons."""
    found = list(tree.find_all(exp.Between))
    for test in found:
        low = exp.GTE(this=test.this.copy(), expression=test.args["low"].copy())
        high = exp.LTE(this=test.this.copy(), expression=test.args["high"].copy())
        test.replace(exp.Paren(this=exp.And(this=low, expression=high)))
    return tree if found else None


def as_between(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """Two comparisons of one thing, first from below and then from above, are BETWEEN."""
    found = 0
    for both in list(tree.find_all(exp.And)):
        tests = [] if isinstance(both.parent, exp.And) else list(both.flatten())
        for low, high in pairwise(tests):
            if (type(low), type(high)) == (exp.GTE, exp.LTE) and low.this == high.this:
                ends = {"low": low.expression.copy(), "high": high.expression.copy()}
                low.replace(exp.Between(this=low.this.copy(), **ends))
                high.replace(exp.true())
                found += 1
    return tree if found else None


def swapped(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """A comparison in WHERE has its sides exchanged."""
    ways: dict[type[exp.Expr], type[exp.Expr]] = {
        exp.GT: exp.LT,
        exp.GTE: exp.LTE,
        exp.LT: exp.GT,
        exp.LTE: exp.GTE,
        exp.EQ: exp.EQ,
    }
    found = [
        test
        for where in tree.find_all(exp.Where)
        for test in list(where.find_all(*ways))
        if test.find_ancestor(exp.Where) is where
    ]
    for test in found:
        test.replace(ways[type(test)](this=test.expression, expression=test.this))
    return tree if found else None


def _members(select: exp.Select) -> list[exp.In]:
    """The conditions of WHERE that a column is IN a sub-query, which all have to hold."""
    where = select.args.get("where")
    if where is None:
        return []
    tests = list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]
    return [
        test
        for test in tests
        if isinstance(test, exp.In)
        and isinstance(test.this, exp.Column)
        and isinstance(test.args.get("query"), exp.Subquery)
    ]


def _picked(test: exp.In) -> tuple[exp.Subquery, exp.EQ]:
    """What a column is IN, as a table of one column, and the equality with that."""
    alias = exp.TableAlias(this=exp.to_identifier("picked"), columns=[exp.to_identifier("member")])
    table = exp.Subquery(this=test.args["query"].this.copy(), alias=alias)
    return table, exp.EQ(this=exp.column("member", "picked"), expression=test.this.copy())


def exists(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """A column that is IN a sub-query: there EXISTS a row of it that is equal."""
    found = [test for select in tree.find_all(exp.Select) for test in _members(select)]
    for test in found:
        table, same = _picked(test)
        inner = exp.select("1").from_(table).where(same)
        test.replace(exp.Exists(this=inner))
    return tree if found else None


def semi_joins(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """A column that is IN a sub-query: a semi-join with that."""
    found = 0
    for select in list(tree.find_all(exp.Select)):
        members = _members(select)
        if len(members) == 1 and select.args.get("from_") is not None:
            table, same = _picked(members[0])
            members[0].replace(exp.true())
            select.append("joins", exp.Join(this=table, kind="SEMI", on=same))
            found += 1
    return tree if found else None


def inner_joins(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """Tables that stand apart by commas and are equated in WHERE are joined ON that."""
    found = 0
    for select in list(tree.find_all(exp.Select)):
        where, joins = select.args.get("where"), select.args.get("joins") or []
        bare = [each for each in joins if not each.side and not each.args.get("using")]
        if where is None or not isinstance(where.this, exp.And) or len(bare) != len(joins):
            continue
        seen = {select.args["from_"].this.alias_or_name}
        for join in joins:
            name = join.this.alias_or_name
            tests = [
                test
                for test in where.this.flatten()
                if isinstance(test, exp.EQ)
                and _tables_of(test) <= {*seen, name}
                and name in _tables_of(test)
                and len(_tables_of(test)) == 2
            ]
            if tests and join.args.get("on") is None:
                join.set("kind", "INNER")
                join.set("on", exp.and_(*(test.copy() for test in tests)))
                for test in tests:
                    test.replace(exp.true())
                found += 1
            seen.add(name)
    return tree if found else None


def _tables_of(test: exp.Expr) -> set[str]:
    """The tables of columns; one that is named without a table has the table of no name."""
    return {each.table for each in test.find_all(exp.Column)}


def _called(tree: exp.Expr, names: Names, words: Collection[str]) -> exp.Expr | None:
    """One column of the tables, and all that is called so, has another name: one of the words."""
    if tree.find(exp.Pivot, exp.Lambda, exp.Struct) is not None:
        return None
    mentioned = {each.name.casefold() for each in tree.find_all(exp.Column)}
    tables = _tables(tree, names)
    held = {name for each in tables for name in names[each.name.casefold()]}
    given = {each.name.casefold() for each in tree.find_all(exp.Identifier) if _names(each)}
    old = _drawn(tree, sorted(mentioned & held))
    new = _drawn(tree, sorted(set(words) - held - given))
    if old is None or new is None:
        return None
    for each in list(tree.find_all(exp.Identifier)):
        if _names(each) and each.name.casefold() == old:
            each.replace(exp.to_identifier(new, quoted=True))
    for table in tables:
        if old in names[table.name.casefold()]:
            inner = f'SELECT * EXCLUDE ({old}), {old} AS "{new}" FROM {table.name}'
            source = sqlglot.parse_one(inner, dialect="duckdb")
            table.replace(exp.Subquery(this=source, alias=_named(table.alias or table.name)))
    return tree


def _names(each: exp.Identifier) -> bool:
    """Whether an identifier names a column, and not a table."""
    parent = each.parent
    if isinstance(parent, exp.Table | exp.TableAlias):
        return each.arg_key == "columns"
    return not (isinstance(parent, exp.Column) and each.arg_key in ("table", "db", "catalog"))


def _drawn(tree: exp.Expr, words: list[str]) -> str | None:
    """One of some words, the same for the same statement."""
    text = hashlib.sha256(tree.sql("duckdb").encode()).digest()
    return words[text[0] % len(words)] if words else None


def called_as_units(tree: exp.Expr, names: Names) -> exp.Expr | None:
    """A column is called as a privacy unit of the catalog is."""
    return _called(tree, names, {columns[0] for columns in names.values() if columns})


def called_as_tables(tree: exp.Expr, names: Names) -> exp.Expr | None:
    """A column is called as a table is, or as a CTE."""
    ctes = {each.alias.casefold() for each in tree.find_all(exp.CTE)}
    return _called(tree, names, ctes or {name for name in names if not name.endswith(SEEN)})


def cross_joins(tree: exp.Expr, _: Names) -> exp.Expr | None:
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


def true_conditions(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """Every SELECT has one condition more, which always holds."""
    for select in tree.find_all(exp.Select):
        if select.args.get("from_"):
            select.where("1 = 1", copy=False)
    return tree


def sums_of_one(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """COUNT(*) counts the rows for which 1 is not NULL."""
    found = [each for each in tree.find_all(exp.Count) if isinstance(each.this, exp.Star)]
    for each in found:
        each.set("this", exp.Literal.number(1))
    return tree if found else None


def shouted(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """Every name without quotes is in capitals, but where names become values."""
    if tree.find(exp.Pivot):
        return None
    found = [each for each in tree.find_all(exp.Identifier) if not each.quoted]
    for each in found:
        each.set("this", each.name.upper())
    return tree if found else None


def places(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """Keys of GROUP BY are the places of items, and places are the items themselves."""
    changed = False
    for select in tree.find_all(exp.Select):
        items = [item.unalias() for item in select.expressions]
        group = select.args.get("group")
        for key in [] if group is None else list(group.expressions):
            if key in items and not isinstance(key, exp.Literal):
                key.replace(exp.Literal.number(items.index(key) + 1))
            elif key.name.isdigit() and 0 < int(key.name) <= len(items):
                key.replace(items[int(key.name) - 1].copy())
            else:
                continue
            changed = True
    return tree if changed else None


def written_again(tree: exp.Expr, _: Names) -> exp.Expr | None:
    """The statement as sqlglot writes it."""
    return tree


RESPELLINGS: dict[str, Respelling] = {
    each.__name__: each
    for each in (
        *(ctes, sub_queries, views, derived_ctes, wrapped, negated, between, as_between, swapped),
        *(exists, semi_joins, inner_joins, cross_joins, called_as_units, called_as_tables),
        *(true_conditions, sums_of_one, places, shouted, written_again),
    )
}


def respelled(sql: str, names: Names) -> Iterator[tuple[str, str]]:
    """The other spellings of a statement, by the names of what makes them."""
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    for name, respelling in RESPELLINGS.items():
        found = respelling(tree.copy(), names)
        if found is not None and (name == "written_again" or found != tree):
            yield name, found.sql("duckdb")
