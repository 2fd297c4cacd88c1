"""Groups that rows beside them are counted in: where such a row is, its group exists.

``FROM t JOIN (SELECT k, COUNT(*) FROM t GROUP BY k) g ON g.k = t.k`` has a row of ``t`` beside the
count of its own group. That every row of one relation is counted in another is containment of
conjunctive queries: the tables of the other are among those of the one, and so are its conditions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from dpsql.logical.expressions import ColumnId, ColumnRef, Scalar, ScalarCall
from dpsql.logical.facts import PlanFacts
from dpsql.logical.levels import RelationLevel
from dpsql.logical.nodes import (
    ApplyKind,
    JoinKind,
    LogicalAggregate,
    LogicalApply,
    LogicalFilter,
    LogicalJoin,
    LogicalProject,
    LogicalScan,
    LogicalShared,
    LogicalWindow,
    Plan,
    columns_of,
)
from dpsql.records import dataclass, field

_MOST_TABLES = 16
"""Tables that are told apart; what is beyond is a table by itself."""
_MOST_WAYS = 64
"""Ways in which the tables of one relation are looked for among those of another."""


_Table = tuple[Plan, tuple[ColumnId, ...]]
EQUAL = "this:1 expression:1"
"""The form of an equality."""


@dataclass(slots=True, eq=False)
class Conjunction:
    """Tables side by side, what holds for their rows, and columns in terms of the tables'."""

    tables: list[_Table] = field(default_factory=list)
    tests: set[Scalar] = field(default_factory=set)
    values: dict[ColumnId, Scalar] = field(default_factory=dict)

    def add(self, other: Conjunction) -> None:
        """Put the tables of another beside these."""
        self.tables += other.tables
        self.tests |= other.tests
        self.values |= other.values

    def hold(self, tests: Sequence[Scalar]) -> None:
        """Add conditions over the columns; an equality holds in both orders."""
        self.tests |= held(tests, self.values)


