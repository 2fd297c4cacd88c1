"""Queries where they stand: their own names, whose rows they are of, and which CTEs they see."""

from __future__ import annotations

import pytest
from sqlglot import exp

from dpsql.catalog.catalog import Catalog, Column, View
from dpsql.catalog.domain import IntegerRange
from dpsql.logical.bind.subqueries import SubqueryBinder, SubqueryNames
from dpsql.logical.levels import RelationLevel
from dpsql.records import replace
from dpsql.sql.rewrites.declared_views import with_views
from dpsql.sql.rewrites.qualified import unqualified
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.logical.planned import COLUMNS, catalog


def _catalog() -> Catalog:
    found = catalog()
    for name, table in found.tables.items():
        columns = {
            each: Column(each, "integer", domain=IntegerRange(0, 9))
            for each in COLUMNS[name]
            if each != "person"
        }
        found.tables[name] = replace(table, columns=columns)
    found.views["seen"] = View("seen", "SELECT * FROM visits")
    return found


def tree_of(sql: str) -> exp.Expr:
    (fragment,) = split_statements(sql)
    tree = parse(fragment).tree
    assert tree is not None
    return with_views(unqualified(tree, _catalog()), _catalog(), lambda node: fragment.whole())


def asked(sql: str) -> tuple[SubqueryBinder, exp.Select]:
    """The SELECT of a condition of a statement, where it stands; the first if there is none."""
    selects = list(tree_of(sql).find_all(exp.Select))
    found = [each for each in selects if _is_asked(each.parent)]
    binder = SubqueryBinder(_catalog(), lambda table: dict.fromkeys(COLUMNS[table.name], ("", ())))
    return binder, (found or selects)[0]


def _is_asked(above: exp.Expr | None) -> bool:
    while isinstance(above, exp.Subquery):
        above = above.parent
    return isinstance(above, exp.Predicate)


def names_in(sql: str) -> SubqueryNames | None:
    binder, select = asked(sql)
    return binder.names(select)


def own_columns(sql: str) -> list[str]:
    """The columns that such a SELECT mentions of its own FROM."""
    binder, select = asked(sql)
    names = binder.names(select)
    assert names is not None
    return [each.sql() for each in select.find_all(exp.Column) if names.has(each)]


@pytest.mark.parametrize(
    ("sql", "own"),
    [
        ("SELECT a FROM visits v WHERE EXISTS (SELECT 1 FROM people WHERE person = v.a)", "person"),
        ("SELECT a FROM visits WHERE a > (SELECT AVG(x.a) FROM bills x WHERE x.a = visits.a)",
         "x.a x.a"),
        ("WITH c AS (SELECT a AS z FROM visits) SELECT a FROM visits WHERE a > "
         "(SELECT MAX(z) FROM c WHERE z = a)", "z z"),
        ("WITH c(u) AS (SELECT a FROM visits) SELECT a FROM visits WHERE a > "
         "(SELECT MAX(u) FROM (SELECT * FROM c) AS q WHERE q.u = a)", "u q.u"),
        ("SELECT a FROM visits WHERE a > (SELECT MAX(b.a) FROM seen AS b WHERE person = x)",
         "b.a person"),
    ],
)  # fmt: skip
def test_names_are_those_of_its_own_from(sql: str, own: str) -> None:
    assert own_columns(sql) == own.split()


@pytest.mark.parametrize(
    ("source", "level"),
    [
        ("visits", RelationLevel.ROWS),
        ("seen", RelationLevel.ROWS),
        ("(SELECT person FROM visits GROUP BY person)", RelationLevel.ROWS),
        ("(SELECT a, COUNT(*) AS n FROM visits GROUP BY a)", RelationLevel.NOISY),
        ("(VALUES (1)) AS one(x)", RelationLevel.PUBLIC),
        ("shown", RelationLevel.NOISY),
        ("main.visits", RelationLevel.ROWS),
    ],
)
def test_levels_are_those_of_the_plan_whatever_tables_are_called(
    source: str, level: RelationLevel
) -> None:
    ctes = "shown AS (SELECT a, COUNT(*) AS n FROM visits GROUP BY a), people AS (SELECT 1 AS a)"
    names = names_in(f"WITH {ctes} SELECT 1 WHERE 1 IN (SELECT 1 FROM {source})")
    assert names is not None
    assert names.facts is not None
    assert names.facts.level is level
    binder, select = asked(f"WITH {ctes} SELECT 1 WHERE 1 IN (SELECT 1 FROM people)")
    assert binder.is_public(select)


def test_a_cte_sees_those_before_it_and_not_itself() -> None:
    sql = "WITH visits AS (SELECT 1 AS a), c AS (SELECT * FROM visits) SELECT 1"
    selects = [each for each in tree_of(sql).find_all(exp.Select) if each.is_star]
    binder, _ = asked(sql)
    assert binder.is_public(selects[0])
    sql = "WITH visits AS (SELECT * FROM visits) SELECT 1"
    (own,) = [each for each in tree_of(sql).find_all(exp.Select) if each.is_star]
    facts = asked(sql)[0].facts(own)
    assert facts is not None
    assert facts.level is RelationLevel.ROWS


def test_columns_that_are_passed_on_hold_the_unit_and_have_their_domain() -> None:
    inner = "(SELECT person AS who, a AS b, a + 1 AS c FROM visits) AS q"
    names = names_in(f"SELECT 1 WHERE 1 IN (SELECT 1 FROM {inner})")
    assert names is not None
    assert [names.holds_unit(exp.column(each)) for each in ("who", "b", "c")] == [
        True,
        False,
        False,
    ]
    stored = [names.origin(exp.column(each)) for each in ("who", "b", "c", "d")]
    assert [each and each.name for each in stored] == [None, "a", None, None]


@pytest.mark.parametrize(
    "source", ["nothing", "visits v JOIN people v ON TRUE", "visits POSITIONAL JOIN people"]
)
def test_what_does_not_bind_has_no_names(source: str) -> None:
    assert names_in(f"SELECT 1 WHERE 1 IN (SELECT 1 FROM {source})") is None


def test_rows_that_meet_without_their_unit_have_names_and_no_facts() -> None:
    names = names_in("SELECT 1 WHERE 1 IN (SELECT 1 FROM visits v JOIN people p ON v.a = p.a)")
    assert names is not None
    assert names.facts is None
    assert not names.holds_unit(exp.column("person", "v"))
