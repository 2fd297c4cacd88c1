"""Facts of plans of some statements, and refusals with code, caret and hint."""

from __future__ import annotations

import pytest

from dpsql.catalog.catalog import Catalog, Column, View
from dpsql.errors import DatabaseError
from dpsql.logical.bind.binder import bind_query
from dpsql.logical.bind.catalog_schema import CatalogSchema
from dpsql.logical.facts import PlanFacts
from dpsql.logical.inference import FactReader, infer_facts
from dpsql.logical.levels import RelationLevel
from dpsql.logical.nodes import BoundStatement, LogicalAggregate, LogicalBound, inputs_of
from dpsql.logical.rules import ruled
from dpsql.records import replace
from dpsql.sql.rewrites.declared_views import with_views
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.logical.planned import COLUMNS, catalog, walk_plan

VIEWS = {"few": View("few", "SELECT * FROM visits", max_rows=2)}


def _catalog() -> Catalog:
    found = catalog()
    for name, table in found.tables.items():
        columns = {each: Column(each, "integer") for each in COLUMNS[name] if each != "person"}
        found.tables[name] = replace(table, columns=columns)
    found.views.update(VIEWS)
    return found


def bound(sql: str) -> BoundStatement:
    (fragment,) = split_statements(sql)
    tree = parse(fragment).tree
    assert tree is not None
    schema = CatalogSchema(_catalog(), lambda table: COLUMNS[table.name])
    whole = with_views(tree, _catalog(), lambda node: fragment.whole())
    return ruled(bind_query(whole, schema, fragment))


def measured(sql: str) -> PlanFacts:
    """The facts of what is measured first in a statement."""
    statement = bound(sql)
    reader = FactReader(_catalog(), statement)
    plan = reader.of(statement.plan, None).plan
    found = [each for each in walk_plan(plan) if isinstance(each, LogicalAggregate)]
    (asked,) = [each for each in found if reader.known[id(each)].measured]
    return reader.known[id(inputs_of(asked)[0])]


@pytest.mark.parametrize(
    ("rows", "level", "most"),
    [
        ("visits", RelationLevel.ROWS, 3),
        ("rows", RelationLevel.ROWS, 1),
        ("few", RelationLevel.ROWS, 2),
        ("(SELECT DISTINCT person FROM visits)", RelationLevel.ROWS, 1),
        ("(SELECT person, a FROM visits GROUP BY person, a)", RelationLevel.ROWS, 3),
        ("visits v JOIN people p ON v.person = p.person", RelationLevel.ROWS, 3),
        ("visits v, bills b WHERE v.k = b.k", RelationLevel.ROWS, 6),
        ("visits v FULL JOIN bills b USING (person)", RelationLevel.ROWS, 6),
        ("visits UNION ALL SELECT k, b FROM bills", RelationLevel.ROWS, 5),
        ("visits v JOIN bands w ON v.a = w.a", RelationLevel.ROWS, None),
        ("visits v JOIN (VALUES (1), (2)) AS w(x) ON v.a = w.x", RelationLevel.ROWS, 6),
        ("visits SEMI JOIN bills USING (k)", RelationLevel.ROWS, 3),
        ("visits WHERE person IN (SELECT person FROM bills)", RelationLevel.ROWS, 3),
        (
            "visits v WHERE v.a > (SELECT AVG(b) FROM bills b WHERE b.person = v.person)",
            RelationLevel.ROWS,
            3,
        ),
        (
            "visits v WHERE EXISTS (SELECT 1 FROM bills b WHERE b.k = v.k LIMIT 1)",
            RelationLevel.ROWS,
            3,
        ),
        (
            "(SELECT a, COUNT(*) OVER (PARTITION BY person) AS n FROM visits)",
            RelationLevel.ROWS,
            3,
        ),
    ],
)
def test_rows_are_of_a_unit_which_has_so_many(
    rows: str, level: RelationLevel, most: int | None
) -> None:
    sql = f"SELECT COUNT(*) FROM {rows}"
    if " UNION " in rows:
        sql = f"SELECT COUNT(*) FROM (SELECT k, a FROM {rows})"
    found = measured(sql)
    assert (found.level, found.rows) == (level, most)


