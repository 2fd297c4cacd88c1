"""Conditions on the side of an outer join that a row can be without: filters of its rows.

``patients p LEFT JOIN visits v ON v.patient_id = p.patient_id AND v.ward = 'a'`` joins the visits
of that ward; so does a sub-query that leaves out the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.records import replace
from dpsql.relation.unit_local import FilterRows, Test
from dpsql.sql.joins.joined_part import JoinedPart
from dpsql.sql.names import Names

AsTest = Callable[[exp.Table, Sequence[exp.Expr]], Test]
"""The test that conditions hold for the rows of a table, over the columns that are in it."""


def is_about(test: exp.Expr, side: JoinedPart, names: Names) -> bool:
    """True if a condition is about the columns of one table, the only one of a side."""
    columns = list(test.find_all(exp.Column))
    places = [names.place(column) for column in columns]
    found = {None if place is None else names.sources[place[0]][0] for place in places}
    return found == {side.members[0].alias} and len(side.members) == 1 and not test.find(exp.Query)


def filtered(
    side: JoinedPart, tests: Sequence[exp.Expr], names: Names, as_test: AsTest
) -> JoinedPart:
    """A side with those of its rows that meet conditions, the ones of its sub-query among them."""
    member = side.members[0]
    where = [*member.rows.where, *(_written(test, names) for test in tests)]
    if not where or len(side.members) > 1:
        return side
    relation = FilterRows(side.relation, as_test(member.rows.source, where))
    bare = replace(member, rows=replace(member.rows, where=()))
    return replace(side, relation=relation, members=(bare,))


def _written(test: exp.Expr, names: Names) -> exp.Expr:
    """A condition over the columns of the table itself."""

    def write(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        found = names.find(node)
        assert found is not None
        found.meta.update(node.meta)
        for part in found.find_all(exp.Identifier):
            part.meta.update(node.this.meta)
        return found if isinstance(found, exp.Column) else exp.paren(found, copy=False)

    return test.copy().transform(write, copy=False)
