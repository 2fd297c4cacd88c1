"""Inner joins in an order in which each has something in common with those before it.

``FROM a, b, c WHERE a.x = c.x AND c.y = b.y`` has a and b side by side, which no condition is
about; joined as a, c, b every join has one. What stands first stays first.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.logical.expressions import ColumnId, Scalar, columns_in, equal_columns
from dpsql.logical.nodes import (
    JoinKind,
    LogicalFilter,
    LogicalJoin,
    Plan,
    columns_of,
    inputs_of,
    with_inputs,
)


def connect(plan: Plan) -> Plan:
    """The same plan with its inner joins in such an order."""
    return _Connecting().of(plan)


class _Connecting:
    """Orders the joins of one plan; what is shared stays one."""

    def __init__(self) -> None:
        self._known: dict[int, Plan] = {}
        self._read: list[Plan] = []

    def of(self, plan: Plan) -> Plan:
        if id(plan) not in self._known:
            self._read.append(plan)  # so that no other gets its address
            self._known[id(plan)] = self._of(plan)
        return self._known[id(plan)]

    def _of(self, plan: Plan) -> Plan:
        if not isinstance(plan, LogicalJoin) or plan.kind is not JoinKind.INNER:
            return with_inputs(plan, [self.of(each) for each in inputs_of(plan)])
        joins, parts, tests = _flat(plan)
        parts = [self.of(each) for each in parts]
        order = _order([set(columns_of(each)) for each in parts], tests)
        if order == list(range(len(parts))):
            return with_inputs(plan, [self.of(each) for each in inputs_of(plan)])
        found, known, left = parts[order[0]], set(columns_of(parts[order[0]])), list(tests)
        made = {column for each in parts for column in columns_of(each)}
        for place, join in zip(order[1:], joins, strict=True):
            known |= set(columns_of(parts[place]))
            now = [each for each in left if _mentioned(each) & made <= known]
            left = [each for each in left if not any(each is other for other in now)]
            found = LogicalJoin(found, parts[place], JoinKind.INNER, tuple(now), join.place)
        return LogicalFilter(found, tuple(left)) if left else found


def _flat(plan: LogicalJoin) -> tuple[list[LogicalJoin], list[Plan], list[Scalar]]:
    """The inner joins right below each other, from the first, what they join, and by what."""
    joins: list[LogicalJoin] = []
    parts: list[Plan] = []
    tests: list[Scalar] = []
    for side in (plan.left, plan.right):
        if isinstance(side, LogicalJoin) and side.kind is JoinKind.INNER:
            below = _flat(side)
            joins, parts, tests = joins + below[0], parts + below[1], tests + below[2]
        else:
            parts.append(side)
    return [*joins, plan], parts, [*tests, *plan.on]


def _order(columns: Sequence[set[ColumnId]], tests: Sequence[Scalar]) -> list[int]:
    """The places of parts, so that each has an equal column with one before it if any has."""
    pairs = [pair for test in tests if (pair := equal_columns(test)) is not None]
    found, known, left = [0], set(columns[0]), list(range(1, len(columns)))
    while left:
        meeting = [
            place
            for place in left
            if any(
                (one in known and other in columns[place])
                or (other in known and one in columns[place])
                for one, other in pairs
            )
        ]
        chosen = (meeting or left)[0]
        found.append(chosen)
        known |= columns[chosen]
        left.remove(chosen)
    return found


def _mentioned(test: Scalar) -> set[ColumnId]:
    return {ref.column for ref in columns_in(test)}
