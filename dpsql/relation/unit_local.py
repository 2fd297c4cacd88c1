"""Unit-local relations: rows of privacy units, made of rows of the same unit alone.

A small closed language. Its trees hold public facts only; the vault evaluates them on integer
codes. Every node maps rows that are labelled by their unit to rows that are labelled by their
unit, one unit at a time: there is no way to write a join, a window, a grouping or a sub-query that
reaches into the rows of another unit. Whoever adds a node keeps that true.

- ``Scan``: the rows of a declared table, labelled by its unit.
- ``JoinRows``: pairs of rows of one unit; by keys besides, where given. With ``one``, every row on
  the left has at most one partner: a *lookup* adds columns and no rows. With ``outer``, rows on the
  left without a partner stay; the columns of the right are NULL in them, and a column of truth
  values, named by ``partner_of``, says whether there is one.
- ``MeetRows``: a column more that says whether a row has a partner among rows of its unit for
  which a condition on both holds. It adds no rows.
- ``FilterRows``: the rows for which a condition on their cells holds.
- ``PerUnit``: one row for each unit, or for each unit and combination of the columns ``by``, with
  columns that sum up its rows. Without such columns it is DISTINCT. EXISTS is a join to it.
  ``PerKey`` is one row for each unit and key.
- ``WindowRows``: a column more, worked out in an order of the unit's rows; ``FramedRows`` is one
  that sees some rows around each row.
- ``MapRows``: a column more, which follows from the cells of other columns of the same row.
- ``DifferRows``: a column more, by how much two columns of the same row differ.
- ``FormulaRows``: a column more, a sum of products of numbers of the same row.
- ``UnionRows``: the rows of several relations with the same columns.
- ``PickColumns``: columns by other names; the rest is left out.

Columns are named as in the table; those on the right of a join are ``name.column``. Names are
case-folded. A *key* is a stored column by which declared references match rows; it has no domain,
and can be joined by and nothing else.

Guarantee: a relation of all rows is the disjoint union over units of a function of that unit's
rows, so that cutting it to ``max_rows`` rows for each unit, chosen by those rows alone, changes by
at most ``max_rows`` rows when one unit comes or goes. Cutting is done once, after all of the tree.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, Literal, TypeAlias, TypeVar

from dpsql.catalog.catalog import Column, Table
from dpsql.records import dataclass

Amount = TypeVar("Amount", bound=Any)

MOST_OF_UNIT = 10_000
"""Rows of one unit that a join makes at most, so that a few keys cannot multiply without end."""

Summing = Literal[
    "count",
    "distinct",
    "sum",
    "mean",
    "distinct_sum",
    "distinct_mean",
    "least",
    "greatest",
    "first",
    "last",
]
Running = Literal[
    "row_number",
    "part_number",
    "rank",
    "dense_rank",
    "running_count",
    "running_sum",
    "running_mean",
    "running_least",
    "running_greatest",
    "previous",
    "since_previous",
    "first_value",
    "last_value",
]


TAKEN = ("previous", "first_value", "last_value", "running_least", "running_greatest")
"""Windows with the value of some other row."""
FRAMED = (
    *("running_count", "running_sum", "running_mean", "running_least", "running_greatest"),
    *("first_value", "last_value"),
)
"""Windows that may be over some rows around each row."""


@dataclass(frozen=True, slots=True)
class Among:
    """The test that the cells of some columns are among listed ones.

    ``cells`` has one byte, 0 or 1, per combination of their cells, the last column fastest.
    """

    columns: tuple[str, ...]
    cells: bytes


@dataclass(frozen=True, slots=True)
class HasValue:
    """The test that a column has a declared value that is not NULL."""

    column: str


Sign = Literal["<", "<=", "=", "<>"]


@dataclass(frozen=True, slots=True)
class InOrder:
    """The test that the values of two columns, both days or both whole numbers, stand in an order.

    It does not hold where one of them is NULL.
    """

    left: str
    sign: Sign
    right: str


@dataclass(frozen=True, slots=True)
class AllOf:
    """The conjunction of some tests."""

    parts: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The disjunction of some tests."""

    parts: tuple[Test, ...]


