"""Facts of operators: whose rows these are, which columns hold the unit, how many rows it has.

``inference`` finds them, from below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpsql.catalog.catalog import Table
from dpsql.logical.expressions import (
    AggregateCall,
    ColumnId,
    ColumnRef,
    Scalar,
    ScalarCall,
    columns_in,
)
from dpsql.logical.levels import RelationLevel
from dpsql.logical.nodes import (
    JoinKind,
    LogicalAggregate,
    LogicalFilter,
    LogicalLimit,
    LogicalProject,
    LogicalScan,
    LogicalSetOperation,
    LogicalShared,
    LogicalWindow,
    Plan,
)
from dpsql.records import dataclass, field, replace

Origin = tuple[str, str]
"""The table, and the column of it, both case-folded, that a column of a plan has the values of."""
NO_HALVES: tuple[frozenset[ColumnId], frozenset[ColumnId]] = (frozenset(), frozenset())
PRIVATE = (RelationLevel.ROWS, RelationLevel.BOTH)
_STRICT = frozenset(
    (
        *("add", "sub", "mul", "div", "intdiv", "mod", "neg", "abs", "round", "floor", "ceil"),
        *("eq", "neq", "lt", "lte", "gt", "gte", "between", "in", "not", "like", "ilike", "cast"),
        *("lower", "upper", "trim", "substring", "length", "extract", "timestamptrunc"),
        *("datetrunc", "year", "quarter", "month", "week", "day", "dayofweek", "hour", "sign"),
    )
)
"""Functions that are NULL wherever an argument is, so far as anybody asked for them."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanFacts:
    """Facts of one operator.

    ``unit`` names whose rows these are, and ``units`` are the columns that hold it: none of them is
    NULL but in public rows that ``stays`` says a join kept without private ones; ``kept`` are the
    columns that have values in these. ``rows`` is how many a unit has at most, and of public rows
    and answers how many there are; None where that is not known before public rows are read. With
    ``pinned``, all rows are of one unit, that of a row around the sub-query. ``partial`` are
    columns that hold the unit or NULL, as those of a side of a join whose rows may have no partner;
    ``halves`` are those on both sides of a FULL JOIN.
    """

    level: RelationLevel
    unit: str = ""
    units: frozenset[ColumnId] = frozenset()
    rows: int | None = None
    pinned: int | None = None
    stays: bool = False
    kept: frozenset[ColumnId] = frozenset()
    measured: bool = False
    tables: tuple[str, ...] = ()
    origins: Mapping[ColumnId, Origin] = field(default_factory=dict)
    partial: frozenset[ColumnId] = frozenset()
    halves: tuple[frozenset[ColumnId], frozenset[ColumnId]] = NO_HALVES

    @property
    def is_public(self) -> bool:
        return self.level is RelationLevel.PUBLIC

    @property
    def is_rows(self) -> bool:
        return self.level is RelationLevel.ROWS

    @property
    def is_answers(self) -> bool:
        return self.level is RelationLevel.NOISY

    @property
    def is_private(self) -> bool:
        return self.level in PRIVATE

    @property
    def equal(self) -> frozenset[ColumnId]:
        """The columns that hold the unit wherever they are equal to something."""
        return self.units | self.partial


@dataclass(frozen=True, slots=True, eq=False)
class LevelledPlan:
    """A plan with its facts, and those of every operator in it by its identity."""

    plan: Plan
    facts: PlanFacts


def unit_of(table: Table) -> str:
    """The name of the unit that rows of a table are of; empty for a public table."""
    if table.public:
        return ""
    if table.unit.name is not None:
        return table.unit.name
    return f"{'row' if table.unit.column is None else 'unit'} of {table.name}"


def joined_facts(
    found: PlanFacts,
    sides: Sequence[PlanFacts],
    kind: JoinKind,
) -> PlanFacts:
    """The facts of a join; of LEFT and RIGHT the side that is kept is the left one here."""
    left, right = sides
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        return replace(
            found,
            units=left.units,
            partial=left.partial,
            rows=left.rows,
            stays=left.stays,
            kept=left.kept,
            origins=left.origins,
        )
    stays, kept = left.stays or right.stays, left.kept | right.kept
    units = left.units | right.units
    partial = left.partial | right.partial
    if kind in (JoinKind.LEFT, JoinKind.RIGHT) and left.is_private:
        stays, kept = left.stays, left.kept
        units, partial = left.units, partial | right.units
    if kind is JoinKind.FULL and left.is_private and right.is_private:
        units, partial = frozenset(), partial | units
    found = replace(found, units=units, partial=partial, stays=stays, kept=kept)
    if left.rows is None or right.rows is None:
        return replace(found, rows=None)
    rows = left.rows * right.rows
    if kind is not JoinKind.INNER:
        rows = max(rows, left.rows)
    if kind is JoinKind.FULL:
        rows = max(rows, left.rows + right.rows)
    return replace(found, rows=rows)


