"""Groups of which a statement asks whether they exist.

A measured aggregation has a row for every declared group: that its keys are public has this price,
and at the top of a statement an empty group is read off its number. To the next operator it is a
row like any other. Wherever one row decides about others or about what they show (IS NULL after
an outer join, semi-joins, INTERSECT and EXCEPT, IN, EXISTS, counts and means of groups, rows beside
groups, LIMIT below the top) SQL asks which groups exist.

Nothing is asked where it is said already, by a condition that a number of rows or a sum is large
enough, and of groups that rows beside them are counted in, which exist. Outer joins show a group
as the top of a statement does, windows are over what is shown, and to sums of noisy numbers an
empty group adds 0 on average.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard

from dpsql.catalog.catalog import Catalog
from dpsql.logical.expressions import (
    AggregateCall,
    ColumnId,
    ColumnRef,
    LogicalConstant,
    Scalar,
    ScalarCall,
    columns_in,
)
from dpsql.logical.facts import PRIVATE, PlanFacts
from dpsql.logical.inference import FactReader
from dpsql.logical.levels import RelationLevel
from dpsql.logical.nodes import (
    ApplyKind,
    BoundStatement,
    JoinKind,
    LogicalAggregate,
    LogicalApply,
    LogicalFilter,
    LogicalJoin,
    LogicalLimit,
    LogicalProject,
    LogicalSetOperation,
    LogicalShared,
    Plan,
    columns_of,
    expressions_of,
    from_below,
    inputs_of,
    passed,
)
from dpsql.logical.own_groups import OwnGroups

_SIZES = ("count", "countif", "sum")
"""Aggregates that are 0, but for noise, of a group that nobody is in."""
_SETS = ("grouping", "groupingid")
"""Aggregates that are about the set of keys."""
_LEAST = {"gt": 0, "gte": 0, "lt": 1, "lte": 1, "between": 0}
"""Comparisons that ask an argument, by its place, to be large enough."""
_Told = frozenset[ColumnId]


def groups_asked(statement: BoundStatement, catalog: Catalog) -> frozenset[ColumnId]:
    """Return the columns of measured aggregations whose groups have to exist.

    Args:
        statement: its plan, with conditions where they belong (``rules.pushdown``).
        catalog: the tables that it is about.

    Raises: NotSupportedError where the plan has no level.
    """
    reading = FactReader(catalog, statement)
    plan = reading.of(statement.plan, None).plan
    asking = _ExistenceReader(plan, reading.known, catalog)
    asking.read(plan, False, frozenset(), top=True)
    return frozenset(asking.asked)


class _ExistenceReader:
    """Goes through a plan from its top."""

    def __init__(self, plan: Plan, known: Mapping[int, PlanFacts], catalog: Catalog) -> None:
        self.known = known
        self.catalog = catalog
        self.made: dict[ColumnId, list[ColumnId]] = {}
        self.public: set[ColumnId] = set()
        self.asked: set[ColumnId] = set()
        self.own: set[int] = set()
        self.done: set[tuple[int, bool, _Told]] = set()
        self.tables: dict[int, int] = {}
        self.noisy: set[ColumnId] = set()
        self.sizes: set[ColumnId] = set()
        self.tested: set[ColumnId] = set()
        plans = from_below(plan)
        for each in plans:
            self._make(each)
        for each in reversed(plans):
            self._test(each)

    # ---- what is known of columns ----------------------------------------------------------------

    def _make(self, plan: Plan) -> None:
        """Note which columns of an operator are noisy, and how many tables of groups it joins."""
        tables = [self.tables[id(each)] for each in inputs_of(plan)]
        found = sum(tables)
        self.made |= {new: list(old) for new, old in passed(plan)}
        if self.level(plan) is RelationLevel.PUBLIC:
            self.public |= {*columns_of(plan)}
        self.noisy |= {new for new, old in passed(plan) if not self.noisy.isdisjoint(old)}
        self.sizes |= {new for new, old in passed(plan) if self._is_size(old)}
        match plan:
            case LogicalAggregate() if self.level(plan) is RelationLevel.NOISY:
                self.noisy |= {column for column, _ in plan.calls}
                self.sizes |= {c for c, call in plan.calls if call.function in _SIZES}
                is_measured = self.level(plan.input) in PRIVATE
                found = int(bool(plan.keys) and (is_measured or found > 0))
            case LogicalSetOperation():
                found = min(1, found)
            case LogicalApply():
                found = tables[0]
            case LogicalJoin() if plan.kind in (JoinKind.SEMI, JoinKind.ANTI):
                found = tables[0]
        self.tables[id(plan)] = found

    def _test(self, plan: Plan) -> None:
        """Note the columns that IS is asked of, where a column stands for another, too."""
        for value in expressions_of(plan):
            self.tested |= {each.column for each in _tested(value)}
        if isinstance(plan, LogicalShared | LogicalProject):
            self.tested |= {
                old for new, known in passed(plan) if new in self.tested for old in known
            }

    def _is_size(self, mentioned: Iterable[ColumnId]) -> bool:
        """Say whether what mentions some columns is as large as one of them, and not a ratio."""
        noisy = self.noisy.intersection(mentioned)
        return len(noisy) == 1 and noisy <= self.sizes

    def level(self, plan: Plan) -> RelationLevel | None:
        """Return the level of an operator; None for one that was put into the plan."""
        facts = self.known.get(id(plan))
        return None if facts is None else facts.level

    # ---- operators -------------------------------------------------------------------------------

    def read(self, plan: Plan, asked: bool, told: _Told, top: bool = False) -> None:
        """Go through a plan.

        Args:
            plan: it may be shared.
            asked: that something depends on which of its rows there are.
            told: noisy columns that are large enough in all that matters.
            top: that its rows are shown as they are.
        """
        asked = asked and id(plan) not in self.own
        key = id(plan), asked, told if asked else frozenset()
        if key in self.done:
            return
        self.done.add(key)
        match plan:
            case LogicalLimit():
                cuts = plan.limit is not None or plan.offset is not None
                self.read(plan.input, asked or (cuts and not top), told)
            case LogicalSetOperation():
                values = [part for part, _ in plan.parts if _is_of_values(part, plan)]
                listed = all(map(self.has_cells, values))
                for part, shown in plan.parts:
                    if isinstance(part, LogicalAggregate) and any(part is v for v in values):
                        self.read(part, listed, frozenset())
                        if self.asked.issuperset(columns_of(part)):  # and those that it lists
                            self.asked |= {
                                v.column for _, v in part.keys if isinstance(v, ColumnRef)
                            }
                        continue
                    pairs = zip(plan.columns, shown, strict=True)
                    own = frozenset(old for new, old in pairs if new in told)
                    self.read(part, asked or plan.operation != "union", own)
            case LogicalJoin():
                self._join(plan, asked, told)
            case LogicalApply():
                self.read(plan.left, asked, told)
                self.read(plan.right, plan.kind is not ApplyKind.SCALAR, frozenset())
            case LogicalAggregate():
                self._aggregate(plan, asked and not told & {column for column, _ in plan.calls})
            case _:
                if isinstance(plan, LogicalFilter):
                    told |= {each for test in plan.tests for each in self.large(test)}
                below = {old for new, known in passed(plan) if new in told for old in known}
                is_shown = top and isinstance(plan, LogicalProject | LogicalShared)
                for inner in inputs_of(plan):
                    self.read(inner, asked, told | below, is_shown)

    def _join(self, plan: LogicalJoin, asked: bool, told: _Told) -> None:
        """An optional side is asked which rows it has where IS tells those with a partner."""
        halves = plan.kind in (JoinKind.SEMI, JoinKind.ANTI)
        optional = {
            JoinKind.LEFT: (plan.right,),
            JoinKind.RIGHT: (plan.left,),
            JoinKind.FULL: (plan.left, plan.right),
        }.get(plan.kind, ())
        for side in (plan.left, plan.right):
            tested = any(side is each for each in optional) and not self.tested.isdisjoint(
                columns_of(side)
            )
            self.read(side, asked or tested or (halves and side is plan.right), told)

    def _aggregate(self, plan: LogicalAggregate, asked: bool) -> None:
        """Groups of rows that are asked for, and what is below groups."""
        below = self.level(plan.input)
        is_measured = below in PRIVATE and self.level(plan) is RelationLevel.NOISY
        if asked and plan.keys and is_measured and not self.known[id(plan.input)].stays:
            self.asked |= {*columns_of(plan)}
        if below is RelationLevel.BOTH:
            self.own |= OwnGroups(self.known).of(plan.input)
        if below in (RelationLevel.BOTH, RelationLevel.NOISY):
            self.read(plan.input, asked or self.counts(plan), frozenset())

    def has_cells(self, plan: LogicalAggregate) -> bool:
        """Say whether values are those of columns with a domain, or made of these and public ones.

        Cells of bins, months and hours have several values, of which none can be shown.
        """
        origins = self.known[id(plan.input)].origins
        for _, key in plan.keys:
            waiting = [each.column for each in columns_in(key)]
            is_plain = True
            if not waiting:
                return False
            while waiting:
                column = waiting.pop()
                if column in origins:
                    name, stored = origins[column]
                    found = self.catalog.find(name).columns.get(stored)
                    if found is None or found.domain is None or (is_plain and found.is_coarse):
                        return False
                elif self.made.get(column):
                    waiting += self.made[column]
                    is_plain = False
                elif column not in self.public:
                    return False
        return True

    def counts(self, plan: LogicalAggregate) -> bool:
        """Say whether an aggregate depends on how many groups there are."""
        tables = self.tables[id(plan.input)]
        of_rows = [c for _, c in plan.calls if not self.is_sum(c) and c.function not in _SETS]
        return bool(plan.calls) and (tables > 1 or (tables > 0 and bool(of_rows)))

    def is_sum(self, call: AggregateCall) -> bool:
        """Say whether an aggregate is a sum of noisy numbers."""
        return call.function == "sum" and any(map(self.mentions, call.arguments))

    def mentions(self, value: Scalar) -> bool:
        """Say whether an expression mentions a noisy number."""
        return any(each.column in self.noisy for each in columns_in(value))

    def large(self, test: Scalar) -> set[ColumnId]:
        """Return the numbers of rows and sums that a condition asks to be large enough."""
        if not isinstance(test, ScalarCall) or test.function not in _LEAST:
            return set()
        place = _LEAST[test.function]
        rest = [each for number, each in enumerate(test.arguments) if number != place]
        if any(map(self.mentions, rest)):
            return set()
        found = {each.column for each in columns_in(test.arguments[place])}
        return found & self.sizes if self._is_size(found) else set()


def _is_of_values(part: Plan, plan: LogicalSetOperation) -> TypeGuard[LogicalAggregate]:
    """Say whether a part of a set operation is a question which values private rows have."""
    is_whole = isinstance(part, LogicalAggregate) and not part.calls
    return is_whole and part.place is plan.place and not plan.every


def _tested(value: Scalar) -> Iterable[ColumnRef]:
    """The columns of which an expression asks whether they are NULL."""
    match value:
        case ScalarCall("is", (ColumnRef() as column, LogicalConstant())):
            yield column
        case ScalarCall():
            for each in value.arguments:
                yield from _tested(each)
