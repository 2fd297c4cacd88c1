"""Numbers that are shown, column by column, and the measured answers that they are made of.

A number that nobody sees counts by what it adds to the error of one that is shown: the counts below
a median by the error of its rank, the moments of a spread as they enter it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dpsql.plan.target import Target
from dpsql.records import dataclass
from dpsql.workload.layout import Place, WeightedAnswer

if TYPE_CHECKING:
    from dpsql.sql.compiled import Compiled


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A result column: its statement, its name, and what its error is made of.

    ``parts`` are answers with how much the variance of each of their rows counts, ``rows`` how many
    numbers are shown. ``is_own`` says that these are the column itself, so that its error has a
    unit.
    """

    statement: int
    name: str
    parts: Mapping[Place, float]
    rows: int
    is_own: bool

    def variance(self, means: Mapping[Place, float], rows: Mapping[Place, int]) -> float:
        """The mean squared error of the column, by mean variances and numbers of rows of answers.

        Covariances of the answers that a column is computed from are left out.
        """
        total = sum(part * rows[place] * means[place] for place, part in self.parts.items())
        return float(total / sum(rows[place] for place in self.parts))


def shown_columns(
    statements: Mapping[int, Compiled], targets: Sequence[Target]
) -> tuple[ResultColumn, ...]:
    """Return the columns of statements, by their numbers, that depend on what is measured."""
    asked = {place: each for target in targets for place, each in target.asked.items()}
    found: list[ResultColumn] = []
    for number, item in statements.items():
        columns = _of_select(number, item) if item.outer is None else _of_selects(number, item)
        for name, places, is_own in columns:
            known = [place for place in places if place in asked]
            if known:
                parts = {p: 1.0 if is_own else _part(asked[p]) for p in known}
                rows = sum(_numbers(item, place) for place in known)
                most = max(_numbers(item, place) for place in known)
                found.append(ResultColumn(number, name, parts, rows if is_own else most, is_own))
    return tuple(found)


def _part(asked: WeightedAnswer) -> float:
    return asked.weight**2


def _numbers(item: Compiled, place: Place) -> int:
    """The count of numbers that an answer gives: one for each group."""
    select, answer = item.answers()[place[1]]
    return select.branches[answer.branch].rows


def _of_select(number: int, item: Compiled) -> Iterator[tuple[str, list[Place], bool]]:
    """The columns of a SELECT: an aggregate each, or computed from aggregates."""
    (select,) = item.selects
    places = {(number, j): answer.aggregate for j, answer in enumerate(select.answers)}
    for output in select.query.shell.outputs:
        if output.aggregate is not None:
            yield output.name, [p for p, a in places.items() if a == output.aggregate], True
        elif output.key is None and output.noisy:
            over = output.over
            yield output.name, [p for p, a in places.items() if over is None or a in over], False


def _of_selects(number: int, item: Compiled) -> Iterator[tuple[str, list[Place], bool]]:
    """The columns of SELECTs that others are computed from: aggregates that are repeated, and the
    rest of each SELECT together.
    """
    assert item.outer is not None
    repeats, start = item.outer.repeats, 0
    for at, select in enumerate(item.selects):
        by_aggregate: dict[int, list[Place]] = {}
        for j, answer in enumerate(select.answers, start):
            by_aggregate.setdefault(answer.aggregate, []).append((number, j))
        start += len(select.answers)
        rest: list[Place] = []
        for aggregate, places in by_aggregate.items():
            if repeats is not None and (at, aggregate) in repeats:
                yield f"t{at}.{aggregate}", places, True
            else:
                rest += places
        if rest:
            yield f"t{at}", rest, False


def emphasis_of(
    columns: Sequence[ResultColumn],
    means: Mapping[Place, float],
    rows: Mapping[Place, int],
) -> dict[Place, float]:
    """Return the weights of answers with which squared errors count by those that are known.

    The total of squared errors of shown numbers, each divided by the mean square of its column
    that ``means`` come to, is that of the squared errors of answers with these weights.
    """
    squares: dict[Place, float] = {}
    for column in columns:
        known = column.variance(means, rows) * sum(rows[place] for place in column.parts)
        for place, part in column.parts.items():
            squares[place] = squares.get(place, 0.0) + (column.rows * part / known if known else 0)
    return {place: math.sqrt(each) for place, each in squares.items()}