def is_one_unit(sides: Sequence[PlanFacts]) -> bool:
    """Say whether private rows are of one kind of unit, and not of two rows around them."""
    private = [each for each in sides if each.is_private]
    rows = {each.pinned for each in private} - {None}
    return len({each.unit for each in private}) == 1 and len(rows) <= 1


def united_columns(plan: LogicalSetOperation, facts: Sequence[PlanFacts]) -> frozenset[ColumnId]:
    """The columns of a set operation that are a unit's in every part."""
    return frozenset(
        column
        for place, column in enumerate(plan.columns)
        if all(
            shown[place] in each.units for (_, shown), each in zip(plan.parts, facts, strict=True)
        )
    )


def renamed_facts(facts: PlanFacts, pairs: Sequence[tuple[ColumnId, ColumnId]]) -> PlanFacts:
    """Facts by the columns of a mention."""
    sets = (facts.units, facts.partial, facts.kept, *facts.halves)
    units, partial, kept, one, other = (
        frozenset(n for n, old in pairs if old in each) for each in sets
    )
    return replace(
        facts,
        units=units,
        partial=partial,
        kept=kept,
        origins={new: facts.origins[old] for new, old in pairs if old in facts.origins},
        halves=(one, other),
    )


def asked_of_kept(plan: LogicalAggregate, below: PlanFacts) -> Scalar | AggregateCall | None:
    """Return the key or aggregate that asks kept public rows for private columns, if any.

    They are of no unit: keys have to be theirs, and values those of private rows, NULL beside them.
    """
    if not below.stays:
        return None
    for _, value in plan.keys:
        if not mentions_only(value, below.kept):
            return value
    for _, call in plan.calls:
        asked = (*call.arguments, *(() if call.condition is None else (call.condition,)))
        if not any(_is_null_beside(each, below.kept) for each in asked):
            return call
    return None


def _is_null_beside(value: Scalar, kept: frozenset[ColumnId]) -> bool:
    """Say whether an expression is NULL in rows that stay without private ones."""
    match value:
        case ColumnRef(column):
            return column not in kept
        case ScalarCall("case", arguments) if "default" not in value.form:
            return all(_is_null_beside(each, kept) for each in arguments)
        case ScalarCall("if", (condition, _)):
            return _is_null_beside(condition, kept)
        case ScalarCall(function, arguments) if function in _STRICT:
            return any(_is_null_beside(each, kept) for each in arguments)
    return False


def unique_columns(plan: Plan) -> frozenset[ColumnId] | None:
    """The columns in which no two rows of groups agree; None where that is not known."""
    match plan:
        case LogicalAggregate() if plan.sets is None:
            return frozenset(column for column, _ in plan.keys)
        case LogicalShared():
            found = unique_columns(plan.input)
            new = {old: column for column, old in plan.columns}
            known = found is not None and found <= new.keys()
            return frozenset(new[each] for each in found) if found is not None and known else None
        case LogicalFilter() | LogicalProject() | LogicalWindow() | LogicalLimit():
            return unique_columns(plan.input)
    return None


def scanned_column(plan: Plan, column: ColumnId) -> Origin | None:
    """The table, and its column, that a column of rows of one table has the values of."""
    match plan:
        case LogicalScan():
            return next(((plan.table, n.casefold()) for c, n in plan.columns if c == column), None)
        case LogicalShared():
            return scanned_column(plan.input, dict(plan.columns)[column])
        case LogicalProject():
            value = dict(plan.added).get(column, ColumnRef(column))
            return (
                scanned_column(plan.input, value.column) if isinstance(value, ColumnRef) else None
            )
        case LogicalFilter():
            return scanned_column(plan.input, column)
    return None


def mentions_only(value: Scalar, columns: frozenset[ColumnId]) -> bool:
    return {ref.column for ref in columns_in(value)} <= columns
