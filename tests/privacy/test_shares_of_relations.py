"""Relations are worked out for some units at a time: the same rows, in little memory, anywhere."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsql.privacy.vault.codes.spill import (
    BESIDE,
    SpillRoom,
    bytes_of_row,
    fit_beside,
    kept_bytes,
    reserve_memory,
    share_room,
)
from dpsql.privacy.vault.data_engine import Batch, Values64
from dpsql.privacy.vault.unit import unit_numbers
from dpsql.privacy.vault.unit.local_rows import rows_of, take_stock
from dpsql.privacy.vault.unit.rows import Rows, line_up, load_rows
from dpsql.relation.unit_local import DerivedTable, UnitLocal, scanned
from tests.audit.relations import SOUND, draw_relation
from tests.support.clinic import (
    DIGEST,
    TABLES,
    Clinic,
    _raw,
    contents,
    draw_data,
    table_of,
)
from tests.support.effort import effort, first_seed

ROWS = 12_000


def relations(seed: int) -> list[UnitLocal]:
    draw = random.Random(seed)
    return [*SOUND.values()] if seed == 0 else [draw_relation(draw, 3) for _ in range(25)]


@pytest.mark.parametrize("seed", range(effort(4)))
@pytest.mark.parametrize("spilled", [False, True])
def test_rows_are_those_of_all_units_together(
    seed: int, spilled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of however many shares; a fault that goes to other units' rows is found here too."""
    draw, most = random.Random(first_seed(seed)), 3
    room = SpillRoom(str(tmp_path) if spilled else None, 7)
    clinic = Clinic.of(draw_data(draw, people=9))
    for relation in relations(seed):
        table, found = table_of(relation, most), []
        for gathered in (1 << 18, draw.choice([1, 2, 5])):
            monkeypatch.setattr(unit_numbers, "GATHERED", gathered)
            rows = rows_of(table, relation, clinic.stock, room)
            rows = replace(rows, queue=line_up(rows, table, DIGEST))
            found.append(contents(rows, table))
        assert found[0] == found[1], relation


def large(rows: int, is_text: bool) -> dict[str, Rows]:
    """Tables of a clinic: two visits and lines of each patient, in no order."""
    draw = np.random.default_rng(1)
    people = rows // 2

    def values(numbers: object, size: int) -> Values64:
        none = np.zeros(size, dtype=np.bool_)
        return Values64(np.asarray(numbers, dtype=np.float64), none, none)

    def who(ids: object) -> Any:
        ids = np.asarray(ids, dtype=np.int64)
        return np.array([f"patient {i}" for i in ids], dtype=object) if is_text else ids

    every = np.ones(rows, dtype=np.bool_)
    patients = [values(draw.integers(0, top, people), people) for top in (2, 5)]
    visits = [values(draw.integers(0, top, rows), rows) for top in (3, 10, 9)]
    lines = [values(draw.integers(0, top, rows), rows) for top in (2, 8)]
    visits[0], lines[0], patients[0] = (
        replace(each[0], numbers=np.asarray(each[0].numbers).astype(np.int64))
        for each in (visits, lines, patients)
    )
    batches = {
        "patients": Batch(people, patients, who(draw.permutation(people)), every[:people], []),
        "visits": Batch(
            rows, visits, who(draw.integers(0, people, rows)), every, [(np.arange(rows), every)]
        ),
        "lines": Batch(rows, lines, keys=[(draw.integers(0, rows, rows), every)]),
    }
    return {name: load_rows([batch], _raw(name)) for name, batch in batches.items()}


