"""The level and the facts of every operator of a plan, inferred from below.

The levels are those of the table in ``levels``; here is what the table asks for. Where rows meet
by a declared key alone the unit is added to it, so that the guarantee holds for the plan as it is
returned.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from dpsql.catalog.catalog import Catalog
from dpsql.logical.expressions import (
    ColumnId,
    ColumnRef,
    Scalar,
    ScalarCall,
    columns_in,
    equal_columns,
)
from dpsql.logical.facts import (
    NO_HALVES,
    PRIVATE,
    LevelledPlan,
    Origin,
    PlanFacts,
    asked_of_kept,
    is_one_unit,
    joined_facts,
    mentions_only,
    renamed_facts,
    unit_of,
    united_columns,
)
from dpsql.logical.levels import (
    LEVELS,
    Inputs,
    LevelOutcome,
    LevelTable,
    RelationLevel,
    Requirement,
)
from dpsql.logical.nodes import (
    ApplyKind,
    BoundStatement,
    JoinKind,
    LogicalAggregate,
    LogicalApply,
    LogicalBound,
    LogicalFilter,
    LogicalJoin,
    LogicalLimit,
    LogicalProject,
    LogicalScan,
    LogicalSetOperation,
    LogicalShared,
    LogicalValues,
    LogicalWindow,
    Plan,
    columns_of,
    from_below,
    inputs_of,
    with_inputs,
)
from dpsql.logical.refusals import PlanRefusal, refuse
from dpsql.records import dataclass, field, replace
from dpsql.relation.declared_keys import is_declared

_KINDS = {
    JoinKind.INNER: "inner join",
    JoinKind.LEFT: "left join",
    JoinKind.RIGHT: "left join",  # with its sides exchanged
    JoinKind.FULL: "full join",
    JoinKind.SEMI: "half join",
    JoinKind.ANTI: "half join",
}
_NO_NAMES: Mapping[str, str] = {}
_MOST_PAIRS = 6
"""Pairs of equal columns of which every choice is looked up as a declared key."""


@dataclass(slots=True, eq=False)
class OuterFacts:
    """Parameters of a sub-query as facts of the row around it.

    ``units`` are those that hold its unit, each with the row that it is of; ``unit`` is the column
    around that holds it, which becomes a parameter where a declared key needs it.
    """

    fresh: Iterator[int]
    name: str = ""
    row: int = 0
    unit: ColumnId | None = None
    units: dict[ColumnId, int] = field(default_factory=dict)
    origins: dict[ColumnId, Origin] = field(default_factory=dict)
    added: list[tuple[ColumnId, Scalar]] = field(default_factory=list)

    def parameter(self) -> ColumnId | None:
        """The parameter that holds the unit of the row around; None where that has none."""
        if self.unit is not None and not self.added:
            column = ColumnId(next(self.fresh))
            self.added.append((column, ColumnRef(self.unit)))
            self.units[column] = self.row
        return self.added[0][0] if self.added else None


def infer_facts(
    statement: BoundStatement, catalog: Catalog, table: LevelTable = LEVELS
) -> tuple[BoundStatement, PlanFacts]:
    """Say what a statement is, with the unit added where rows meet by a declared key alone.

    Args:
        statement: its plan, with conditions where they belong (``rules.pushdown``).
        catalog: the tables that it is about.
        table: the rules.

    Raises: NotSupportedError with a caret where the table has no level.
    Guarantee: that of ``levels``, for every operator of the returned plan.
    """
    reading = FactReader(catalog, statement, table)
    found = reading.of(statement.plan, None)
    missing = reading.outcome("result", (found.facts,), {}, ())
    if missing is PlanRefusal.PUBLIC_ALONE and _has_no_rows(found.plan):
        missing = PlanRefusal.NO_FROM
    if isinstance(missing, PlanRefusal):
        _refuse_shown(found, missing, statement)
    return replace(statement, plan=found.plan), found.facts


class FactReader:
    """Infers the facts of the operators of one plan."""

    def __init__(
        self, catalog: Catalog, statement: BoundStatement, table: LevelTable = LEVELS
    ) -> None:
        self.catalog = catalog
        self.table = table
        self.statement = statement
        self.shown = [id(each) for each in _spine(statement.plan)]
        every = from_below(statement.plan)
        made = [column for each in every for column in columns_of(each)]
        made += [
            parameter
            for each in every
            if isinstance(each, LogicalApply)
            for parameter, _ in each.parameters
        ]
        self.fresh = itertools.count(max(made, default=0) + 1)
        self._rows = itertools.count(1)
        self._shared: dict[int, LevelledPlan] = {}
        self._read: list[Plan] = []
        self.known: dict[int, PlanFacts] = {}

    def of(self, plan: Plan, around: OuterFacts | None) -> LevelledPlan:
        """A plan and its facts. Raises: NotSupportedError."""
        found = self._of(plan, around)
        self._read.append(found.plan)  # so that no other gets its address
        self.known[id(found.plan)] = found.facts
        return found

    def _of(self, plan: Plan, around: OuterFacts | None) -> LevelledPlan:
        match plan:
            case LogicalValues():
                found = self._settled("values", (), plan, {})
                return LevelledPlan(plan, replace(found, rows=len(plan.rows)))
            case LogicalScan():
                return LevelledPlan(plan, self._scan(plan))
            case LogicalShared():
                return self._mention(plan)
            case LogicalApply():
                return self._apply(plan, around)
            case LogicalJoin():
                return self._join(plan, around)
            case LogicalSetOperation():
                return self._set_operation(plan, around)
        below, is_shown = self.of(plan.input, around), id(plan) in self.shown
        if is_shown and below.facts.is_private and isinstance(plan, LogicalLimit | LogicalWindow):
            _refuse_shown(below, PlanRefusal.ROWS_SHOWN, self.statement)
        plan = with_inputs(plan, [below.plan])
        match plan:
            case LogicalFilter():
                return self._filter(plan, below.facts, around)
            case LogicalProject():
                return LevelledPlan(plan, self._project(plan, below.facts))
            case LogicalAggregate():
                return self._aggregate(plan, below.facts)
            case LogicalWindow():
                return LevelledPlan(plan, self._window(plan, below.facts))
            case LogicalLimit():
                return LevelledPlan(plan, self._limit(plan, below.facts))
        assert isinstance(plan, LogicalBound)
        return self._bound(plan, below.facts)

    # ---- the table ------------------------------------------------------------------------------

    def outcome(
        self,
        operator: str,
        inputs: Sequence[PlanFacts],
        met: Mapping[Requirement, bool],
        levels: Inputs,
    ) -> LevelOutcome | PlanRefusal:
        """Return the level that the table gives an operator, or refuse with what is missing."""
        found = self.table[operator, levels or tuple(each.level for each in inputs)]
        missing: PlanRefusal | None = None
        for each in found:
            lacking = [refusal for need, refusal in each.needs if not met.get(need, False)]
            if each.level is not None and not lacking:
                return each
            missing = each.refusal if each.level is None else lacking[0]
        assert missing is not None
        return missing

    def _settled(
        self,
        operator: str,
        inputs: Sequence[PlanFacts],
        plan: Plan,
        met: Mapping[Requirement, bool],
        names: Mapping[str, str] = _NO_NAMES,
        levels: Inputs = (),
    ) -> PlanFacts:
        """The facts that all operators have in common. Raises: NotSupportedError."""
        found = self.outcome(operator, inputs, met, levels)
        if isinstance(found, PlanRefusal):
            refuse(found, plan.place, **names)
        assert found.level is not None
        private = [each for each in inputs if each.is_private]
        tables = dict.fromkeys(name for each in inputs for name in each.tables)
        if found.level not in PRIVATE:
            rows = inputs[0].rows if len(inputs) == 1 else None
            return PlanFacts(found.level, rows=rows, measured=found.measured, tables=tuple(tables))
        first = private[0] if private else PlanFacts(found.level)
        pinned = next((each.pinned for each in private if each.pinned is not None), None)
        return PlanFacts(
            *(found.level, first.unit, first.units, first.rows, pinned),
            stays=first.stays,
            kept=first.kept,
            tables=tuple(tables),
            origins={c: o for each in inputs for c, o in each.origins.items()},
            partial=first.partial,
            halves=first.halves,
        )

    # ---- tables ---------------------------------------------------------------------------------

    def _scan(self, plan: LogicalScan) -> PlanFacts:
        table = self.catalog.find(plan.table)
        found = self._settled("scan", (), plan, {Requirement.IS_PUBLIC: table.public})
        if table.public:
            return found
        unit = (table.unit.column or "").casefold()
        named = {column: name.casefold() for column, name in plan.columns}
        return replace(
            found,
            unit=unit_of(table),
            units=frozenset(column for column, name in named.items() if unit and name == unit),
            rows=table.unit.max_rows,
            tables=(plan.table,),
            origins={column: (plan.table, name) for column, name in named.items()},
        )

    def _mention(self, plan: LogicalShared) -> LevelledPlan:
        """Facts of a shared plan, which is read once; each mention has columns of its own."""
        if id(plan.input) not in self._shared:
            self._read.append(plan.input)
            self._shared[id(plan.input)] = self.of(plan.input, None)
        below = self._shared[id(plan.input)]
        pairs = list(plan.columns)
        named = {old for _, old in pairs}
        pairs += [(self._column(), old) for old in sorted(below.facts.units - named)]
        plan = replace(plan, input=below.plan, columns=tuple(pairs))
        found = self._settled("shared", (below.facts,), plan, {})
        return LevelledPlan(plan, renamed_facts(found, pairs))

    def _column(self) -> ColumnId:
        return ColumnId(next(self.fresh))

    # ---- rows and columns -----------------------------------------------------------------------

    def _filter(
        self, plan: LogicalFilter, below: PlanFacts, around: OuterFacts | None
    ) -> LevelledPlan:
        found = self._settled("filter", (below,), plan, {})
        if around is None or not found.is_private or found.pinned is not None:
            return LevelledPlan(plan, found)
        for test in plan.tests:
            for one, other in _both_ways(equal_columns(test)):
                if one in found.equal and other in around.units:
                    return LevelledPlan(plan, replace(found, pinned=around.units[other]))
        pairs = [
            (one, other)
            for test in plan.tests
            for one, other in _both_ways(equal_columns(test))
            if one in found.origins and other in around.origins
        ]
        known = [(found.origins[one], around.origins[other]) for one, other in pairs]
        if found.unit != around.name or not found.units or not self.is_declared(known):
            return LevelledPlan(plan, found)
        parameter = around.parameter()
        if parameter is None:
            return LevelledPlan(plan, found)
        test = _equal(min(found.units), parameter)
        plan = replace(plan, tests=(*plan.tests, test))
        return LevelledPlan(plan, replace(found, pinned=around.row))

    def _project(self, plan: LogicalProject, below: PlanFacts) -> PlanFacts:
        found = self._settled("project", (below,), plan, {})
        origins, units, partial = dict(found.origins), set(found.units), set(found.partial)
        for column, value in plan.added:
            if isinstance(value, ColumnRef):
                partial |= {column} if value.column in partial else set()
                if value.column in origins:
                    origins[column] = origins[value.column]
            if _holds_unit(value, replace(found, units=frozenset(units))):
                units.add(column)
        kept = found.kept
        for column, value in plan.added if kept else ():
            if {ref.column for ref in columns_in(value)} <= kept:
                kept |= {column}
        known = frozenset(units), frozenset(partial)
        return replace(found, units=known[0], partial=known[1], kept=kept, origins=origins)

    def _limit(self, plan: LogicalLimit, below: PlanFacts) -> PlanFacts:
        cut = plan.limit if plan.limit is not None else plan.offset
        met = {Requirement.KEEPS_ALL_ROWS: cut is None or below.pinned is not None}
        place = plan.place if cut is None or cut.place is None else cut.place
        return self._settled("limit", (below,), replace(plan, place=place), met)

    def _window(self, plan: LogicalWindow, below: PlanFacts) -> PlanFacts:
        parts = [
            any(isinstance(key, ColumnRef) and key.column in below.units for key in call.partition)
            for _, call in plan.calls
        ]
        met = {Requirement.PARTITION_HOLDS_UNIT: all(parts) or below.pinned is not None}
        place = next(
            (call.place for (_, call), part in zip(plan.calls, parts, strict=True) if not part),
            plan.place,
        )
        return self._settled("window", (below,), replace(plan, place=place), met)

    def _bound(self, plan: LogicalBound, below: PlanFacts) -> LevelledPlan:
        unit = min(below.units, default=None)
        met = {Requirement.KNOWS_UNIT: unit is not None or below.pinned is not None}
        if below.is_private and below.rows is not None and below.rows <= plan.rows:
            return LevelledPlan(plan.input, below)  # a unit has no more of them
        found = self._settled("bound", (below,), plan, met)
        return LevelledPlan(replace(plan, unit=unit), replace(found, rows=plan.rows))

    # ---- groups ---------------------------------------------------------------------------------

    def _aggregate(self, plan: LogicalAggregate, below: PlanFacts) -> LevelledPlan:
        """Groups: rows of units where the unit is a key, or where a key is of one unit."""
        keys = enumerate(value for _, value in plan.keys)
        of_unit = [place for place, value in keys if _holds_unit(value, below)]
        if below.is_private and not of_unit and below.pinned is None and plan.sets is None:
            unit = min(below.units, default=None)
            if unit is not None and any(self.is_key(value, below) for _, value in plan.keys):
                of_unit = [len(plan.keys)]
                plan = replace(plan, keys=(*plan.keys, (self._column(), ColumnRef(unit))))
        sets = plan.sets or (tuple(range(len(plan.keys))),)
        holds = all(any(place in of_unit for place in each) for each in sets)
        odd = asked_of_kept(plan, below)
        met = {
            Requirement.KEYS_HOLD_UNIT: holds or below.pinned is not None,
            Requirement.ASKS_OF_UNITS: odd is None,
        }
        asked = plan if odd is None else replace(plan, place=odd.place or plan.place)
        found = self._settled("aggregate", (below,), asked, met)
        units = frozenset(plan.keys[p][0] for p in of_unit if all(p in each for each in sets))
        origins = {
            column: below.origins[value.column]
            for column, value in plan.keys
            if isinstance(value, ColumnRef) and value.column in below.origins
        }
        kept = frozenset(c for c, value in plan.keys if mentions_only(value, below.kept))
        if not found.is_private:
            rows = None if plan.keys else len(sets)
            return LevelledPlan(plan, replace(found, rows=rows))
        rows = None if found.rows is None else found.rows * len(sets)
        if of_unit and all(set(each) <= set(of_unit) for each in sets):
            rows = len(sets)
        found = replace(found, units=units, rows=rows, origins=origins)
        found = replace(found, kept=kept, partial=frozenset(), halves=NO_HALVES)
        return LevelledPlan(plan, found)

    def is_key(self, value: Scalar, facts: PlanFacts) -> bool:
        """Say whether an expression is a column that matches rows of a unit, and has no domain."""
        if not isinstance(value, ColumnRef) or value.column not in facts.origins:
            return False
        name, key = facts.origins[value.column]
        table = self.catalog.find(name)
        column = table.columns.get(key)
        is_key = key in map(str.casefold, (*table.keys, *table.unit_keys))
        return is_key and (column is None or column.domain is None)

    # ---- joins ----------------------------------------------------------------------------------

    def _join(self, plan: LogicalJoin, around: OuterFacts | None) -> LevelledPlan:
        left, right = self.of(plan.left, around), self.of(plan.right, around)
        plan = replace(plan, left=left.plan, right=right.plan)
        sides = (left.facts, right.facts)
        if all(each.is_private for each in sides):
            plan, by_unit = self._met(plan, *sides)
        else:
            by_unit = False
        met = {Requirement.ONE_UNIT: is_one_unit(sides), Requirement.MEETS_BY_UNIT: by_unit}
        ordered = sides[::-1] if plan.kind is JoinKind.RIGHT else sides
        names = {"one": sides[0].unit, "other": sides[1].unit}
        found = self._settled(_KINDS[plan.kind], ordered, plan, met, names)
        beside = [p for p, each in zip(inputs_of(plan), sides, strict=True) if not each.is_private]
        outer = plan.kind in (JoinKind.LEFT, JoinKind.RIGHT) and not ordered[0].is_private
        stays = found.is_private and bool(beside) and (outer or plan.kind is JoinKind.FULL)
        kept = frozenset(c for each in beside for c in columns_of(each))
        found = joined_facts(found, ordered, plan.kind)
        if stays:
            found = replace(found, stays=True, kept=found.kept | kept)
        if plan.kind is not JoinKind.FULL or not all(each.units for each in sides):
            return LevelledPlan(plan, found)
        one, other = (ColumnRef(min(each.units)) for each in sides)
        unit = self._column()
        either = ScalarCall("coalesce", (one, other), "this:1 expressions:1")
        halves = sides[0].units, sides[1].units
        found = replace(found, units=frozenset({unit}), halves=halves)
        return LevelledPlan(LogicalProject(plan, ((unit, either),)), found)

    def _met(
        self, plan: LogicalJoin, left: PlanFacts, right: PlanFacts
    ) -> tuple[LogicalJoin, bool]:
        """A join of private rows, and whether its rows meet those of their unit alone."""
        if left.pinned is not None and left.pinned == right.pinned:
            return plan, True
        pairs = [pair for test in plan.on for pair in _both_ways(equal_columns(test))]
        if any(one in left.equal and other in right.equal for one, other in pairs):
            return plan, True
        known = [
            (left.origins[one], right.origins[other])
            for one, other in pairs
            if one in left.origins and other in right.origins
        ]
        if not (left.units and right.units and self.is_declared(known)):
            return plan, False
        test = _equal(min(left.units), min(right.units))
        return replace(plan, on=(*plan.on, test)), True

    def is_declared(self, pairs: Sequence[tuple[Origin, Origin]]) -> bool:
        """Say whether the catalog declares that rows meet by some of the pairs of equal columns."""
        tables = {(one[0], other[0]) for one, other in pairs}
        for name, other in tables:
            keys = [(a[1], b[1]) for a, b in pairs if (a[0], b[0]) == (name, other)][:_MOST_PAIRS]
            two = self.catalog.find(name), self.catalog.find(other)
            if any(each.public for each in two):
                continue
            for count in range(1, len(keys) + 1):
                if any(is_declared(*two, list(c)) for c in itertools.combinations(keys, count)):
                    return True
        return False

    # ---- sub-queries ----------------------------------------------------------------------------

    def _apply(self, plan: LogicalApply, around: OuterFacts | None) -> LevelledPlan:
        left = self.of(plan.left, around)
        inner = self._inside(plan, left.facts, around)
        right = self.of(plan.right, inner)
        plan = replace(plan, left=left.plan, right=right.plan)
        plan = replace(plan, parameters=(*plan.parameters, *inner.added))
        sides = (left.facts, right.facts)
        of_row = right.facts.pinned is not None and right.facts.pinned == inner.row
        if not of_row and all(each.is_private for each in sides) and plan.kind is ApplyKind.IN:
            plan, of_row = self._listed(plan, *sides)
        met = {
            Requirement.ONE_UNIT: left.facts.unit == right.facts.unit,
            Requirement.OF_THE_ROW_AROUND: of_row,
        }
        names = {"one": sides[0].unit, "other": sides[1].unit}
        mentioned = [value.place for _, value in plan.parameters if value.place is not None]
        asked = replace(plan, place=mentioned[0]) if mentioned else plan
        found = self._settled("apply", sides, asked, met, names)
        facts = left.facts
        return LevelledPlan(
            plan,
            replace(
                found,
                units=facts.units,
                partial=facts.partial,
                rows=facts.rows,
                pinned=facts.pinned,
                stays=facts.stays,
                kept=facts.kept,
                origins=facts.origins,
            ),
        )

    def _inside(self, plan: LogicalApply, left: PlanFacts, around: OuterFacts | None) -> OuterFacts:
        """Bind the parameters of a sub-query; a row that is of a row around is that row."""
        row = next(self._rows) if left.pinned is None else left.pinned
        unit = min(left.units, default=None) if left.is_private else None
        inner = OuterFacts(self.fresh, left.unit, row, unit)
        for parameter, value in plan.parameters:
            if not isinstance(value, ColumnRef):
                continue
            if left.is_private and value.column in left.units:
                inner.units[parameter] = row
            elif around is not None and value.column in around.units:
                inner.units[parameter] = around.units[value.column]
            origins = left.origins if around is None else {**around.origins, **left.origins}
            if value.column in origins:
                inner.origins[parameter] = origins[value.column]
        return inner

    def _listed(
        self, plan: LogicalApply, left: PlanFacts, right: PlanFacts
    ) -> tuple[LogicalApply, bool]:
        """IN, and whether a row is compared with rows of its unit alone."""
        pairs = [
            (argument.column, shown)
            for argument, shown in zip(plan.arguments, plan.shown, strict=True)
            if isinstance(argument, ColumnRef)
        ]
        if any(one in left.units and other in right.units for one, other in pairs):
            return plan, True
        known = [
            (left.origins[one], right.origins[other])
            for one, other in pairs
            if one in left.origins and other in right.origins
        ]
        if not (left.units and right.units and self.is_declared(known)):
            return plan, False
        arguments = (*plan.arguments, ColumnRef(min(left.units)))
        return replace(plan, arguments=arguments, shown=(*plan.shown, min(right.units))), True

    # ---- set operations -------------------------------------------------------------------------

    def _parts(
        self, plan: LogicalSetOperation, around: OuterFacts | None
    ) -> tuple[LogicalSetOperation, list[PlanFacts]]:
        """A set operation with its parts, which are of different rows where equal ones are one.

        So those of private rows without their unit are questions: which values there are.
        """
        parts = [self.of(part, around) for part, _ in plan.parts]
        shown = [columns for _, columns in plan.parts]
        facts = [each.facts for each in parts]
        is_rows = all(each.level is RelationLevel.ROWS for each in facts)
        apart = not (is_rows and (united_columns(plan, facts) or facts[0].pinned is not None))
        if apart and not plan.every:
            for place, each in enumerate(parts):
                if each.facts.level is RelationLevel.ROWS and each.facts.pinned is None:
                    new = {column: self._column() for column in dict.fromkeys(shown[place])}
                    keys = tuple((column, ColumnRef(old)) for old, column in new.items())
                    distinct = LogicalAggregate(each.plan, keys, (), None, plan.place)
                    parts[place] = self.of(distinct, around)
                    shown[place] = tuple(new[column] for column in shown[place])
        both = zip(parts, shown, strict=True)
        plan = replace(plan, parts=tuple((each.plan, columns) for each, columns in both))
        return plan, [each.facts for each in parts]

    def _set_operation(self, plan: LogicalSetOperation, around: OuterFacts | None) -> LevelledPlan:
        plan, facts = self._parts(plan, around)
        units = united_columns(plan, facts)
        adds_all = plan.operation == "union" and plan.every
        if adds_all and not units and all(each.units for each in facts):
            column = self._column()
            shown = [(*c, min(f.units)) for (_, c), f in zip(plan.parts, facts, strict=True)]
            new = tuple((part, c) for (part, _), c in zip(plan.parts, shown, strict=True))
            plan = replace(plan, parts=new, columns=(*plan.columns, column))
            units = frozenset({column})
        is_pinned = facts[0].pinned is not None
        met = {
            Requirement.ONE_UNIT: len({(each.unit, each.pinned) for each in facts}) == 1,
            Requirement.UNIT_IN_PLACE: adds_all or bool(units) or is_pinned,
        }
        levels = tuple(
            level for level in RelationLevel if any(each.level is level for each in facts)
        )
        words = f"{plan.operation.upper()}{' ALL' * plan.every}"
        names = {"one": facts[0].unit, "other": facts[-1].unit, "operation": words}
        found = self._settled("set operation", facts, plan, met, names, levels)
        rows = [each.rows for each in facts]
        counts = [each for each in rows if each is not None]
        most = sum(counts) if len(counts) == len(rows) else None
        if plan.operation != "union":
            most = rows[0]
        if not found.is_private:
            return LevelledPlan(plan, replace(found, rows=most))
        origins = {
            column: facts[0].origins[first]
            for column, first in zip(plan.columns, plan.parts[0][1], strict=True)
            if first in facts[0].origins
            and all(
                f.origins.get(c[plan.columns.index(column)]) == facts[0].origins[first]
                for f, (_, c) in zip(facts, plan.parts, strict=True)
            )
        }
        kept = frozenset(
            column
            for place, column in enumerate(plan.columns)
            if any(shown[place] in f.kept for f, (_, shown) in zip(facts, plan.parts, strict=True))
        )
        return LevelledPlan(
            plan,
            replace(
                found,
                units=units,
                rows=most,
                stays=any(each.stays for each in facts),
                kept=kept,
                origins=origins,
                partial=frozenset(),
                halves=NO_HALVES,
            ),
        )


def _spine(plan: Plan) -> Iterator[Plan]:
    """The operators over what is shown, down to the first that makes other rows."""
    while isinstance(plan, LogicalLimit | LogicalWindow | LogicalProject | LogicalFilter):
        yield plan
        plan = plan.input
    yield plan


def _has_no_rows(plan: Plan) -> bool:
    """Say whether a plan is about nothing that stands in a FROM."""
    leaves = (each for each in from_below(plan) if not inputs_of(each))
    return all(isinstance(each, LogicalValues) and not each.columns for each in leaves)


def _refuse_shown(found: LevelledPlan, missing: PlanRefusal, statement: BoundStatement) -> NoReturn:
    """Refuse to show rows, or the unit of groups that have one. Raises: NotSupportedError."""
    *_, last = _spine(found.plan)
    for column, value in last.keys if isinstance(last, LogicalAggregate) else ():
        if column in found.facts.units and column in {each for _, each in statement.shown}:
            words = value.place
            name = "this" if words is None else words.text[words.start : words.end]
            refuse(PlanRefusal.UNIT_SHOWN, words or statement.place, unit=name)
    refuse(missing, statement.place)


def _holds_unit(value: Scalar, facts: PlanFacts) -> bool:
    """Say whether an expression is the unit, which either side of a FULL JOIN may have."""
    match value:
        case ColumnRef(column):
            return column in facts.units
        case ScalarCall("coalesce", (ColumnRef(one), ColumnRef(other))):
            left, right = facts.halves
            return (one in left and other in right) or (one in right and other in left)
    return False


def _equal(one: ColumnId, other: ColumnId) -> Scalar:
    return ScalarCall("eq", (ColumnRef(one), ColumnRef(other)), "this:1 expression:1")


def _both_ways(
    pair: tuple[ColumnId, ColumnId] | None,
) -> tuple[tuple[ColumnId, ColumnId], ...]:
    return () if pair is None else (pair, pair[::-1])
