"""What is said to follow from the unit does: random relations, over tables as they are declared."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from dpsql.privacy.vault.unit.relation_frame import Frame
from dpsql.relation.header import read_header
from dpsql.relation.unit_facts import follows, is_single
from dpsql.relation.unit_local import JoinRows, PerUnit, UnitLocal
from tests.audit.relations import KEY, LINES, PATIENTS, VISITS, draw_relation
from tests.support.clinic import TABLES, Clinic, draw_data

WITH_PATIENT = JoinRows(VISITS, PATIENTS, "p", outer=True, one=True)


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        (PATIENTS, {"sex", "age"}),
        (VISITS, set()),
        (WITH_PATIENT, {"p.sex", "p.age", "p exists"}),
        (JoinRows(LINES, WITH_PATIENT, "v", KEY, one=True), {"v.p.sex", "v.p.age", "v.p exists"}),
        (JoinRows(LINES, WITH_PATIENT, "v", KEY, outer=True, one=True), set()),
        (PerUnit(WITH_PATIENT, ("p.sex",)), {"p.sex"}),
        (PerUnit(VISITS, ("ward",)), set()),
    ],
)
def test_columns_of_the_unit(relation: UnitLocal, expected: set[str]) -> None:
    header = read_header(relation, TABLES)
    assert {name for name in header.columns if follows(relation, name, TABLES)} == expected


def test_a_row_for_each_patient_is_one() -> None:
    by_patient = PerUnit(WITH_PATIENT, ("p.sex", "p.age"))
    assert is_single(by_patient, TABLES)
    assert read_header(by_patient, TABLES).most == 1
    assert not is_single(PerUnit(WITH_PATIENT, ("p.sex", "ward")), TABLES)
    assert read_header(PerUnit(WITH_PATIENT, ("p.sex", "ward")), TABLES).most == 3


def test_random_relations_have_what_is_said() -> None:
    draw, told, single = random.Random(3), 0, 0
    for _ in range(400):
        relation = draw_relation(draw, draw.randrange(1, 4))
        names = [n for n in read_header(relation, TABLES).columns if follows(relation, n, TABLES)]
        is_one = is_single(relation, TABLES)
        if not names and not is_one:
            continue
        frame = Clinic.of(draw_data(draw, hostile=False)).frame(relation)
        told, single = told + len(names), single + is_one
        assert all(_is_of_unit(frame, name) for name in names), relation
        assert not is_one or len(np.unique(frame.units)) == frame.count, relation
    assert told > 100
    assert single > 50


def _is_of_unit(frame: Frame, name: str) -> bool:
    found: dict[int, Sequence[object]] = {}
    lane = frame.lanes[name]
    parts = [each for each in (lane.codes, lane.numbers) if each is not None]
    for row, unit in enumerate(frame.units.tolist()):
        value = [str(each[row]) for each in parts]
        if found.setdefault(unit, value) != value:
            return False
    return True
