"""Conditions go to where they belong: those about both sides of a join into it, others below it.

A condition is where its columns first meet. So ``FROM a, b WHERE a.x = b.x`` and ``a JOIN b ON``
are one plan, and what a sub-query compares with the row around it stands over its table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dpsql.logical.expressions import ColumnId, Scalar, ScalarCall, columns_in
from dpsql.logical.nodes import (
    JoinKind,
    LogicalApply,
    LogicalFilter,
    LogicalJoin,
    LogicalProject,
    Plan,
    columns_of,
    inputs_of,
    with_inputs,
)
from dpsql.records import replace

_KEPT_LEFT = (JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
_KEPT_RIGHT = (JoinKind.RIGHT, JoinKind.SEMI)


def push_down(plan: Plan) -> Plan:
    """The same plan with every condition as far down as it may stand."""
    return _Pushing().down(plan)


class _Pushing:
    """Pushes the conditions of one plan down; what is shared stays one."""

    def __init__(self) -> None:
        self._known: dict[int, Plan] = {}
        self._read: list[Plan] = []

    def down(self, plan: Plan) -> Plan:
        if id(plan) not in self._known:
            self._read.append(plan)  # so that no other gets its address
            self._known[id(plan)] = self._down(plan)
        return self._known[id(plan)]

    def _down(self, plan: Plan) -> Plan:
        match plan:
            case LogicalFilter():
                return self._under(plan.input, [each for t in plan.tests for each in _parts(t)])
            case LogicalJoin():
                return self._join(plan, ())
        return with_inputs(plan, [self.down(each) for each in inputs_of(plan)])

    def _under(self, plan: Plan, tests: Sequence[Scalar]) -> Plan:
        """A plan with conditions over it, which go below it where they may."""
        match plan:
            case LogicalFilter():
                own = [each for test in plan.tests for each in _parts(test)]
                return self._under(plan.input, [*own, *tests])
            case LogicalJoin():
                return self._join(plan, tests)
            case LogicalProject():
                made = {column for column, _ in plan.added}
                below, above = _apart(tests, made)
                return _filtered(replace(plan, input=self._under(plan.input, below)), above)
            case LogicalApply():
                below, above = _apart(tests, {plan.mark})
                left = self._under(plan.left, below)
                return _filtered(replace(plan, left=left, right=self.down(plan.right)), above)
        return _filtered(self.down(plan), tests)

    def _join(self, plan: LogicalJoin, tests: Sequence[Scalar]) -> Plan:
        """A join, its conditions and those over it, each where it belongs.

        A condition over rows without a partner is none of their partners': it stays above. One
        of ON decides about partners, and never about the rows that stay whatever it says.
        """
        left, right = set(columns_of(plan.left)), set(columns_of(plan.right))
        on = [each for test in plan.on for each in _parts(test)]
        above: list[Scalar] = []
        to_left: list[Scalar] = []
        to_right: list[Scalar] = []
        pairs: list[Scalar] = []
        is_inner = plan.kind is JoinKind.INNER
        for test in tests:
            if _is_of(test, left, right) and (is_inner or plan.kind in _KEPT_LEFT):
                to_left.append(test)
            elif _is_of(test, right, left) and (is_inner or plan.kind is JoinKind.RIGHT):
                to_right.append(test)
            else:
                (pairs if is_inner and any(columns_in(test)) else above).append(test)
        for test in on:
            if _is_of(test, left, right) and (is_inner or plan.kind in _KEPT_RIGHT):
                to_left.append(test)
            elif _is_of(test, right, left) and (is_inner or plan.kind in _KEPT_LEFT):
                to_right.append(test)
            else:
                pairs.append(test)
        one, two = self._under(plan.left, to_left), self._under(plan.right, to_right)
        return _filtered(replace(plan, left=one, right=two, on=tuple(pairs)), above)


def _is_of(test: Scalar, own: Collection[ColumnId], other: Collection[ColumnId]) -> bool:
    """True if a condition mentions columns of one side of a join and none of the other's.

    A column of neither is a parameter, which is a constant here.
    """
    found = {ref.column for ref in columns_in(test)}
    return not found.isdisjoint(own) and found.isdisjoint(other)


def _apart(
    tests: Iterable[Scalar], made: Collection[ColumnId]
) -> tuple[list[Scalar], list[Scalar]]:
    """The conditions that mention none of the columns that an operator makes, and the others."""
    below: list[Scalar] = []
    above: list[Scalar] = []
    for test in tests:
        (above if any(ref.column in made for ref in columns_in(test)) else below).append(test)
    return below, above


def _filtered(plan: Plan, tests: Sequence[Scalar]) -> Plan:
    return LogicalFilter(plan, tuple(tests)) if tests else plan


def _parts(test: Scalar) -> list[Scalar]:
    """The conditions that hold together where one does; what all branches of an OR say is one."""
    if not isinstance(test, ScalarCall) or test.function not in ("and", "or"):
        return [test]
    if test.function == "and":
        return [each for part in test.arguments for each in _parts(part)]
    branches = [_parts(branch) for branch in _branches(test)]
    common = [each for each in branches[0] if all(each in other for other in branches[1:])]
    if not common:
        return [test]
    rests = [[each for each in branch if each not in common] for branch in branches]
    if not all(rests):
        return common
    return [*common, _joined("or", [_joined("and", rest) for rest in rests])]


def _branches(test: Scalar) -> list[Scalar]:
    if isinstance(test, ScalarCall) and test.function == "or":
        return [each for part in test.arguments for each in _branches(part)]
    return [test]


def _joined(word: str, tests: Sequence[Scalar]) -> Scalar:
    found = tests[0]
    for each in tests[1:]:
        found = ScalarCall(word, (found, each), "this:1 expression:1")
    return found
