"""Plans of the binder: what names stand for, where groups and windows stand, and its carets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dpsql.errors import ProgrammingError
from dpsql.logical.bind.binder import bind_query
from dpsql.logical.bind.scope import SchemaColumn
from dpsql.logical.expressions import ColumnRef, ScalarCall
from dpsql.logical.nodes import (
    BoundStatement,
    LogicalAggregate,
    LogicalApply,
    LogicalFilter,
    LogicalLimit,
    LogicalProject,
    LogicalScan,
    LogicalShared,
    LogicalWindow,
    Plan,
    columns_of,
    inputs_of,
)
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.logical.planned import walk_plan
from tests.logical.shadow import misplaced

TABLES = {
    "visits": [("ward", False), ("days", False), ("patient_id", True)],
    "patients": [("sex", False), ("patient_id", False)],
}


class Written:
    """A schema that is written out here."""

    def columns(self, table: str) -> Sequence[SchemaColumn] | None:
        """The columns of a table."""
        found = TABLES.get(table)
        return None if found is None else [SchemaColumn(*each) for each in found]

    def most_rows(self, view: str) -> int | None:
        """None: no view here declares it."""
        return None


def plan_of(sql: str) -> BoundStatement:
    (fragment,) = split_statements(sql)
    statement = parse(fragment)
    assert statement.tree is not None
    found = bind_query(statement.tree, Written(), fragment)
    assert misplaced(found) == []
    return found


def kinds(sql: str) -> list[str]:
    """The operators of a plan, the last first."""
    return [type(each).__name__.removeprefix("Logical") for each in walk_plan(plan_of(sql).plan)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT ward FROM visits", "Scan"),
        ("SELECT ward, COUNT(*) FROM visits GROUP BY 1", "Aggregate Scan"),
        ("SELECT COUNT(*) + 1 FROM visits WHERE days > 2", "Project Aggregate Filter Scan"),
        ("SELECT ward FROM visits GROUP BY ward HAVING COUNT(*) > 2", "Filter Aggregate Scan"),
        (
            "SELECT ward, SUM(COUNT(*)) OVER (ORDER BY ward) FROM visits GROUP BY ward",
            "Window Aggregate Scan",
        ),
        ("SELECT DISTINCT ward FROM visits ORDER BY 1 LIMIT 2", "Limit Aggregate Scan"),
        ("SELECT * FROM visits QUALIFY ROW_NUMBER() OVER () = 1", "Filter Window Scan"),
        (
            "SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM patients p"
            " WHERE p.patient_id = v.patient_id)",
            "Aggregate Filter Apply Scan Project Filter Scan",
        ),
        ("SELECT ward FROM visits UNION SELECT sex FROM patients", "SetOperation Scan Scan"),
        (
            "WITH s AS (SELECT * FROM visits WHERE days > 1) SELECT ward FROM s",
            "Shared Filter Scan",
        ),
        ("SELECT one FROM (SELECT 1 AS one)", "Project Values"),
    ],
)
def test_operators_stand_in_the_order_of_sql(sql: str, expected: str) -> None:
    assert " ".join(kinds(sql)) == expected


def test_star_leaves_out_what_is_hidden_and_the_plan_keeps_it() -> None:
    found = plan_of("SELECT * FROM visits")
    assert [name for name, _ in found.shown] == ["ward", "days"]
    assert len(columns_of(found.plan)) == 3
    assert [name for name, _ in plan_of("SELECT patient_id FROM visits").shown] == ["patient_id"]


def test_a_key_that_is_written_again_is_the_column_of_the_group() -> None:
    found = plan_of("SELECT days + 1, COUNT(*) FROM visits GROUP BY days + 1 HAVING days + 1 > 3")
    (aggregate,) = (each for each in walk_plan(found.plan) if isinstance(each, LogicalAggregate))
    (filtered,) = (each for each in walk_plan(found.plan) if isinstance(each, LogicalFilter))
    ((key, _),) = aggregate.keys
    assert found.shown[0][1] == key
    (test,) = filtered.tests
    assert isinstance(test, ScalarCall)
    assert test.arguments[0] == ColumnRef(key)


def test_equal_aggregates_and_windows_are_one_column() -> None:
    found = plan_of(
        "SELECT ward, COUNT(*), COUNT( * ), RANK() OVER (ORDER BY COUNT(*)) AS r FROM visits"
        " GROUP BY ward ORDER BY COUNT(*), RANK() OVER (ORDER BY COUNT(*))"
    )
    (aggregate,) = (each for each in walk_plan(found.plan) if isinstance(each, LogicalAggregate))
    (window,) = (each for each in walk_plan(found.plan) if isinstance(each, LogicalWindow))
    assert (len(aggregate.calls), len(window.calls)) == (1, 1)


def test_a_sub_query_mentions_parameters_which_are_columns_of_groups_above_them() -> None:
    found = plan_of(
        "SELECT ward, (SELECT COUNT(*) FROM patients WHERE sex = ward) FROM visits GROUP BY ward"
    )
    (applied,) = (each for each in walk_plan(found.plan) if isinstance(each, LogicalApply))
    assert isinstance(applied.left, LogicalAggregate)
    ((_, value),) = applied.parameters
    assert value == ColumnRef(applied.left.keys[0][0])


def test_a_cte_is_bound_once_and_has_columns_of_its_own_at_every_mention() -> None:
    found = plan_of(
        "WITH z AS (SELECT ward FROM visits) SELECT a.ward, b.ward FROM z a JOIN z b USING (ward)"
    )
    one, two = (each for each in walk_plan(found.plan) if isinstance(each, LogicalShared))
    assert one.input is two.input
    assert not set(columns_of(one)) & set(columns_of(two))


def test_a_chain_of_ctes_that_each_name_the_one_before_twice_is_as_long_as_its_text() -> None:
    chain = ["c0 AS (SELECT ward FROM visits)"]
    chain += [f"c{i} AS (SELECT a.ward FROM c{i - 1} a, c{i - 1} b)" for i in range(1, 13)]
    found = plan_of(f"WITH {', '.join(chain[:4])} SELECT ward FROM c3")
    assert sum(isinstance(each, LogicalScan) for each in walk_plan(found.plan)) == 8
    (fragment,) = split_statements(f"WITH {', '.join(chain)} SELECT ward FROM c12")
    tree = parse(fragment).tree
    assert tree is not None
    whole = bind_query(tree, Written(), fragment)
    waiting: list[Plan] = [whole.plan]
    seen: dict[int, Plan] = {}
    while waiting:
        plan = waiting.pop()
        if id(plan) not in seen:
            seen[id(plan)] = plan
            waiting += inputs_of(plan)
    assert len(seen) < 60


@pytest.mark.parametrize(
    ("sql", "code", "marked"),
    [
        ("SELECT wart FROM visits", "E_UNKNOWN_COLUMN", "wart"),
        ("SELECT v.ward FROM visits w", "E_UNKNOWN_TABLE", "v.ward"),
        ("SELECT 1 FROM nothing", "E_UNKNOWN_TABLE", "nothing"),
        ("SELECT patient_id FROM visits, patients", "E_UNKNOWN_COLUMN", "patient_id"),
        ("SELECT days FROM visits GROUP BY ward", "E_GROUP_BY", "days"),
        ("SELECT ward, days + COUNT(*) FROM visits GROUP BY 1", "E_GROUP_BY", "days"),
        ("SELECT ward FROM visits WHERE COUNT(days) > 1", "E_AGGREGATE", "days"),
        ("SELECT SUM(AVG(days)) FROM visits", "E_AGGREGATE", "days"),
        ("SELECT 1 FROM visits WHERE LAG(days) OVER () > 1", "E_WINDOW", "days"),
        ("SELECT COUNT(*) FROM visits GROUP BY RANK() OVER (ORDER BY days)", "E_WINDOW", "days"),
        ("SELECT SUM(SUM(days) OVER ()) OVER () FROM visits", "E_WINDOW", "days"),
        ("SELECT ward FROM visits WHERE ward IN (SELECT ward, days FROM visits)", "E_SUBQUERY", ""),
        ("SELECT ward, days FROM visits UNION SELECT sex FROM patients", "E_SET_OP", ""),
        ("SELECT ward FROM visits ORDER BY 2", "E_ORDER_BY", ""),
        ("SELECT ward FROM visits JOIN patients USING (sex)", "E_UNKNOWN_COLUMN", ""),
        ("SELECT * EXCLUDE (sex) FROM visits", "E_UNKNOWN_COLUMN", ""),
        ("SELECT 1 FROM visits v, patients v", "E_UNKNOWN_TABLE", ""),
    ],
)
def test_refusals_have_a_code_a_caret_and_a_hint(sql: str, code: str, marked: str) -> None:
    with pytest.raises(ProgrammingError) as told:
        plan_of(sql)
    error = told.value
    assert error.code == code
    assert error.hint
    if marked:
        assert error.span is not None
        assert marked in error.span.text[error.span.start : error.span.end]
        assert error.span.end - error.span.start < len(sql) / 2 + len(marked)


def test_names_of_items_are_known_after_those_of_columns() -> None:
    found = plan_of("SELECT days + 1 AS more FROM visits WHERE more > 3 ORDER BY more DESC")
    assert isinstance(found.plan, LogicalLimit)
    assert isinstance(found.plan.input, LogicalProject)
    with pytest.raises(ProgrammingError, match="there is no column more"):
        plan_of("SELECT more AS more FROM visits")


def test_grouping_sets_are_places_of_keys() -> None:
    def sets(group: str) -> object:
        found = plan_of(f"SELECT COUNT(*) FROM visits GROUP BY {group}").plan
        assert isinstance(found, LogicalAggregate)
        return found.sets

    assert sets("ward, days") is None
    assert sets("ROLLUP (ward, days)") == ((0, 1), (0,), ())
    assert sets("CUBE (ward, days)") == ((0, 1), (0,), (1,), ())
    assert sets("GROUPING SETS ((ward, days), ward, ())") == ((0, 1), (0,), ())
    assert sets("ward, ROLLUP (days)") == ((0, 1), (0,))


def test_full_joins_show_either_side_of_using() -> None:
    found = plan_of("SELECT patient_id FROM visits FULL JOIN patients USING (patient_id)")
    assert isinstance(found.plan, LogicalProject)
    ((column, value),) = found.plan.added
    assert found.shown == (("patient_id", column),)
    assert isinstance(value, ScalarCall)
    assert value.function == "coalesce"