@pytest.mark.parametrize("is_text", [False, True])
def test_what_is_worked_out_beside_is_in_the_number_of_a_row(
    is_text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (unit_numbers, "GATHERED"),
        (unit_numbers, "STRIDE"),
        (unit_numbers, "BATCH"),
    ):
        monkeypatch.setattr(module, name, 800)
    monkeypatch.setattr("dpsql.privacy.vault.unit.shared_units.BATCH", 800)
    sizes = ROWS // 4, ROWS
    stored = [large(rows, is_text) for rows in sizes]
    for name, relation in SOUND.items():
        read = scanned(relation)
        read = ("visits", *read) if "lines" in read else read  # whose rows they are
        tables = [table for key, table in TABLES.items() if key in read]
        peaks, kept = [], []
        for rows in stored:
            tracemalloc.start()
            stock = take_stock(tables, {key: rows[key] for key in read}, DIGEST)
            found = rows_of(table_of(relation, 3), relation, stock)
            peaks.append(tracemalloc.get_traced_memory()[1])
            del stock
            kept.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
            del found
        beside = (peaks[1] - kept[1]) - (peaks[0] - kept[0])
        counts = [sum(rows[table.name].count for table in tables) for rows in stored]
        assert beside < BESIDE * (counts[1] - counts[0]), name


@pytest.mark.parametrize("name", ["scan", "lookup", "per unit", "window", "by reference"])
def test_what_is_kept_is_in_the_number_of_a_row(name: str) -> None:
    """Of relations that make no more rows than their tables have."""
    relation, kept, counts = SOUND[name], [], []
    table = table_of(relation, 3)
    for size in (ROWS // 4, ROWS):
        stock = take_stock([*TABLES.values()], large(size, False), DIGEST)
        tracemalloc.start()
        rows = rows_of(table, relation, stock)
        rows = replace(rows, queue=line_up(rows, table, DIGEST))
        kept.append(tracemalloc.get_traced_memory()[0])
        counts.append(rows.count)
        tracemalloc.stop()
    shared = replace(table, bases=tuple(replace(each, room=1) for each in table.bases))
    assert kept[1] - kept[0] < kept_bytes(shared) * (counts[1] - counts[0])


def test_rows_found_by_reference_have_room_before_the_first_is_read() -> None:
    """The table as it is stored too, of which rows are read before it is known whose they are."""
    stored = replace(TABLES["lines"], row_count_hint=70)
    facts = {each.name: getattr(stored, each.name) for each in fields(stored) if each.init}
    bases = TABLES["visits"], stored
    lines = DerivedTable(**facts, relation=SOUND["by reference"], bases=bases)
    shared = share_room({"visits": replace(bases[0], row_count_hint=50), "lines": lines})
    found = shared["lines"]
    assert isinstance(found, DerivedTable)
    assert [each.room for each in found.bases] == [50, 70]
    assert SpillRoom.of(found).rows == SpillRoom.of(found.bases[1]).rows == 70


@pytest.mark.parametrize("folder", [None, "/scratch"])
def test_derived_tables_stay_by_public_numbers(
    folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = () if folder is None else (("spill", folder),)
    base = replace(TABLES["visits"], options=options, row_count_hint=1000)
    size = 1000 * bytes_of_row(base)
    for memory in (size, 2 * size, 100 * size):
        monkeypatch.setattr(
            "dpsql.privacy.vault.codes.spill.memory", lambda memory=memory: 2 * memory
        )
        shared = share_room({"visits": base})
        table = replace(table_of(SOUND["window"], 3), bases=tuple(shared.values()))
        room = size if folder else memory - size
        fits = [fit_beside([table] * n, shared.values()) for n in range(1, 9)]
        assert fits == [n <= max(1, room // kept_bytes(table)) for n in range(1, 9)]


def test_memory_for_rows_of_files_is_taken_by_the_public_number() -> None:
    table = table_of(SOUND["window"], 3)
    for most in (10**6, 1 << 60):
        options = (("spill", "/scratch"),)
        bases = tuple(replace(each, options=options, room=most) for each in table.bases)
        if most == 10**6:
            reserve_memory(replace(table, bases=bases))
        else:
            with pytest.raises((MemoryError, ValueError)):
                reserve_memory(replace(table, bases=bases))
