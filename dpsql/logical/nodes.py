"""The operators of a plan.

A plan is a tree of frozen operators. Every operator has columns, by number; what an operator does
not drop it passes on, so that the column of a privacy unit is there whether it is shown or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import TypeAlias

from dpsql.errors import Span
from dpsql.logical.expressions import (
    AggregateCall,
    ColumnId,
    Scalar,
    SortKey,
    WindowCall,
    columns_in,
)
from dpsql.records import dataclass, field, replace


class JoinKind(Enum):
    """The pairs of rows that a join keeps, and the rows without a partner."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


class ApplyKind(Enum):
    """The question that an expression asks of a sub-query."""

    EXISTS = "exists"
    IN = "in"
    SCALAR = "scalar"


@dataclass(frozen=True, slots=True, eq=False)
class LogicalScan:
    """The rows of a table; ``columns`` are all that it has, each with its name."""

    table: str
    columns: tuple[tuple[ColumnId, str], ...]
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalValues:
    """Rows that are written out: VALUES, or the one row without columns of a SELECT of no FROM."""

    rows: tuple[tuple[Scalar, ...], ...]
    columns: tuple[ColumnId, ...]
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalFilter:
    """The rows for which every one of ``tests`` holds."""

    input: Plan
    tests: tuple[Scalar, ...]
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalProject:
    """More columns. None is dropped: a privacy unit cannot be lost."""

    input: Plan
    added: tuple[tuple[ColumnId, Scalar], ...]
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalJoin:
    """Pairs of rows for which every condition of ``on`` holds."""

    left: Plan
    right: Plan
    kind: JoinKind
    on: tuple[Scalar, ...]
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalApply:
    """The rows of ``left``, each with one column more: what a sub-query says for it.

    ``right`` mentions ``parameters`` in place of the columns around it, each with its value for a
    row of ``left``; so it is a plan by itself. ``shown`` are the columns that are compared with
    ``arguments`` (IN), or the one whose value is taken (SCALAR).
    """

    left: Plan
    right: Plan
    kind: ApplyKind
    mark: ColumnId
    shown: tuple[ColumnId, ...]
    arguments: tuple[Scalar, ...] = ()
    parameters: tuple[tuple[ColumnId, Scalar], ...] = ()
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalAggregate:
    """One row for each group, with its keys and aggregates, and no other column.

    ``sets`` lists the keys of every grouping set by their places; None where there is one of all.
    """

    input: Plan
    keys: tuple[tuple[ColumnId, Scalar], ...]
    calls: tuple[tuple[ColumnId, AggregateCall], ...]
    sets: tuple[tuple[int, ...], ...] | None = None
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalWindow:
    """The same rows with columns more, which follow from the rows around each."""

    input: Plan
    calls: tuple[tuple[ColumnId, WindowCall], ...]
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalSetOperation:
    """UNION, INTERSECT or EXCEPT: column by column, ``parts`` say which of theirs stand there."""

    operation: str
    every: bool
    parts: tuple[tuple[Plan, tuple[ColumnId, ...]], ...]
    columns: tuple[ColumnId, ...]
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalLimit:
    """The rows in an order, and so many of them."""

    input: Plan
    order: tuple[SortKey, ...]
    limit: Scalar | None = None
    offset: Scalar | None = None
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalBound:
    """At most ``rows`` rows of each privacy unit; ``unit`` holds it, None until levels are known.

    Which rows stay follows from those of the unit alone.
    """

    input: Plan
    rows: int
    unit: ColumnId | None = None
    place: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalShared:
    """A CTE or a view where it is named: bound once, with columns of its own at every mention."""

    name: str
    input: Plan
    columns: tuple[tuple[ColumnId, ColumnId], ...]
    place: Span | None = field(default=None, repr=False)


Plan: TypeAlias = (
    LogicalScan
    | LogicalValues
    | LogicalFilter
    | LogicalProject
    | LogicalJoin
    | LogicalApply
    | LogicalAggregate
    | LogicalWindow
    | LogicalSetOperation
    | LogicalLimit
    | LogicalBound
    | LogicalShared
)


