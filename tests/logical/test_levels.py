"""The table of levels beside brute force: what it promises of plans holds, and no row is idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import duckdb
import pytest

from dpsql.logical.levels import LEVELS, Inputs, LevelOutcome, LevelTable, RelationLevel
from dpsql.logical.nodes import LogicalAggregate
from tests.logical.planned import (
    OPERATORS,
    PlanDraw,
    Recipes,
    SmallWorld,
    asked_of_kept_rows,
    broken,
    read,
)
from tests.support.effort import SHIFT, effort, first_seed, one_in

P, R, N, B = RelationLevel.PUBLIC, RelationLevel.ROWS, RelationLevel.NOISY, RelationLevel.BOTH
Row = tuple[str, Inputs]
SOUND = {P: (N,), R: (B,), N: (), B: ()}
"""Levels that promise no more than another does."""
HARMLESS: dict[Row, Inputs] = {
    ("bound", (P,)): (P, N),
    ("bound", (N,)): (N,),
    **{("left join", (N, each)): (B,) for each in (R, B)},
    **{("full join", sides): (B,) for sides in ((N, R), (R, N), (N, B), (B, N))},
}
"""Levels of what is refused for another reason than privacy: rows that stay are of no unit."""
MOST_DRAWS = 2_000
"""Plans of one row that are drawn until a fault is seen."""
EVERY = one_in(6)


@pytest.fixture(scope="module")
def world() -> Iterator[SmallWorld]:
    found = SmallWorld(SHIFT)
    yield found
    found.database.close()


@pytest.fixture(scope="module")
def recipes() -> Recipes:
    return Recipes(SHIFT)


def test_random_plans_keep_what_their_levels_promise(world: SmallWorld) -> None:
    levels: Counter[RelationLevel] = Counter()
    for seed in range(first_seed(0), first_seed(0) + effort(150)):
        found = read(PlanDraw(seed).plan(seed % 4))
        if found is None:
            continue
        try:
            assert not broken(world, *found), f"plan {seed}"
        except duckdb.Error:
            continue  # it has no plan for some sub-queries
        levels[found[1].level] += 1
    assert levels[R] > 15
    assert levels.total() > 35


def test_every_row_of_the_table_keeps_what_it_promises(world: SmallWorld, recipes: Recipes) -> None:
    for row in LEVELS:
        if row[0] in OPERATORS:
            assert next(_faults(row, LEVELS, world, recipes, effort(1)), "") == "", row


def _faults(
    row: Row, table: LevelTable, world: SmallWorld, recipes: Recipes, most: int = MOST_DRAWS
) -> Iterator[str]:
    """Return the promises that are broken by plans whose last operator is of one row of a table."""
    operator, levels = row
    if operator == "set operation" and len(levels) == 1:
        levels = levels * 2
    for _ in range(most):
        found = read(recipes.over(operator, levels).made(count(1)), table)
        if found is None:
            continue
        try:
            why = broken(world, *found)
            if not why and isinstance(found[0], LogicalAggregate) and found[1].measured:
                kept = asked_of_kept_rows(world, found[0], found[2])
                why = "rows of no unit are counted" if kept else ""
        except duckdb.Error:
            continue
        if why:
            yield why


def planted(row: Row) -> Iterator[tuple[str, tuple[LevelOutcome, ...]]]:
    """The outcomes of a row with one fault each."""
    outcomes = LEVELS[row]
    for place, each in enumerate(outcomes):
        before, after = outcomes[:place], outcomes[place + 1 :]
        if each.level is None:
            for level in RelationLevel:
                if level not in HARMLESS.get(row, ()):
                    yield f"{level.name}, not refused", (*before, LevelOutcome(level))
            continue
        for need in each.needs:
            rest = tuple(other for other in each.needs if other is not need)
            yield f"not {need[0].name}", (*before, replace(each, needs=rest), *after)
        for level in RelationLevel:
            if level is not each.level and level not in SOUND[each.level]:
                asks = each.measured and level is P
                other = replace(each, level=level, measured=asks)
                yield f"{level.name}, not {each.level.name}", (*before, other, *after)
        if each.measured:
            yield "not measured", (*before, replace(each, measured=False), *after)


FAULTS = [
    pytest.param(row, outcomes, id=f"{row[0]} {''.join(e.value for e in row[1])}: {name}")
    for row in LEVELS
    if row[0] in OPERATORS
    for name, outcomes in planted(row)
]


@pytest.mark.parametrize(
    ("row", "outcomes"), [each for k, each in enumerate(FAULTS) if (k + SHIFT) % EVERY == 0]
)
def test_a_fault_in_any_row_is_seen(
    row: Row, outcomes: tuple[LevelOutcome, ...], world: SmallWorld, recipes: Recipes
) -> None:
    table = {**LEVELS, row: outcomes}
    assert next(_faults(row, table, world, recipes), "")


def test_a_result_is_of_answers_alone() -> None:
    shown = {row[1]: outcomes for row, outcomes in LEVELS.items() if row[0] == "result"}
    levels = {inputs: each.level for inputs, (each,) in shown.items()}
    assert levels == {(P,): None, (R,): None, (N,): N, (B,): None}
