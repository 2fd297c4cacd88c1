"""Steps of a SELECT over private rows that the vault takes row by row, before it bounds them.

Each step makes the rows a relation with a column more, or with fewer rows, and leaves a SELECT over
it: whether a row has a partner or a key, clocks of other zones, row numbers, orders, differences,
and what is asked of sums.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.logical.bind.subqueries import SubqueryNames
from dpsql.sql.cells.column_differences import DifferenceColumns
from dpsql.sql.dialects.time_zones import Zones
from dpsql.sql.inline import FlatFrom
from dpsql.sql.joins.known_keys import KnownKeys
from dpsql.sql.measures.ranked_columns import RankedColumns
from dpsql.sql.products import Compiler
from dpsql.sql.relations import Relation
from dpsql.sql.subqueries.exists_conditions import SemiJoins
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.per_unit import table_under
from dpsql.sql.units.row_numbers import RowNumbers
from dpsql.sql.units.row_orders import RowOrders
from dpsql.sql.units.stepped_sums import SteppedSums


def over_own_columns(
    flat: FlatFrom,
    select: exp.Select,
    statement: Statement,
    compiler: Compiler,
    relation: Callable[[exp.Expr], Relation],
    names: Callable[[exp.Select], SubqueryNames | None],
) -> exp.Select:
    """The SELECT over such rows, which ``flat`` is of from now on; ``relation`` reads sub-queries
    and ``names`` what is in their FROM.

    Raises: NotSupportedError; ProgrammingError.
    """
    select = SemiJoins(flat, statement, compiler, relation, names).taken(select)
    zones = Zones(table_under(flat, compiler), flat.names.find, flat.locate)
    select = RowNumbers(flat, statement, compiler).taken(zones.written(select))
    select = KnownKeys(flat, compiler).written(RowOrders(flat, compiler).taken(select))
    select = DifferenceColumns(flat, statement, compiler).written(select)
    select = RankedColumns(flat, statement, compiler).written(select)
    return SteppedSums(flat, compiler).written(select)
