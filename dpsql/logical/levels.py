"""The table of levels: what an operator is over inputs of given levels, or why it is refused.

It is all of the privacy rules of the logical plan, and holds nothing else; ``inference`` reads it.

Guarantee, given that what is measured is a constant:

- PUBLIC: a function of public facts alone.
- ROWS: a disjoint union over privacy units u of f(rows of u, public facts).
- NOISY: a function of answers and public facts: no private row decides on it.
- BOTH: a disjoint union over units u of f(rows of u, answers, public facts).

Public rows that a join keeps without private ones have no unit, and are outside of that union;
nothing may be asked of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TypeAlias

from dpsql.logical.refusals import PlanRefusal
from dpsql.records import dataclass


class RelationLevel(Enum):
    """Level of a relation: the rows it depends on, by its letter in the table."""

    PUBLIC = "P"
    ROWS = "R"
    NOISY = "N"
    BOTH = "B"


class Requirement(Enum):
    """A property of an operator and its inputs that a level needs."""

    IS_PUBLIC = "the table is public"
    ONE_UNIT = "all private inputs are rows of one unit"
    MEETS_BY_UNIT = "rows meet only those of their unit"
    OF_THE_ROW_AROUND = "rows of the sub-query are of the unit of the row around it"
    KEYS_HOLD_UNIT = "the unit is a key of every group"
    ASKS_OF_UNITS = "nothing is asked of public rows that stay without private ones"
    PARTITION_HOLDS_UNIT = "the unit is in the partition of every window"
    UNIT_IN_PLACE = "the unit is at one place in all parts, or no row is compared with another"
    KNOWS_UNIT = "a column holds the unit"
    KEEPS_ALL_ROWS = "no row is left out for those before it"


@dataclass(frozen=True, slots=True)
class LevelOutcome:
    """A level, and what it needs, each with the refusal where it is missing.

    ``measured`` says that the operator is a question about private rows.
    """

    level: RelationLevel | None
    needs: tuple[tuple[Requirement, PlanRefusal | None], ...] = ()
    refusal: PlanRefusal | None = None
    measured: bool = False


Inputs: TypeAlias = tuple[RelationLevel, ...]
LevelTable: TypeAlias = Mapping[tuple[str, Inputs], tuple[LevelOutcome, ...]]
"""By operator and levels of its inputs, outcomes of which the first holds whose needs are met; the
refusal is that of the last one. A set operation has the levels of its parts once each."""

_Rows: TypeAlias = dict[str, tuple[LevelOutcome, ...]]
P, R, N, B = RelationLevel.PUBLIC, RelationLevel.ROWS, RelationLevel.NOISY, RelationLevel.BOTH
_PUBLIC, _ROWS, _NOISY, _BOTH = LevelOutcome(P), LevelOutcome(R), LevelOutcome(N), LevelOutcome(B)


def _needs(level: RelationLevel, *needs: tuple[Requirement, PlanRefusal | None]) -> LevelOutcome:
    return LevelOutcome(level, needs)


def _refused(refusal: PlanRefusal) -> LevelOutcome:
    return LevelOutcome(None, refusal=refusal)


_JOINED = (
    (Requirement.ONE_UNIT, PlanRefusal.JOIN_OF_UNITS),
    (Requirement.MEETS_BY_UNIT, PlanRefusal.JOIN_WITHOUT_UNIT),
)
_ASKED = (
    (Requirement.ONE_UNIT, PlanRefusal.SUBQUERY_OF_UNITS),
    (Requirement.OF_THE_ROW_AROUND, PlanRefusal.SUBQUERY_WITHOUT_UNIT),
)
_UNITED = (
    (Requirement.ONE_UNIT, PlanRefusal.SET_OF_UNITS),
    (Requirement.UNIT_IN_PLACE, PlanRefusal.SET_WITHOUT_UNIT),
)
_COUNTED = ((Requirement.KNOWS_UNIT, PlanRefusal.BOUND_WITHOUT_UNIT),)
_GROUPED = ((Requirement.KEYS_HOLD_UNIT, None),)
_MEASURED = LevelOutcome(N, ((Requirement.ASKS_OF_UNITS, PlanRefusal.KEPT_COUNTED),), measured=True)
_WINDOWED = ((Requirement.PARTITION_HOLDS_UNIT, PlanRefusal.WINDOW_WITHOUT_UNIT),)
_LIMITED = ((Requirement.KEEPS_ALL_ROWS, PlanRefusal.LIMIT_OF_ROWS),)
_DECIDE, _STAY = _refused(PlanRefusal.ROWS_DECIDE), _refused(PlanRefusal.ANSWERS_STAY)
_ASKS = _refused(PlanRefusal.SUBQUERY_DECIDES)
_MIXED = _refused(PlanRefusal.SET_OF_LEVELS)
_LEFTS: _Rows = {"PP": (_PUBLIC,), "PN NP NN": (_NOISY,), "RP": (_ROWS,), "RN BP BN": (_BOTH,)}
"""Joins that keep what is on their left, whatever is on their right."""
_PASSED: _Rows = {"P": (_PUBLIC,), "R": (_ROWS,), "N": (_NOISY,), "B": (_BOTH,)}

_TABLE: dict[str, _Rows] = {
    "values": {"": (_PUBLIC,)},
    "scan": {"": (_needs(P, (Requirement.IS_PUBLIC, None)), _ROWS)},
    "filter": _PASSED,
    "project": _PASSED,
    "shared": _PASSED,
    "bound": {
        "R": (_needs(R, *_COUNTED),),
        "B": (_needs(B, *_COUNTED),),
        "P N": (_refused(PlanRefusal.BOUND_OF_ANSWERS),),
    },
    "inner join": {
        "PP": (_PUBLIC,),
        "PN NP NN": (_NOISY,),
        "PR RP": (_ROWS,),
        "RR": (_needs(R, *_JOINED),),
        "RN NR PB BP NB BN": (_BOTH,),
        "RB BR BB": (_needs(B, *_JOINED),),
    },
    "left join": {
        **_LEFTS,
        "PR": (_ROWS,),
        "RR": (_needs(R, *_JOINED),),
        "PB": (_BOTH,),
        "NR NB": (_STAY,),
        "RB BR BB": (_needs(B, *_JOINED),),
    },
    "full join": {
        "PP": (_PUBLIC,),
        "PN NP NN": (_NOISY,),
        "PR RP": (_ROWS,),
        "RR": (_needs(R, *_JOINED),),
        "PB BP": (_BOTH,),
        "RN NR NB BN": (_STAY,),
        "RB BR BB": (_needs(B, *_JOINED),),
    },
    "half join": {
        **_LEFTS,
        "PR NR PB NB": (_DECIDE,),
        "RR": (_needs(R, *_JOINED),),
        "RB BR BB": (_needs(B, *_JOINED),),
    },
    "apply": {
        **_LEFTS,
        "PR NR PB NB": (_ASKS,),
        "RR": (_needs(R, *_ASKED),),
        "RB BR BB": (_needs(B, *_ASKED),),
    },
    "aggregate": {
        "P": (_PUBLIC,),
        "N": (_NOISY,),
        "R": (_needs(R, *_GROUPED), _MEASURED),
        "B": (_needs(B, *_GROUPED), _MEASURED),
    },
    "window": {
        "P": (_PUBLIC,),
        "N": (_NOISY,),
        "R": (_needs(R, *_WINDOWED),),
        "B": (_refused(PlanRefusal.WINDOW_OF_BOTH),),
    },
    "set operation": {
        "P": (_PUBLIC,),
        "N PN": (_NOISY,),
        "R": (_needs(R, *_UNITED),),
        "B PR PB RN RB NB": (_MIXED,),
    },
    "limit": {
        "P": (_PUBLIC,),
        "N": (_NOISY,),
        "R": (_needs(R, *_LIMITED),),
        "B": (_needs(B, *_LIMITED),),
    },
    "result": {
        "P": (_refused(PlanRefusal.PUBLIC_ALONE),),
        "N": (_NOISY,),
        "R": (_refused(PlanRefusal.ROWS_SHOWN),),
        "B": (_refused(PlanRefusal.BOTH_SHOWN),),
    },
}


def _read() -> Iterator[tuple[tuple[str, Inputs], tuple[LevelOutcome, ...]]]:
    for operator, rows in _TABLE.items():
        for letters, outcomes in rows.items():
            for word in letters.split(" "):
                yield (operator, tuple(map(RelationLevel, word))), outcomes


LEVELS: LevelTable = dict(_read())
"""Every row of the table."""
