"""Relations of one unit: whatever is composed, one unit changes at most ``max_rows`` rows."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import IntegerRange
from dpsql.privacy.vault.unit import local_rows, relation_frame, shared_units, unit_joins, unit_sums
from dpsql.privacy.vault.unit.relation_frame import EncodedColumn, Frame
from dpsql.privacy.vault.unit.unit_numbers import Digest
from dpsql.relation import cell_maps
from dpsql.relation.cell_maps import CELLS
from dpsql.relation.header import read_header
from dpsql.relation.unit_local import (
    Among,
    FilterRows,
    FormulaRows,
    JoinRows,
    MapRows,
    Multiple,
    UnitLocal,
)
from tests.audit.relations import KEY, LINES, SOUND, VISITS, draw_relation
from tests.support import clinic
from tests.support.clinic import TABLES, Clinic, draw_data, largest_change

LIMITS = (1, 3)
SEEDS = range(5)
FEW = JoinRows(
    LINES, FilterRows(VISITS, Among(("day",), bytes([0, 1, 1] + [0] * 8))), "v", KEY, one=True
)
"""Lines of few visits, of which most have a number of their own."""


@pytest.mark.parametrize("relation", [*SOUND.values(), FEW, LINES], ids=[*SOUND, "few", "lines"])
def test_a_unit_changes_at_most_so_many_rows(relation: UnitLocal) -> None:
    for most in LIMITS:
        assert largest_change(relation, most, SEEDS) <= most


def test_the_audit_sees_changes_at_all() -> None:
    seen = [largest_change(each, 2, SEEDS) for name, each in SOUND.items() if name != "per unit"]
    assert seen.count(2) >= len(seen) - 5


@pytest.mark.parametrize("seed", range(8))
def test_random_relations_are_bounded(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(12):
        relation = draw_relation(draw, 3)
        most = draw.choice(LIMITS)
        found = largest_change(relation, most, draw.sample(range(20), 2))
        assert found <= most, relation


@pytest.mark.parametrize("limit", [1, 3])
def test_units_with_too_many_pairs_are_cut_by_themselves(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_joins, "MOST_OF_UNIT", limit)
    clinic.encoded.cache_clear()
    for name in ("many", "outer many", "self join", "by key", "by reference", "chain"):
        for most in (limit, 5):
            found = largest_change(SOUND[name], most, SEEDS)
            assert found <= most, (name, most)
    draw = random.Random(limit)
    for _ in range(20):
        relation, data = draw_relation(draw, 2), draw_data(draw)
        moved = {name: draw.sample(rows, len(rows)) for name, rows in data.items()}
        once, again = (Clinic.of(each).counts(relation, 2) for each in (data, moved))
        assert once == again, relation
    clinic.encoded.cache_clear()


def test_the_order_of_rows_changes_nothing() -> None:
    draw = random.Random(11)
    for _ in range(60):
        relation, data = draw_relation(draw, 3), draw_data(draw)
        moved = {name: draw.sample(rows, len(rows)) for name, rows in data.items()}
        once, again = (Clinic.of(each).counts(relation, 2) for each in (data, moved))
        assert once == again, relation


def test_rows_belong_to_the_units_of_what_they_refer_to() -> None:
    for seed in range(30):
        data = draw_data(random.Random(seed), hostile=bool(seed % 2))
        frame = Clinic.of(data).stock.frames["lines"]
        owners = {(visit, owner) for owner, visit, *_ in data["visits"]} - {(None, None)}
        pairs = [
            (owner, visit)
            for visit, *_ in data["lines"]
            for key, owner in owners
            if key == visit and visit is not None and owner is not None
        ]
        names = Clinic.of(data).stock.people.names.tolist()
        visits = frame.keys["visit_id"][0].tolist()
        found = [
            (int(names[unit]), v) for unit, v in zip(frame.units.tolist(), visits, strict=True)
        ]
        assert sorted(found) == sorted(pairs), seed


Fault = Callable[[pytest.MonkeyPatch], None]


def bound_first(patch: pytest.MonkeyPatch) -> None:
    """Cut every table to its rows per unit before it is joined, and nothing afterwards."""

    def first(*given: Any) -> local_rows.UnitTables:
        stock = take(*given)
        relation_frame = {name: _cut(each, 2) for name, each in stock.frames.items()}
        return replace(stock, frames=relation_frame)

    take = local_rows.take_stock
    patch.setattr(clinic, "take_stock", first)
    patch.setattr(clinic, "line_up", lambda *_: None)


def _cut(frame: Frame, most: int) -> Frame:
    order = np.argsort(frame.units, kind="stable")
    allowed = unit_joins.limit_amounts(
        np.ones(frame.count, dtype=np.int64), frame.units[order], most
    )
    return frame.take(order[allowed > 0])


def join_on_another_column(patch: pytest.MonkeyPatch) -> None:
    """Leave the unit out of what is joined by."""
    numbers = shared_units.together

    def others(*columns: Sequence[Any]) -> Any:
        shorter = [each[1:] if len(each) > 1 else each for each in columns]
        return numbers(*shorter)

    patch.setattr(unit_joins, "together", others)


def join_everything(patch: pytest.MonkeyPatch) -> None:
    """Join rows of all units with each other."""
    groups = unit_joins._groups

    def all_alike(*given: Any) -> Any:
        found, count = groups(*given)
        return [np.minimum(each, 0) for each in found], count

    patch.setattr(unit_joins, "_groups", all_alike)


def join_by_keys_that_nobody_shares(patch: pytest.MonkeyPatch) -> None:
    """Join rows of all units where no two rows on the right have the same keys."""
    groups = unit_joins._groups

    def by_key(on: Any, left: Frame, right: Frame, who: Any) -> Any:
        keys = [left.keys[one] for one, _ in on], [right.keys[other] for _, other in on]
        if on:
            found, count = shared_units.together(*keys)
            if np.bincount(found[1][found[1] >= 0]).max(initial=0) <= 1:
                return found, count
        return groups(on, left, right, who)

    patch.setattr(unit_joins, "_groups", by_key)


def label_by_the_other_side(patch: pytest.MonkeyPatch) -> None:
    """Say that a pair belongs to the unit of its right side, joined by a key alone."""
    join_on_another_column(patch)
    join = unit_joins.join_rows

    def labelled(given: Any, left: Frame, right: Frame, who: Any) -> Frame:
        return join(given, replace(left, units=np.zeros_like(left.units)), right, who)

    patch.setattr(local_rows, "join_rows", labelled)


def over_all_units(patch: pytest.MonkeyPatch) -> None:
    """Group, number and look back over the rows of all units."""
    parts = unit_sums._parts

    def everyone(rows: Frame, *by: Sequence[str]) -> Any:
        return parts(replace(rows, units=np.zeros_like(rows.units)), *by)

    patch.setattr(unit_sums, "_parts", everyone)


def unique_over_all_units(patch: pytest.MonkeyPatch) -> None:
    """Keep one row of every key, whoever it belongs to."""
    join = unit_joins.join_rows

    def first(given: Any, left: Frame, right: Frame, who: Any) -> Frame:
        for key, _ in right.keys.values():
            _, once = np.unique(key, return_index=True)
            right = right.take(np.sort(once))
        return join(given, left, right, who)

    patch.setattr(local_rows, "join_rows", first)


def drop_shared_keys(patch: pytest.MonkeyPatch) -> None:
    """Leave out rows that belong to several units."""
    label = unit_joins.label

    def alone(rows: Frame, own: Any, owners: Frame, their: Any) -> Frame:
        pairs = np.unique(np.stack([their[0][0], owners.units]), axis=1)
        keys, times = np.unique(pairs[0], return_counts=True)
        kept = np.flatnonzero(~np.isin(own[0][0], keys[times > 1]))
        return label(rows.take(kept), [(own[0][0][kept], own[0][1][kept])], owners, their)

    patch.setattr(local_rows, "label", alone)


def beside_all_rows(patch: pytest.MonkeyPatch) -> None:
    """Work a number of a row out by how many rows there are."""
    work_out = relation_frame.add_product_column

    def counted(formula: FormulaRows, rows: Frame) -> Frame:
        more = Multiple(Fraction(rows.count % 7, 4))
        return work_out(replace(formula, terms=(*formula.terms, more)), rows)

    patch.setattr(local_rows, "add_product_column", counted)


FAULTS: list[tuple[Fault, UnitLocal, int]] = [
    (bound_first, SOUND["many"], 3),
    (join_by_keys_that_nobody_shares, FEW, 3),
    (join_on_another_column, SOUND["by key"], 3),
    (join_everything, SOUND["lookup"], 3),
    (label_by_the_other_side, SOUND["by key"], 3),
    (over_all_units, SOUND["window"], 3),
    (over_all_units, SOUND["distinct"], 1),
    (unique_over_all_units, SOUND["chain"], 3),
    (drop_shared_keys, LINES, 3),
    (join_everything, SOUND["exists"], 1),
    (bound_first, SOUND["union"], 3),
    (bound_first, SOUND["union of tables"], 3),
    (over_all_units, SOUND["since the last"], 3),
    (over_all_units, SOUND["first visits"], 1),
    (over_all_units, SOUND["the last two"], 3),
    (over_all_units, SOUND["three days"], 3),
    (over_all_units, SOUND["per key"], 3),
    (join_everything, SOUND["came again"], 3),
    (join_everything, SOUND["another kind"], 3),
    (over_all_units, SOUND["dearest of three"], 3),
    (join_everything, SOUND["without"], 1),
    (over_all_units, SOUND["two wards"], 3),
    (beside_all_rows, SOUND["product"], 3),
    (beside_all_rows, SOUND["steps of a sum"], 1),
]


@pytest.mark.parametrize("index", range(len(FAULTS)))
def test_planted_faults_are_found(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, relation, most = FAULTS[index]
    fault(monkeypatch)
    clinic.encoded.cache_clear()
    assert any(largest_change(relation, most, [seed]) > most for seed in range(40))
    clinic.encoded.cache_clear()


def listed_cells() -> None:
    """Look the cells of listed combinations up in the vault, and row by row."""
    for seed in range(20):
        listed_cells_of(draw_data(random.Random(seed)))


def listed_cells_of(data: clinic.Data) -> None:
    listed = {(0, 0): 2, (2, 3): 1, (1, 10): 0, (1, 4): 3}
    column = Column("n", "integer", IntegerRange(0, 3), null=True)
    of = np.array(list(listed), CELLS).tobytes()
    cells = np.array(list(listed.values()), CELLS).tobytes()
    relation = MapRows(VISITS, column, ("ward", "day"), cells, of)
    lanes = Clinic.of(data).frame(relation).lanes
    wards, days = (np.asarray(lanes[name].codes).tolist() for name in ("ward", "day"))
    pairs = list(zip(wards, days, strict=True))
    known = [4 if ward < 3 and day < 11 else 5 for ward, day in pairs]
    expected = [listed.get(pair, other) for pair, other in zip(pairs, known, strict=True)]
    assert np.asarray(lanes["n"].codes).tolist() == expected


def _nearest(mapped: MapRows, lanes: Sequence[EncodedColumn], places: Any) -> Any:
    """Take rows of no listed combination for those of the next one."""
    keys = cell_maps.numbered(mapped, [lane.column.size for lane in lanes])
    order = np.argsort(keys)
    at = order[np.minimum(np.searchsorted(keys, places, sorter=order), len(keys) - 1)]
    return np.frombuffer(mapped.cells, CELLS)[at]


def test_cells_of_listed_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    listed_cells()
    faults = (
        (EncodedColumn, "is_declared", lambda lane: lane.codes >= 0),
        (relation_frame, "_listed", _nearest),
    )
    for fault in faults:
        with monkeypatch.context() as patch:
            patch.setattr(*fault)
            with pytest.raises(AssertionError):
                listed_cells()


def test_digests_are_those_of_hashlib() -> None:
    keys, content = np.array([5, 2**63 + 1], np.uint64), [np.array([-1, 7]), np.array([0, 3])]
    found = Digest(clinic.SALT).of_rows(keys, content)
    texts = (f"{clinic.SALT}|{keys[i]:016x}|{content[0][i]}|{content[1][i]}" for i in range(2))
    digests = (hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() for text in texts)
    assert found.tolist() == [int(each[:16], 16) for each in digests]


def test_the_header_tells_what_the_rows_are() -> None:
    draw = random.Random(3)
    data = Clinic.of(draw_data(draw))
    for _ in range(100):
        relation = draw_relation(draw, 3)
        header, frame = read_header(relation, TABLES), data.frame(relation)
        assert {name: lane.column for name, lane in frame.lanes.items()} == dict(header.columns)
        assert frame.keys.keys() == header.keys
        for lane in frame.lanes.values():
            assert len(lane.codes if lane.codes is not None else lane.numbers) == frame.count  # type: ignore[arg-type]
