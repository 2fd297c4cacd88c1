"""Many public rows that are joined by several private columns: each private row has one of them.

Which one is a column of the private table, worked out in the vault: ``l_partkey = ps_partkey AND
l_suppkey = ps_suppkey`` says where in partsupp a line is. Public rows are joined to that column
then, as others are to a column of the table itself.

Guarantee: public rows are matched only where a private row meets one of them at most, so that a
unit has as many joined rows as rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsql.catalog import Catalog, Column
from dpsql.catalog.domain import IntegerRange
from dpsql.records import dataclass, replace
from dpsql.relation.cell_maps import CELLS
from dpsql.relation.unit_local import MapRows
from dpsql.sql.public.equal_columns import sides_of
from dpsql.sql.public.public_combinations import matching_combinations
from dpsql.sql.relations import Field
from dpsql.sql.scope import Scope
from dpsql.sql.units.local_tables import relation_of, table_of

if TYPE_CHECKING:
    from dpsql.sql.public.public_rows import JoinedPublicRows

FEW = 1_000
"""Public rows up to which each is a list of conditions, in one plan with other statements."""
MOST_MATCHED = 1 << 20
"""Most public rows that private ones are matched with."""
NUMBER = " row"
"""The hidden column of public rows by which private ones are matched."""


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Public rows, by number those of FROM, and the cells of private columns by which they meet.

    ``places`` are the rows of each, (rows, numbers), ``cells`` (rows, columns); ``tests`` are the
    conditions that this comes from.
    """

    numbers: tuple[int, ...]
    places: NDArray[np.int64]
    columns: tuple[str, ...]
    cells: NDArray[np.int64]
    tests: tuple[exp.Expr, ...]


def matched(scope: Scope, catalog: Catalog, groups: Sequence[Sequence[int]]) -> Scope:
    """A scope over the private table with the numbers of public rows, where there are many.

    ``groups`` are the public rows that are joined to each other.
    """
    for group in groups:
        found = _find(scope, tuple(group)) if scope.table.unit.column is not None else None
        if found is not None:
            scope = _over(scope, catalog, found)
    return scope


def _find(scope: Scope, numbers: tuple[int, ...]) -> MatchedRows | None:
    """The match of private rows with many public ones, each with one at most; None without one."""
    members = [scope.joined[number] for number in numbers]
    if any(each.keep or not each.listed for each in members):
        return None
    keys, tests = _keys(scope, numbers)
    if len(keys) < 2:
        return None
    places = _places(scope, numbers)
    if places is None or not FEW < len(places) <= MOST_MATCHED:
        return None
    kept, cells = np.ones(len(places), dtype=np.bool_), []
    for name, (number, index) in keys.items():
        of_row = _cells_of(scope.table.columns[name], members[numbers.index(number)].values[index])
        cells.append(of_row[places[:, numbers.index(number)]])
        kept &= cells[-1] >= 0
    found = np.stack(cells, axis=1)[kept]
    if not len(found) or len(np.unique(found, axis=0)) < len(found):
        return None
    return MatchedRows(numbers, places[kept], tuple(keys), found, tuple(tests))


def _keys(
    scope: Scope, numbers: tuple[int, ...]
) -> tuple[dict[str, tuple[int, int]], list[exp.Expr]]:
    """Private columns and the public ones that they are equal to, and the conditions for it."""
    keys: dict[str, tuple[int, int]] = {}
    tests = []
    for test in scope.where:
        sides = sides_of(scope, test)
        private = [side for side in sides or () if isinstance(side, str)]
        public = [side for side in sides or () if not isinstance(side, str)]
        if len(private) == 1 == len(public) and public[0][0] in numbers:
            keys.setdefault(private[0], public[0])
            tests.append(test)
    return keys, tests


def _places(scope: Scope, numbers: tuple[int, ...]) -> NDArray[np.int64] | None:
    """The rows of each table that are side by side, (rows, tables); None for too many."""
    found = matching_combinations(scope, numbers, MOST_MATCHED)
    if found is None and len(numbers) == 1:
        return np.arange(len(scope.joined[numbers[0]].rows(())))[:, np.newaxis]
    if found is None or found[0] > MOST_MATCHED:
        return None
    return np.array(found[1], dtype=np.int64).reshape(-1, len(numbers))


def _cells_of(column: Column, values: Sequence[Any]) -> NDArray[np.int64]:
    """The cell of every value (rows,), -1 where it is none."""
    cells = {value: cell for cell, value in enumerate(column.cells) if value is not None}
    return np.array([cells.get(value, -1) for value in values], dtype=np.int64)


def _over(scope: Scope, catalog: Catalog, found: MatchedRows) -> Scope:
    """The scope over the private table with one column more: the number of the public row."""
    table, members = scope.table, [scope.joined[number] for number in found.numbers]
    label = " + ".join(each.alias for each in members)
    name = _fresh(f"row of {label}", table.columns)
    column = Column(name, "integer", IntegerRange(0, len(found.cells) - 1), null=True)
    numbers = np.arange(len(found.cells)).astype(CELLS).tobytes()
    cells = found.cells.astype(CELLS).tobytes()
    relation = MapRows(relation_of(table), column, found.columns, numbers, cells)
    most, span = table.unit.max_rows, members[0].span
    derived = table_of(catalog, relation, f"{table.title} + {label}", most, span)
    joined = list(scope.joined)
    for place, number in enumerate(found.numbers):
        own = [found.places[:, place].tolist()]
        joined[number] = _numbered(scope.joined[number], own[0], name, scope.alias)
    sources = list(scope.names.sources)
    hidden = Field(NUMBER, exp.column("v"), hidden=True)
    for number in found.numbers:
        alias, fields = sources[number]
        sources[number] = alias, (*fields, hidden)
    alias, fields = sources[len(joined)]
    sources[len(joined)] = alias, (*fields, Field(name, exp.column("v"), hidden=True))
    where = tuple(test for test in scope.where if not any(test is each for each in found.tests))
    return replace(
        scope,
        table=derived,
        joined=placed(joined),
        names=replace(scope.names, sources=sources),
        where=where,
        stored=scope.stored or table,
    )


def _fresh(name: str, taken: dict[str, Column]) -> str:
    """A name that no column has."""
    found, number = name, 2
    while found.casefold() in taken:
        found, number = f"{name} {number}", number + 1
    return found


def _numbered(
    joined: JoinedPublicRows, places: Sequence[int], name: str, alias: str
) -> JoinedPublicRows:
    """Some public rows in an order, joined to the column of their numbers."""
    chosen = tuple([values[place] for place in places] for values in joined.values)
    sides = ((NUMBER, joined.alias), (name, alias))
    one, two = (
        exp.column(*(exp.to_identifier(each, quoted=True) for each in side)) for side in sides
    )
    return replace(
        joined,
        names=(*joined.names, NUMBER),
        types=(*joined.types, "BIGINT"),
        values=(*chosen, range(len(places))),
        carrier=name.casefold(),
        tests=(exp.EQ(this=one, expression=two),),
        listed=False,
    )


def placed(joined: Sequence[JoinedPublicRows]) -> tuple[JoinedPublicRows, ...]:
    """Public rows with the numbers of their columns: those of lists apart from others."""
    found = []
    first = {True: 0, False: 0}
    for each in joined:
        found.append(replace(each, first=first[each.listed]))
        first[each.listed] += len(each.names)
    return tuple(found)