Test: TypeAlias = Among | HasValue | InOrder | AllOf | AnyOf
"""A condition on one row. A row with an undeclared value in any column of it does not meet it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A column that sums up the rows of a unit, or of a group of them, for which ``where`` holds.

    ``column`` declares its values, which are clipped to bounds and found in cells as stored ones
    are. ``of`` is the column that is summed up; rows where it is NULL or undeclared are left out.
    ``least``, ``greatest``, ``first`` and ``last`` take its value from one row, the first and the
    last one in the order of ``order``; they are NULL where there is none.
    """

    column: Column
    kind: Summing
    of: str | None = None
    where: Test | None = None
    order: str | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a table of the catalog, by case-folded name."""

    table: str


EXISTS = " exists"
"""The suffix of a column that says whether a row has a partner."""
STEPS = " in steps"
"""The suffix of a column that follows from a sum, whatever it is."""


@dataclass(frozen=True, slots=True)
class JoinRows:
    """Pairs of rows of one unit that agree in the keys ``on``: (on the left, on the right)."""

    left: UnitLocal
    right: UnitLocal
    name: str
    on: tuple[tuple[str, str], ...] = ()
    outer: bool = False
    one: bool = False

    @property
    def partner_of(self) -> str:
        """The name of the column that says whether a row of an outer join has a partner."""
        return f"{self.name}{EXISTS}"


@dataclass(frozen=True, slots=True)
class MeetRows:
    """The rows on the left, each with whether a row of the same unit on the right matches it.

    Both agree in the keys ``on``, and ``where`` holds for them side by side, with columns called as
    those of a join. A column of truth values, named by ``partner_of``, says so.
    """

    left: UnitLocal
    right: UnitLocal
    name: str
    on: tuple[tuple[str, str], ...]
    where: Test

    @property
    def partner_of(self) -> str:
        """The name of the column that says whether there is such a row."""
        return f"{self.name}{EXISTS}"

    def pairs(self) -> JoinRows:
        """The rows of both sides side by side."""
        return JoinRows(self.left, self.right, self.name, self.on)


@dataclass(frozen=True, slots=True)
class FilterRows:
    """The rows for which a condition holds."""

    rows: UnitLocal
    where: Test


@dataclass(frozen=True, slots=True)
class PerUnit:
    """One row for each unit with rows, or for each combination ``by`` of cells of its rows."""

    rows: UnitLocal
    by: tuple[str, ...] = ()
    columns: tuple[Summary, ...] = ()


@dataclass(frozen=True, slots=True)
class PerKey(PerUnit):
    """One row for each unit and combination of ``keys`` and of cells ``by``: a row per order.

    The same key of another unit is another row.
    """

    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowOrder:
    """A column that rows are ordered by; NULL and undeclared values come last, or first."""

    column: str
    descends: bool = False
    missing_first: bool = False


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The rows with a window column, worked out in an order of the unit's rows.

    ``by`` are columns whose cells part the rows of a unit. ``of`` is the column that is counted,
    added up or looked back at. What runs takes in all rows that the order does not tell apart, or
    with ``row_by_row`` one after the other; where the order leaves it open, lots are drawn.
    ``part_number`` numbers the parts of each unit, as lots are drawn; rows with an undeclared cell
    in one of ``by`` are in no part, and have no number.
    """

    rows: UnitLocal
    column: Column
    kind: Running
    order: tuple[RowOrder, ...] = ()
    by: tuple[str, ...] = ()
    of: str | None = None
    row_by_row: bool = False


@dataclass(frozen=True, slots=True)
class FramedRows(WindowRows):
    """A window over some rows around each row: from ``first`` to ``last`` places after it.

    Both are inclusive and may be below zero; None goes to the end of the group. With ``by_value``
    they are distances from the row's value in the order instead, which is of one column of whole
    numbers or days; rows without a value have each other around them.
    """

    first: int | None = None
    last: int | None = 0
    by_value: bool = False


@dataclass(frozen=True, slots=True)
class MapRows:
    """The rows with a mapped column: its cell for every combination of cells of the columns ``of``.

    ``cells`` has four bytes for each combination, the last column fastest: a whole number, least
    byte first. With ``listed`` these are some combinations alone, which are written out there, each
    once, four bytes for every cell; the cell of all others is NULL. Rows with an undeclared value
    in one of these columns have none in this one. Of a column without cells they are its values:
    eight bytes each, a double, NaN where it is NULL.
    """

    rows: UnitLocal
    column: Column
    of: tuple[str, ...]
    cells: bytes
    listed: bytes | None = None


