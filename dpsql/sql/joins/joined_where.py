"""Outer joins whose ON says more than that keys agree: rows that it holds for, and the others.

A row on the left is shown beside each partner for which the condition holds, and alone where there
is none. Both are rows of a unit made of rows of that unit alone, and so is their union.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.errors import Span
from dpsql.records import dataclass, replace
from dpsql.relation.unit_local import (
    EXISTS,
    AllOf,
    Among,
    FilterRows,
    MeetRows,
    PickColumns,
    Test,
    UnionRows,
)
from dpsql.sql.joins.full_joins import flipped, header_of, most_in_full, with_both, without_rows
from dpsql.sql.joins.joined_names import moved
from dpsql.sql.joins.joined_part import JoinedPart, Pairs, attached, free_names, is_lookup, keys_of
from dpsql.sql.joins.outer_sides import AsTest
from dpsql.sql.names import Names
from dpsql.sql.units.local_tables import named_source, table_of

_PAIR = "pair"


@dataclass(frozen=True, slots=True)
class PairConditions:
    """Conditions on rows of two parts side by side, at ``span``."""

    tests: Sequence[exp.Expr]
    names: Names
    as_test: AsTest
    catalog: Catalog
    span: Span

    def over(self, pairs: JoinedPart) -> Test:
        """The conditions as one on the cells of joined rows. Raises: as those in WHERE do."""
        label = " + ".join(each.table.title for each in pairs.members)
        table = table_of(self.catalog, pairs.relation, label, pairs.most, self.span)

        def write(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            place = self.names.place(node)
            if place is None:
                self.names.refuse_column(node)
            alias, fields = self.names.sources[place[0]]
            member = pairs.member(alias)
            if member is None:
                self.names.refuse_column(node)
            found = moved(fields[place[1]].value, member, table, _PAIR)
            for each in found.find_all(exp.Column):
                each.meta.update(node.meta)
                each.this.meta.update(node.this.meta)
            return found if isinstance(found, exp.Column) else exp.paren(found, copy=False)

        where = [test.copy().transform(write, copy=False) for test in self.tests]
        return self.as_test(named_source(table.name, _PAIR), where)


def joined_where(
    left: JoinedPart, right: JoinedPart, keys: Pairs, one: bool, on: PairConditions, name: str = ""
) -> JoinedPart:
    """LEFT JOIN of two parts by keys within a unit, and by conditions.

    With ``one``, rows on the left have one partner.
    """
    name = name or free_names(left.members, right)[0]
    beside = attached(left, right, keys, True, one=one, name=name)
    exists = Among((f"{name}{EXISTS}".casefold(),), b"\0\1")
    met = FilterRows(beside.relation, AllOf((exists, on.over(beside))))
    lone = without_partner(left, right, keys, on, name)
    return replace(beside, relation=UnionRows((met, lone.relation)))


def joined_in_full_where(
    left: JoinedPart, right: JoinedPart, keys: Pairs, on: PairConditions
) -> JoinedPart:
    """FULL JOIN of two parts by keys within a unit, and by conditions."""
    one, other = free_names([], left, right)
    first = joined_where(left, right, keys, is_lookup(left, right, keys), on, other)
    lone = without_partner(right, left, flipped(keys), on, one)
    most = most_in_full(left, right, keys)
    return with_both(left, right, first.relation, lone.relation, most, on.catalog)


def without_partner(
    left: JoinedPart, right: JoinedPart, keys: Pairs, on: PairConditions, name: str
) -> JoinedPart:
    """The rows on the left that no row on the right goes with, beside NULLs."""
    test = on.over(attached(left, right, keys, False, one=False, name=name))
    meets = MeetRows(left.relation, right.relation, name, keys_of(left, right, keys), test)
    rows = FilterRows(meets, Among((meets.partner_of.casefold(),), b"\1\0"))
    header = header_of(left.relation, on.catalog)
    names = {key: key for key in sorted(header.keys)}
    names |= {key: column.name for key, column in header.columns.items()}
    kept = PickColumns(rows, tuple((written, key) for key, written in names.items()))
    return attached(
        replace(left, relation=kept), without_rows(right), keys, True, one=True, name=name
    )
