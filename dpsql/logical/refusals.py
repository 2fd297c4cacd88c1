"""Every refusal of a plan: its code, its sentence and its hint, with holes for names.

A refusal says which property is missing. Where it is raised, the place is that of the operator.
"""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

from dpsql.errors import NotSupportedError, ProgrammingError, Span, printable

_AGGREGATE_BOTH = "aggregate both sides in sub-queries first"
_OF_UNIT = (
    "join by the privacy unit, or by columns that references of the catalog declare; where each row"
    " is a unit, declare whose rows they are"
)


class PlanRefusal(Enum):
    """Properties that are missing: (code, sentence, hint)."""

    ROWS_SHOWN = (
        "E_NO_AGGREGATE",
        "rows cannot be returned, only aggregates",
        "SELECT COUNT(*) FROM ..., with GROUP BY for one count per value",
    )
    BOTH_SHOWN = (
        "E_NO_AGGREGATE",
        "rows beside answers cannot be returned, only aggregates",
        "SELECT COUNT(*) FROM ..., with GROUP BY for one count per value",
    )
    UNIT_SHOWN = (
        "E_DOMAIN",
        "{unit} is the privacy unit: it can be counted and nothing else",
        "COUNT(DISTINCT {unit}) works, or a sub-query by it, and aggregates of what that counts",
    )
    NO_FROM = (
        "E_NO_TABLE",
        "there is no FROM",
        "constants need no engine; SELECT COUNT(*) FROM table",
    )
    PUBLIC_ALONE = (
        "E_JOIN",
        "a public table alone",
        "JOIN it to a private table",
    )
    KEPT_COUNTED = (
        "E_JOIN",
        "what is asked of public rows that stay without private ones",
        "COUNT(t.column) and SUM(t.column) work, by columns of the public rows; or JOIN",
    )
    JOIN_OF_UNITS = (
        "E_JOIN",
        "rows of {one} and of {other} together",
        f"tables of one unit are joined by it; else {_AGGREGATE_BOTH}",
    )
    JOIN_WITHOUT_UNIT = (
        "E_JOIN",
        "a join of private rows, of {one}, without their privacy unit",
        _OF_UNIT,
    )
    ANSWERS_STAY = (
        "E_JOIN",
        "a join in which answers stay without private rows",
        f"JOIN, or {_AGGREGATE_BOTH}",
    )
    ROWS_DECIDE = (
        "E_JOIN",
        "private rows that decide which public rows or answers there are",
        "aggregate the private rows: (SELECT COUNT(*) FROM ...)",
    )
    SUBQUERY_DECIDES = (
        "E_SUBQUERY",
        "a sub-query over private rows, beside public rows or answers,",
        "aggregate in the sub-query: (SELECT COUNT(*) FROM ...)",
    )
    SUBQUERY_OF_UNITS = (
        "E_SUBQUERY",
        "a sub-query over rows of {other} beside rows of {one}",
        "aggregate in the sub-query: (SELECT COUNT(*) FROM ...)",
    )
    SUBQUERY_WITHOUT_UNIT = (
        "E_SUBQUERY",
        "a sub-query over private rows that are not those of one privacy unit",
        "WHERE its privacy unit is that of the row around it, or a list of values",
    )
    SET_OF_UNITS = (
        "E_SET_OP",
        "rows of {one} and of {other} together",
        "aggregate each part: SELECT COUNT(*) ... UNION ALL SELECT COUNT(*) ...",
    )
    SET_WITHOUT_UNIT = (
        "E_SET_OP",
        "{operation} of private rows without their privacy unit",
        "list the columns, the privacy unit among them and at one place in every part",
    )
    SET_OF_LEVELS = (
        "E_SET_OP",
        "{operation} of private rows and others",
        "aggregate each part: SELECT COUNT(*) ... UNION ALL SELECT COUNT(*) ...",
    )
    WINDOW_WITHOUT_UNIT = (
        "E_WINDOW",
        "a window over private rows without their privacy unit",
        "OVER (PARTITION BY the privacy unit ...): rows of different units never meet",
    )
    WINDOW_OF_BOTH = (
        "E_WINDOW",
        "a window over private rows beside answers",
        "PARTITION BY the privacy unit in a sub-query, and compare with answers outside",
    )
    LIMIT_OF_ROWS = (
        "E_LIMIT",
        "LIMIT on rows",
        "a sub-query over private rows may project, filter and compute; aggregate it outside",
    )
    BOUND_OF_ANSWERS = (
        "E_JOIN",
        "max_rows of a view which has no private rows",
        "leave max_rows out",
    )
    BOUND_WITHOUT_UNIT = (
        "E_JOIN",
        "max_rows of a view whose rows have no column for their privacy unit",
        "leave max_rows out, or declare privacy_unit with a column",
    )


_FACTS = (
    PlanRefusal.NO_FROM,
    PlanRefusal.ROWS_SHOWN,
    PlanRefusal.BOTH_SHOWN,
    PlanRefusal.UNIT_SHOWN,
)
"""Refusals of what is asked for; the others are about a form."""


def refuse(missing: PlanRefusal, place: Span | None, **names: str) -> NoReturn:
    """Refuse a statement for a property that is missing. Raises: DatabaseError."""
    code, sentence, hint = missing.value
    shown = {key: printable(name) for key, name in names.items()}
    message, is_form = sentence.format(**shown), missing not in _FACTS
    message += " is not supported" * is_form
    kind = NotSupportedError if is_form else ProgrammingError
    raise kind(code, message, hint=hint.format(**shown), span=place)
