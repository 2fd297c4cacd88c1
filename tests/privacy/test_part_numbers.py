"""Groups of a unit's rows, numbered by lot: by brute force, and with faults that are found."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import IntegerRange
from dpsql.privacy.vault.unit import unit_sums
from dpsql.privacy.vault.unit.relation_frame import EncodedColumn, Frame
from dpsql.relation.unit_local import Among, FilterRows, Scan, UnitLocal, WindowRows
from tests.support.clinic import Clinic, draw_data

MOST = 4
NUMBER = Column("number", "integer", IntegerRange(1, MOST))
BY = (("ward",), ("ward", "day"))


def kept(by: tuple[str, ...], groups: int) -> UnitLocal:
    """The visits in so many groups of each patient."""
    cells = bytes(k < groups for k in range(MOST))
    window = WindowRows(Scan("visits"), NUMBER, "part_number", by=by)
    return FilterRows(window, Among(("number",), cells))


def rows_of(relation: UnitLocal, clinic: Clinic, by: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Unit and cells of every row, those with an undeclared cell left out."""
    frame = clinic.frame(relation)
    lanes = [frame.lanes[name] for name in by]
    cells = [np.asarray(lane.codes) for lane in lanes]
    sizes = [lane.column.size for lane in lanes]
    inside = np.logical_and.reduce([a < b for a, b in zip(cells, sizes, strict=True)])
    found = [frame.units, *cells]
    return sorted(map(tuple, np.stack(found, axis=1)[inside].tolist()))


def check(seeds: range) -> None:
    """Of every unit all rows of as many of its groups are there, or of all that it has."""
    for seed in seeds:
        clinic = Clinic.of(draw_data(random.Random(seed), hostile=bool(seed % 2)))
        for by in BY:
            every = rows_of(Scan("visits"), clinic, by)
            for groups in (1, 2, 3):
                few = rows_of(kept(by, groups), clinic, by)
                names, told = set(few), set(every)
                assert few == [row for row in every if row in names]
                for unit in {row[0] for row in every}:
                    there, had = (sum(row[0] == unit for row in each) for each in (names, told))
                    assert there == min(groups, had)


def test_so_many_groups_of_every_unit_are_whole() -> None:
    check(range(40))


def test_more_groups_keep_the_rows_of_fewer() -> None:
    for seed in range(20):
        clinic = Clinic.of(draw_data(random.Random(seed)))
        found = [set(rows_of(kept(("ward", "day"), n), clinic, ("ward", "day"))) for n in (1, 2, 3)]
        assert found[0] <= found[1] <= found[2]


def test_every_group_is_drawn_sometimes() -> None:
    """Lots are not the order of cells: of units with several wards, each ward is kept for some."""
    seen: set[bool] = set()
    for seed in range(40):
        clinic = Clinic.of(draw_data(random.Random(seed)))
        every = set(rows_of(Scan("visits"), clinic, ("ward",)))
        for unit, ward in rows_of(kept(("ward",), 1), clinic, ("ward",)):
            wards = [other for who, other in every if who == unit]
            if len(wards) > 1:
                seen.add(ward == min(wards))
    assert seen == {False, True}


def _rows_not_groups(patch: pytest.MonkeyPatch) -> None:
    """Number rows one by one."""
    parts = unit_sums._parts

    def each(rows: Frame, *given: Any) -> Any:
        return (np.arange(rows.count),) * 2 if rows.count else parts(rows, *given)

    patch.setattr(unit_sums, "_parts", each)


def _without_units(patch: pytest.MonkeyPatch) -> None:
    """Number the groups of all units together."""
    parts = unit_sums._parts
    patch.setattr(
        unit_sums,
        "_parts",
        lambda rows, *given: parts(replace(rows, units=np.zeros_like(rows.units)), *given),
    )


def _undeclared_too(patch: pytest.MonkeyPatch) -> None:
    """Let a group with an undeclared cell take a number."""
    patch.setattr(
        EncodedColumn, "is_declared", lambda lane: np.ones(len(lane.codes), dtype=np.bool_)
    )


@pytest.mark.parametrize("fault", [_rows_not_groups, _without_units, _undeclared_too])
def test_planted_faults_are_found(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check(range(40))