@dataclass(frozen=True, slots=True)
class DifferRows:
    """The rows with a difference column: ``left`` less ``right``, both whole numbers or both days.

    It is a whole number, NULL where one of them is, and declared by what these are declared to be.
    """

    rows: UnitLocal
    column: Column
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class UnionRows:
    """The rows of several relations with the same columns, all of them.

    Columns may differ in whether they take NULL; those without cells in their bounds.
    """

    parts: tuple[UnitLocal, ...]


@dataclass(frozen=True, slots=True)
class PickColumns:
    """Columns by other names: (new name as written, case-folded old name)."""

    rows: UnitLocal
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Multiple:
    """A number times the values of some columns of a row, each as often as it is named."""

    times: Fraction
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FormulaRows:
    """The rows with a formula column: a sum of products, NULL where a column of it is.

    NULL in one that is ``filled`` is a number in its place. ``column`` has bounds or bins: what is
    beyond is taken for the nearest of them. Rows with an undeclared value in one of these columns
    have none in this one.
    """

    rows: UnitLocal
    column: Column
    terms: tuple[Multiple, ...]
    filled: tuple[tuple[str, Fraction], ...] = ()

    @property
    def of(self) -> tuple[str, ...]:
        """The columns that it is made of, case-folded, each once."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term.columns))


UnitLocal: TypeAlias = (
    Scan
    | JoinRows
    | MeetRows
    | FilterRows
    | PerUnit
    | WindowRows
    | MapRows
    | DifferRows
    | FormulaRows
    | UnionRows
    | PickColumns
)


@dataclass(frozen=True, slots=True)
class DerivedTable(Table):
    """A table whose rows are those of a relation over ``bases``, all of one privacy unit.

    To everything but the vault it is a table like any other.
    """

    relation: UnitLocal = Scan("")
    bases: tuple[Table, ...] = ()

    @property
    def title(self) -> str:
        """The name that people read, without the digest that tells relations apart."""
        return self.name.rsplit(" #", 1)[0]

    def told(self, names: Sequence[str]) -> Sequence[str]:
        """Columns that may leave rows out: whether there is a partner is known of every row."""
        return [name for name in names if not name.endswith((EXISTS, STEPS))]


def children(relation: UnitLocal) -> tuple[UnitLocal, ...]:
    """The relations that a relation is made of."""
    match relation:
        case Scan():
            return ()
        case JoinRows(left, right) | MeetRows(left, right):
            return left, right
        case UnionRows(parts):
            return parts
        case FilterRows(inner) | PerUnit(inner) | PickColumns(inner):
            return (inner,)
        case WindowRows(inner) | MapRows(inner) | DifferRows(inner) | FormulaRows(inner):
            return (inner,)


def scanned(relation: UnitLocal) -> tuple[str, ...]:
    """The tables that a relation reads, each once, by case-folded name."""
    return tuple(dict.fromkeys(_scanned(relation)))


def _scanned(relation: UnitLocal) -> Iterator[str]:
    if isinstance(relation, Scan):
        yield relation.table
    for each in children(relation):
        yield from _scanned(each)


def amounts(
    relation: UnitLocal, rows: Mapping[str, Amount], pairs: Callable[[Amount, Amount], Amount]
) -> list[Amount]:
    """Return how many rows each step of a relation takes at most, the last one how many it makes.

    Args:
        relation: steps, of which the last comes last in the result.
        rows: most rows of its tables, by case-folded name.
        pairs: says how many pairs of rows two sides have; their product, or the larger where keys
            are unique.

    >>> many = UnionRows((JoinRows(Scan("a"), Scan("b"), "b"), Scan("a")))
    >>> amounts(many, {"a": 3, "b": 5}, max)
    [3, 5, 5, 3, 8]
    """
    if isinstance(relation, Scan):
        return [rows[relation.table]]
    parts = [amounts(each, rows, pairs) for each in children(relation)]
    sides = [each[-1] for each in parts]
    found = [each for part in parts for each in part]
    if isinstance(relation, UnionRows):
        return [*found, reduce(operator.add, sides)]
    if isinstance(relation, MeetRows):
        return [*found, pairs(*sides), sides[0]]
    if isinstance(relation, JoinRows) and not relation.one:
        return [*found, pairs(*sides)]
    return [*found, sides[0]]


def columns_of_test(test: Test) -> frozenset[str]:
    """The columns that a condition is about."""
    match test:
        case Among(columns):
            return frozenset(columns)
        case HasValue(column):
            return frozenset({column})
        case InOrder(left, _, right):
            return frozenset({left, right})
        case AllOf(parts) | AnyOf(parts):
            return frozenset().union(*map(columns_of_test, parts))