class OwnGroups:
    """Finds, in a relation of rows beside answers, the answers that are counts of its own rows."""

    def __init__(self, known: Mapping[int, PlanFacts]) -> None:
        self.known = known
        self._fresh = itertools.count(-1, -1)
        self._left = _MOST_TABLES
        self._met: list[tuple[Plan, list[_Table], set[Scalar]]] = []

    def of(self, plan: Plan) -> set[int]:
        """Return the identities of plans of groups that exist beside every row that meets them.

        Args:
            plan: rows beside answers, which are joined, picked by IN or asked for by EXISTS.
        """
        self._left, self._met = _MOST_TABLES, []
        rows = self._rows(plan, is_exact=False)
        return {
            id(each)
            for each, tables, on in self._met
            if len(tables) == 1 and self._is_counted(*tables[0], rows, rows.tests | on)
        }

    def _is_counted(
        self, plan: Plan, columns: Sequence[ColumnId], rows: Conjunction, tests: set[Scalar]
    ) -> bool:
        """Say whether each of some rows is one of the rows of the group that it meets."""
        if not isinstance(plan, LogicalAggregate) or plan.sets is not None:
            return False
        counted = self._rows(plan.input, is_exact=True)
        keys = [
            (column, rewritten(key, counted.values))
            for column, (_, key) in zip(columns, plan.keys, strict=False)
        ]
        ways = [
            [own for other, own in rows.tables if _is_same(table, other)]
            for table, _ in counted.tables
        ]
        for way in itertools.islice(itertools.product(*ways), _MOST_WAYS):
            found: dict[ColumnId, Scalar] = {}
            for (_, own), other in zip(counted.tables, way, strict=True):
                found |= zip(own, map(ColumnRef, other), strict=True)
            equal = [(column, rewritten(key, found)) for column, key in keys]
            if {rewritten(test, found) for test in counted.tests} <= tests and all(
                ScalarCall("eq", (ColumnRef(column), key), EQUAL) in tests for column, key in equal
            ):
                return True
        return False

    def _rows(self, plan: Plan, is_exact: bool) -> Conjunction:
        """A relation as tables and conditions; all of them if exact, else some that hold."""
        match plan:
            case LogicalFilter():
                found = self._rows(plan.input, is_exact)
                found.hold(plan.tests)
                return found
            case LogicalProject():
                found = self._rows(plan.input, is_exact)
                found.values |= {c: rewritten(value, found.values) for c, value in plan.added}
                return found
            case LogicalWindow():
                return self._rows(plan.input, is_exact)
            case LogicalShared() if self._left > 0:
                inner = self._rows(plan.input, is_exact or self._level(plan) is RelationLevel.ROWS)
                found = Conjunction(inner.tables, inner.tests)
                pairs = plan.columns
                found.values = {new: inner.values.get(old, ColumnRef(old)) for new, old in pairs}
                return found
            case LogicalJoin() if plan.kind is not JoinKind.FULL:
                return self._join(plan, is_exact)
            case LogicalApply():
                found = self._rows(plan.left, is_exact)
                if not is_exact and plan.kind is not ApplyKind.SCALAR:
                    self._asked_for(plan, found)
                return found
        return self._table(plan)

    def _table(self, plan: Plan) -> Conjunction:
        columns = columns_of(plan)
        fresh = tuple(ColumnId(next(self._fresh)) for _ in columns)
        self._left -= 1
        values: dict[ColumnId, Scalar] = dict(zip(columns, map(ColumnRef, fresh), strict=True))
        return Conjunction([(plan, fresh)], set(), values)

    def _join(self, plan: LogicalJoin, is_exact: bool) -> Conjunction:
        """Both sides of an inner join, else the side that is kept."""
        if is_exact and plan.kind in (JoinKind.SEMI, JoinKind.ANTI):
            return self._table(plan)
        sides = [plan.left, plan.right]
        if plan.kind is JoinKind.RIGHT:
            sides.reverse()
        found = self._rows(sides[0], is_exact)
        other = self._rows(sides[1], is_exact)
        both = Conjunction(values=found.values | other.values)
        both.hold(plan.on)
        on = set() if plan.kind is JoinKind.INNER else other.tests | both.tests
        for side, rows in zip(sides, (found, other), strict=True):
            if not is_exact and self._level(side) is RelationLevel.NOISY:
                self._met.append((side, list(rows.tables), on))
        if plan.kind is JoinKind.INNER:
            found.add(other)
            found.hold(plan.on)
        found.values = both.values
        return found

    def _asked_for(self, plan: LogicalApply, rows: Conjunction) -> None:
        """Note groups that rows are looked for in."""
        if self._level(plan.right) is not RelationLevel.NOISY:
            return
        groups = self._rows(plan.right, is_exact=True)
        around = {column: rewritten(value, rows.values) for column, value in plan.parameters}
        on = held(list(groups.tests), around)
        for argument, shown in zip(plan.arguments, plan.shown, strict=False):
            equal = ScalarCall("eq", (argument, ColumnRef(shown)), EQUAL)
            on |= held([equal], {**rows.values, **groups.values})
        self._met.append((plan.right, groups.tables, on))

    def _level(self, plan: Plan) -> RelationLevel | None:
        facts = self.known.get(id(plan))
        return None if facts is None else facts.level


def _is_same(one: Plan, other: Plan) -> bool:
    """Say whether two plans are one table: what is shared is one plan."""
    if isinstance(one, LogicalScan) and isinstance(other, LogicalScan):
        return one.table == other.table
    return one is other


def held(tests: Sequence[Scalar], values: Mapping[ColumnId, Scalar]) -> set[Scalar]:
    """Conditions in terms of other columns, equalities in both orders."""
    found: set[Scalar] = set()
    for test in tests:
        own = rewritten(test, values)
        found.add(own)
        if isinstance(own, ScalarCall) and own.function == "eq":
            found.add(ScalarCall("eq", own.arguments[::-1], own.form))
    return found


def rewritten(value: Scalar, values: Mapping[ColumnId, Scalar]) -> Scalar:
    """An expression with columns replaced by what they stand for."""
    match value:
        case ColumnRef(column):
            return values.get(column, value)
        case ScalarCall(function, arguments, form):
            return ScalarCall(function, tuple(rewritten(a, values) for a in arguments), form)
    return value
