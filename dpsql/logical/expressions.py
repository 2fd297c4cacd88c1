"""Bound expressions: over one row, over a group of rows, and over a window.

Only an operator of the plan holds an aggregate or a window, and gives it a column; an expression
over one row mentions that column. Places are those of the text, and no part of what is equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NewType, TypeAlias

from dpsql.errors import Span
from dpsql.records import dataclass, field

ColumnId = NewType("ColumnId", int)
"""The number of a column, which no other column of a plan has."""


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the operator below, or of one further below that passes it on."""

    column: ColumnId
    place: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LogicalConstant:
    """A literal, a type, a unit of time: SQL that mentions no column."""

    sql: str
    place: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ScalarCall:
    """A function or an operator over values of one row.

    ``form`` tells its arguments apart where their order does not, as those of CASE.
    """

    function: str
    arguments: tuple[Scalar, ...]
    form: str = ""
    place: Span | None = field(default=None, compare=False, repr=False)


Scalar: TypeAlias = ColumnRef | LogicalConstant | ScalarCall


@dataclass(frozen=True, slots=True)
class SortKey:
    """One expression that rows are put in order by; ``nulls_first`` is None where nobody says."""

    value: Scalar
    descending: bool = False
    nulls_first: bool | None = None


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate of the rows of a group for which ``condition`` holds, in some order."""

    function: str
    arguments: tuple[Scalar, ...]
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    condition: Scalar | None = None
    form: str = ""
    place: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A function of the rows around a row: of its partition, in an order, within a frame."""

    function: str
    arguments: tuple[Scalar, ...]
    partition: tuple[Scalar, ...] = ()
    order: tuple[SortKey, ...] = ()
    condition: Scalar | None = None
    frame: str = ""
    form: str = ""
    place: Span | None = field(default=None, compare=False, repr=False)


def columns_in(expression: Scalar) -> Iterator[ColumnRef]:
    """The columns that an expression mentions, in the order of its text."""
    match expression:
        case ColumnRef():
            yield expression
        case ScalarCall():
            for argument in expression.arguments:
                yield from columns_in(argument)


def equal_columns(expression: Scalar) -> tuple[ColumnId, ColumnId] | None:
    """The two columns of a condition that says that they are equal, and nothing else."""
    match expression:
        case ScalarCall("eq", (ColumnRef(one), ColumnRef(other))):
            return one, other
    return None