@dataclass(frozen=True, slots=True, eq=False)
class BoundStatement:
    """A plan, and the columns of its result in order, each with its name."""

    plan: Plan
    shown: tuple[tuple[str, ColumnId], ...]
    place: Span | None = field(default=None, repr=False)


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    """The plans that a plan is made of."""
    match plan:
        case LogicalScan() | LogicalValues():
            return ()
        case LogicalJoin() | LogicalApply():
            return plan.left, plan.right
        case LogicalSetOperation():
            return tuple(part for part, _ in plan.parts)
    return (plan.input,)


def with_inputs(plan: Plan, inputs: Sequence[Plan]) -> Plan:
    """The same operator over other plans; itself where they are the same."""
    if all(one is two for one, two in zip(inputs_of(plan), inputs, strict=True)):
        return plan
    match plan:
        case LogicalScan() | LogicalValues():
            return plan
        case LogicalJoin() | LogicalApply():
            return replace(plan, left=inputs[0], right=inputs[1])
        case LogicalSetOperation():
            parts = zip(inputs, plan.parts, strict=True)
            return replace(plan, parts=tuple((new, shown) for new, (_, shown) in parts))
    return replace(plan, input=inputs[0])


def columns_of(plan: Plan) -> tuple[ColumnId, ...]:
    """The columns of a plan, in order."""
    match plan:
        case LogicalScan():
            return tuple(column for column, _ in plan.columns)
        case LogicalValues() | LogicalSetOperation():
            return plan.columns
        case LogicalFilter() | LogicalLimit() | LogicalBound():
            return columns_of(plan.input)
        case LogicalProject():
            return *columns_of(plan.input), *(column for column, _ in plan.added)
        case LogicalWindow():
            return *columns_of(plan.input), *(column for column, _ in plan.calls)
        case LogicalAggregate():
            return tuple(column for column, _ in (*plan.keys, *plan.calls))
        case LogicalApply():
            return *columns_of(plan.left), plan.mark
        case LogicalShared():
            return tuple(column for column, _ in plan.columns)
    left = columns_of(plan.left)
    half = plan.kind in (JoinKind.SEMI, JoinKind.ANTI)
    return left if half else (*left, *columns_of(plan.right))


def from_below(plan: Plan) -> list[Plan]:
    """The operators of a plan, each once and after those below it."""
    found: dict[int, Plan] = {}
    waiting = [(plan, False)]
    while waiting:
        each, is_read = waiting.pop()
        if is_read:
            found.setdefault(id(each), each)
        elif id(each) not in found:
            waiting.append((each, True))
            waiting += [(below, False) for below in inputs_of(each)]
    return list(found.values())


def passed(plan: Plan) -> Iterable[tuple[ColumnId, Sequence[ColumnId]]]:
    """The columns that an operator makes of others, row by row, each with these."""
    match plan:
        case LogicalProject():
            return [(c, [each.column for each in columns_in(value)]) for c, value in plan.added]
        case LogicalShared():
            return [(new, [old]) for new, old in plan.columns]
        case LogicalSetOperation():
            shown = [columns for _, columns in plan.parts]
            return list(zip(plan.columns, zip(*shown, strict=True), strict=True))
        case LogicalApply() if plan.kind is ApplyKind.SCALAR:
            return [(plan.mark, plan.shown)]
        case LogicalWindow():
            return [
                (c, [each.column for value in call.arguments for each in columns_in(value)])
                for c, call in plan.calls
            ]
    return ()


def expressions_of(plan: Plan) -> Iterator[Scalar]:
    """Every expression over one row that an operator holds itself."""
    match plan:
        case LogicalValues():
            for row in plan.rows:
                yield from row
        case LogicalFilter():
            yield from plan.tests
        case LogicalProject():
            yield from (value for _, value in plan.added)
        case LogicalJoin():
            yield from plan.on
        case LogicalApply():
            yield from plan.arguments
            yield from (value for _, value in plan.parameters)
        case LogicalAggregate():
            yield from (value for _, value in plan.keys)
            for _, call in plan.calls:
                yield from parts_of(call)
        case LogicalWindow():
            for _, window in plan.calls:
                yield from (*parts_of(window), *window.partition)
        case LogicalLimit():
            yield from (key.value for key in plan.order)


def parts_of(call: AggregateCall | WindowCall) -> Iterator[Scalar]:
    """The expressions over one row that a call is about."""
    yield from call.arguments
    yield from (key.value for key in call.order)
    if call.condition is not None:
        yield call.condition
