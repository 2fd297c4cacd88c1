"""Private tables that are joined: what the names in the SELECT over them stand for."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.records import dataclass, replace
from dpsql.relation.unit_local import DerivedTable
from dpsql.sql.joins.joined_part import JoinedPart, MemberTable
from dpsql.sql.joins.outer_matches import WHOSE, write_matches
from dpsql.sql.names import Names
from dpsql.sql.relations import Field, FromElement, PrivateRows, Relation, column_of
from dpsql.sql.shell.language import Locate, refuse
from dpsql.sql.units.local_tables import named_source, table_of


@dataclass(frozen=True, slots=True, eq=False)
class AbsorbedTable:
    """An element of FROM whose rows are part of others': the columns that its names stand for.

    ``unit`` is the privacy unit of the rows where none of their tables is in all of them: what
    USING makes of the column of that name.
    """

    fields: tuple[Field, ...]
    unit: Field | None = None


@dataclass(frozen=True, slots=True)
class JoinedNames:
    """Shows joined tables to the SELECT whose FROM clause has them, as one table.

    ``found`` are the elements of FROM, ``names`` what the columns of the private ones are called.
    """

    found: Sequence[tuple[FromElement, Relation]]
    catalog: Catalog
    names: Names
    locate: Locate

    def shown(
        self, node: exp.Select, whole: JoinedPart
    ) -> tuple[exp.Select, list[tuple[FromElement, Relation | AbsorbedTable]]]:
        """The SELECT over the joined rows, under the names that are in it."""
        label = " + ".join(each.table.title for each in whole.members)
        span = self.locate(self.found[-1][0].node)
        table = table_of(self.catalog, whole.relation, label, whole.most, span)
        alias = whole.members[0].alias
        source = named_source(table.name, alias)
        members = {each.alias: each for each in whole.members}
        fields = {each: self.fields(member, table, alias) for each, member in members.items()}
        tests = [
            moved(test, member, table, alias)
            for member in members.values()
            for test in member.rows.where
        ]
        for member in members.values():
            if member.exists is not None and member.rows.where:
                what = "a filtered sub-query on the outer side of a join"
                refuse(member.rows.where[0], "E_JOIN", what, "filter in WHERE", self.locate)
        unit = None
        if all(each.exists is not None for each in whole.members):
            unit = Field(WHOSE, column_of(str(table.unit.column), alias), hidden=True)
            fields[alias] += (unit,)
        write_matches(node, members, self.names)
        out: list[tuple[FromElement, Relation | AbsorbedTable]] = []
        for element, relation in self.found:
            if element.alias not in members:
                out.append((element, relation))
            elif any(isinstance(each, PrivateRows) for _, each in out):
                out.append((element, AbsorbedTable(fields[element.alias], unit)))
            else:
                own = fields[element.alias]
                rows = PrivateRows(source, (), tuple(tests), own, frozenset({alias}))
                out.append((element, rows))
        return node, out

    def fields(self, member: MemberTable, table: DerivedTable, alias: str) -> tuple[Field, ...]:
        """The columns of one table, as expressions over the joined rows."""
        found = [
            replace(each, value=moved(each.value, member, table, alias)) for each in member.fields
        ]
        if member.exists is not None:
            found.append(Field(member.exists, column_of(member.exists, alias), hidden=True))
        return tuple(found)


def moved(value: exp.Expr, member: MemberTable, table: DerivedTable, alias: str) -> exp.Expr:
    """An expression over the columns of one table, over the joined rows."""

    def move(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if member.exists is None and member.is_unit(node.name):
            moved = column_of(str(table.unit.column), alias)
        else:
            moved = column_of(f"{member.prefix}{node.name}", alias)
        moved.meta.update(node.meta)
        return moved

    return value.copy().transform(move, copy=False)