def test_rows_beside_answers_are_both() -> None:
    statement = bound("SELECT COUNT(*) FROM visits WHERE a > (SELECT AVG(a) FROM visits)")
    reader = FactReader(_catalog(), statement)
    plan = reader.of(statement.plan, None).plan
    levels = {reader.known[id(each)].level for each in walk_plan(plan)}
    assert levels == {RelationLevel.ROWS, RelationLevel.BOTH, RelationLevel.NOISY}


def test_a_declared_key_has_the_unit_added_to_it() -> None:
    statement = bound("SELECT COUNT(*) FROM visits v JOIN bills b ON v.k = b.k")
    found, facts = infer_facts(statement, _catalog())
    assert facts.tables == ("visits", "bills")
    assert repr(found).count("'eq'") == repr(statement).count("'eq'") + 1


def test_max_rows_of_a_view_is_a_node_that_holds_the_unit() -> None:
    found, _ = infer_facts(bound("SELECT COUNT(*) FROM few"), _catalog())
    (node,) = {
        id(each): each for each in walk_plan(found.plan) if isinstance(each, LogicalBound)
    }.values()
    assert node.rows == 2
    assert node.unit is not None


@pytest.mark.parametrize(
    ("sql", "code", "marked"),
    [
        ("SELECT a FROM visits", "E_NO_AGGREGATE", "a"),
        ("SELECT a FROM visits LIMIT 3", "E_NO_AGGREGATE", "a"),
        ("SELECT person, COUNT(*) FROM visits GROUP BY person", "E_DOMAIN", "person"),
        ("SELECT COUNT(*) FROM bands", "E_JOIN", ""),
        ("SELECT COUNT(*) FROM visits v JOIN others o ON v.person = o.person", "E_JOIN", ""),
        ("SELECT COUNT(*) FROM visits v JOIN bills b ON v.a = b.b", "E_JOIN", ""),
        ("SELECT COUNT(*) FROM rows r JOIN rows s ON r.a = s.a", "E_JOIN", ""),
        ("SELECT COUNT(*) FROM visits v, bills b", "E_JOIN", ""),
        ("SELECT COUNT(*) FROM bands SEMI JOIN visits USING (a)", "E_JOIN", ""),
        ("SELECT COUNT(*) FROM bands w LEFT JOIN visits v ON v.a = w.a", "E_JOIN", ""),
        ("SELECT COUNT(COALESCE(v.k, 0)) FROM bands w LEFT JOIN visits v USING (a)", "E_JOIN", ""),
        ("SELECT COUNT(*) FROM visits WHERE a IN (SELECT b FROM bills)", "E_SUBQUERY", "a"),
        ("SELECT COUNT(*) FROM (SELECT a FROM visits LIMIT 3)", "E_LIMIT", "3"),
        ("SELECT COUNT(*) FROM (SELECT SUM(a) OVER () FROM visits)", "E_WINDOW", "a"),
        (
            "SELECT COUNT(*) FROM (SELECT a FROM visits UNION ALL SELECT a FROM bands)",
            "E_SET_OP",
            "",
        ),
        (
            "SELECT COUNT(*) FROM (SELECT a FROM visits UNION ALL SELECT a FROM others)",
            "E_SET_OP",
            "",
        ),
        (
            "SELECT COUNT(*) FROM (SELECT a FROM visits EXCEPT ALL SELECT b FROM bills)",
            "E_SET_OP",
            "",
        ),
    ],
)
def test_refusals_have_a_code_a_caret_and_a_hint(sql: str, code: str, marked: str) -> None:
    with pytest.raises(DatabaseError) as told:
        infer_facts(bound(sql), _catalog())
    error = told.value
    assert error.code == code
    assert error.hint
    assert error.span is not None
    assert marked in error.span.text[error.span.start : error.span.end]
    assert "{" not in f"{error}{error.hint}"
