"""Rules: functions from plans to plans that mean the same. None looks a name or a table up."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.logical.nodes import BoundStatement, Plan
from dpsql.logical.rules.join_order import connect
from dpsql.logical.rules.pushdown import push_down
from dpsql.records import replace

RULES: tuple[Callable[[Plan], Plan], ...] = (push_down, connect)
"""The rules, in order."""


def ruled(statement: BoundStatement) -> BoundStatement:
    """A statement after every rule."""
    plan = statement.plan
    for rule in RULES:
        plan = rule(plan)
    return replace(statement, plan=plan)
