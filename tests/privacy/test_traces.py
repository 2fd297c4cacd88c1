"""Neighbours take the same way: which functions run, and on arrays of which sizes and types.

Time tells what a choice of algorithm, width or block depends on, and a clock would not find it all.
So calls are recorded, with the shapes and types of all arrays that a function ends with, and what
is compared are hostile tables with as many rows, and as many units with as many rows each.
``TRACES`` says how many pairs of tables there are.
"""

from __future__ import annotations

import ast
import gc
import importlib
import itertools
import math
import os
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql.privacy
from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.composite_keys import join_key, joint_column
from dpsql.catalog.discovery import Sought
from dpsql.catalog.domain import IntegerRange, Values
from dpsql.privacy.doors.discovery import CountedDiscovery, Discovery
from dpsql.privacy.doors.find_keys import _choose, _count
from dpsql.privacy.vault.codes.spill import SpillRoom
from dpsql.privacy.vault.unit import unit_joins
from dpsql.privacy.vault.unit.local_rows import rows_of
from dpsql.privacy.vault.vault import TableVault
from dpsql.records import replace
from dpsql.relation.unit_local import UnitLocal
from dpsql.strategy.noise_law import GAUSSIAN
from dpsql.workload.cells import Cells, Steps, Unions
from tests.audit.relations import SOUND, draw_relation
from tests.privacy.additivity import KINDS, WORDS, Kind, arrow, resolutions_of
from tests.support.clinic import Clinic, Data, Row, draw_data, table_of
from tests.support.effort import effort

TRACES = effort(24)
EVERY = TRACES > 24
"""Relations are asked of all tables, not each of some: a trace of one takes half a second."""
WITHIN = os.path.join("privacy", "vault", "")
APART = ("text_dictionary.py", "timestamps.py")
"""What draws keys anew, so that its steps say nothing of the data; and what runs in threads."""
LOTS = ("row_texts.py", "digests.py", "byte_texts.py")
"""Writers and digests of rows that draw lots: of which rows, is by lot, and by which way is not."""
SEEN = Column("seen", "integer", IntegerRange(0, 9))
DIGESTS = ("digits_of_rows", "_digits", "_one_by_one", "_add_block", "_mix", "_halves", "RowTexts")
Arrays = tuple[tuple[str, str, tuple[int, ...]], ...]
Step = tuple[str, Arrays, tuple[int, ...], str]
"""A function, its arrays, its instructions, and the file where it stands."""
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def trace(work: Callable[[], object], apart: tuple[str, ...] = APART) -> list[Step]:
    """Functions of the vault as they run, thread by thread, with the arrays that each ends with.

    The way are its instructions in order: so a branch shows that calls nothing of ours. Threads
    are kept themselves, since the number of one that has ended is given to another; nor is it seen
    when a generator that others left behind is collected.
    """
    steps: dict[threading.Thread, list[Step]] = {}

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        caller = "" if frame.f_back is None else frame.f_back.f_code.co_filename
        if WITHIN not in file or file.endswith(apart):
            return None
        if caller.endswith(APART[0]) and APART[0] in apart:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        mine, way = steps.setdefault(threading.current_thread(), []), list[int]()

        def within(frame: FrameType, event: str, result: Any) -> Any:
            if event == "opcode":
                way.append(frame.f_lasti)
            elif event == "return":
                found = {**frame.f_locals, "return": result}
                arrays = (
                    (name, each.dtype.str, each.shape)
                    for name, each in sorted(found.items())
                    if isinstance(each, np.ndarray)
                )
                name = frame.f_code.co_qualname
                mine.append((name, tuple(arrays), tuple(way), os.path.basename(file)))
            return within

        return within

    before = sys.gettrace(), threading.gettrace()
    gc.collect()
    gc.disable()
    sys.settrace(enter)
    threading.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before[0])
        threading.settrace(before[1])
        gc.enable()
    return [step for each in steps.values() for step in each]


Turn = tuple[str, tuple[tuple[str, str], ...], frozenset[int]]


def turns(steps: Sequence[Step]) -> list[Turn]:
    """Which functions ran, one after the other, on which types and by which ways, of any size."""
    return [
        (name, tuple((one, kind) for one, kind, _ in arrays), frozenset(way))
        for name, arrays, way, _ in steps
    ]


def no_lots(steps: Sequence[Step]) -> list[Step]:
    """Leave out what writes and digests rows that draw lots."""
    return [each for each in steps if each[-1] not in LOTS]


def ways(steps: Sequence[Step]) -> set[Turn]:
    """Which functions ran, on which types and by which ways, however often and of any size."""
    return {*turns(steps)}


def same(one: Sequence[Step], two: Sequence[Step]) -> None:
    """Say where two ways part."""
    for step, other in zip(one, two, strict=False):
        assert step == other
    assert len(one) == len(two)


def ask(table: Table) -> Callable[[], object]:
    """Load a table and count it: rows and units, by cells and by unions of cells."""
    vault = TableVault(table, b"salt" * 8)
    cells = {
        key: Cells((column.name,), (np.arange(column.size),))
        for key, column in table.columns.items()
        if column.domain is not None
    }
    cell = cells["seen"]
    numbers = [
        each
        for key, column in table.columns.items()
        for each in [*resolutions_of(key, column), *steps_of(key, column)]
        if not isinstance(each, Cells | Unions)
    ]
    unions = Unions(cell, np.tri(4, cell.size, dtype=np.bool_))

    def work() -> None:
        vault.load()
        for each in cells.values():
            vault.tally([each])
        vault.tally([cell, *[each for key, each in cells.items() if key != "seen"][:1]])
        vault.mark([cell])
        for number in numbers:
            vault.tally([number, cell])
        if table.unit.column is not None:
            vault.tally([cell], True)
            vault.tally([unions], True)

    return work


def steps_of(key: str, column: Column) -> list[Steps]:
    """Levels of a measure."""
    return [] if column.bounds is None else [Steps(key, (Fraction(0), Fraction(3), Fraction(10)))]


def stored(folder: Path, kind: Kind, values: Sequence[Any], more: dict[str, Any]) -> str:
    folder.mkdir()
    frame = pa.table({"c": arrow(kind, values, True), **more})
    parquet.write_table(frame, folder / "t.parquet")
    return str(folder / "t.parquet")


WRITTEN = {name: kind for name, kind in KINDS.items() if kind.arrow is not None}


@pytest.mark.parametrize("kind", [name for name in WRITTEN if name not in ("seconds",)])
def test_values_choose_no_way(kind: str, tmp_path: Path) -> None:
    """Of whatever type: extremes, missing ones, and those that are in no domain."""
    rng, found = random.Random(kind), WRITTEN[kind]
    pools = [[each] for each in rng.sample(list(found.values), min(2, len(found.values)))]
    pools += [list(found.values)]
    sources = []
    for i, pool in enumerate(pools):
        values = [rng.choice(pool) for _ in range(70)]
        seen = pa.array([rng.choice([None, 0, 3, 9, 12]) for _ in values], pa.int64())
        measured = arrow(found, rng.sample(values, len(values)), True)
        sources.append(stored(tmp_path / str(i), found, values, {"seen": seen, "m": measured}))
    measures = [each for each in found.columns.values() if each.bounds]
    others = [each for each in found.columns.values() if not each.bounds]
    measure = {"m": replace(rng.choice(measures), name="m")} if measures else {}
    for column in rng.sample(others, min(2, len(others))):
        traces = []
        for source in sources:
            table = Table("t", source, Unit(), {"c": column, "seen": SEEN, **measure})
            ask(table)()  # what is kept is kept now
            traces.append(trace(ask(table)))
        for each in traces[1:]:
            same(each, traces[0])


def units_of(rng: random.Random, sizes: Sequence[int]) -> list[int | None]:
    """Ids of units with so many rows each: near, far, random, extreme, in some order."""
    way = rng.choice(["near", "far", "high", "random", "extreme", "crafted"])
    count = len(sizes)
    ids: list[int | None] = list(range(1, count + 1))
    if way == "far":
        ids[rng.randrange(count)] = rng.choice([10**15, -(10**15), 2**39, 2**32])
    elif way == "high":
        ids = [10**12 + i for i in range(count)]
        ids[rng.randrange(count - 3)] = None
    elif way == "random":
        ids = list(rng.sample(range(2**40), count))
    elif way == "extreme":
        ids[:2] = [2**63 - 1, -(2**63)]
    elif way == "crafted":  # the same last bits
        ids = [(i << 50) + 7 for i in range(count)]
    rows = [each for each, size in zip(ids, sizes, strict=True) for _ in range(size)]
    if rng.random() < 0.7:
        rng.shuffle(rows)
    return rows


NAMES: dict[str, tuple[Any, Callable[[int], object]]] = {
    "integers": (pa.int64(), int),
    "doubles": (pa.float64(), float),
    "texts": (pa.string(), lambda each: f"{each % 2**64:016x}"),
}
"""Types that units are stored as; texts are of one length."""


@pytest.mark.parametrize("part", range(TRACES))
def test_units_choose_no_way(part: int, tmp_path: Path) -> None:
    """Sizes lie on both sides of powers of two, of rows and of units.

    Rows come in any order, are all alike or not, and all, some or none of them are in the view.
    """
    rng = random.Random(part)
    edge = 1 << rng.choice([3, 6, 8, 11])
    sizes = [1] * (edge + rng.choice([-1, 0, 1]) - 3) + [2, 3, rng.choice([4, 9, 700])]
    stored_as, named = NAMES[[*NAMES][part % len(NAMES)]]
    kind, traces, lots = KINDS["big"], list[list[Step]](), list[set[Turn]]()
    columns = {"c": kind.columns["range"], "seen": SEEN}
    columns |= {"m": replace(kind.columns["bounds null"], name="m")} if part % 2 else {}
    pools: list[list[int | None]] = [[None, 0, 3, 9, 12], [3], [12]]
    for i, seen in enumerate(rng.sample(pools, len(pools))):
        rows = units_of(rng, sizes)
        if pa.types.is_string(stored_as):  # one that is missing is a text less
            rows = [0 if each is None else each for each in rows]
        values = [rng.choice(kind.values) for _ in rows] if rng.random() < 0.7 else [1] * len(rows)
        more = {
            "seen": pa.array([rng.choice(seen) for _ in rows], pa.int64()),
            "who": pa.array([each if each is None else named(each) for each in rows], stored_as),
            "m": arrow(kind, values, True),
        }
        source = stored(tmp_path / str(i), kind, values, more)
        table = Table("t", source, Unit("who", 2), columns)
        ask(table)()
        draws = pa.types.is_string(stored_as) or "m" in columns  # by how long its texts are
        found = trace(ask(table))
        lots.append(ways(found))
        traces.append(no_lots(found) if draws else found)
    for each in traces[1:]:
        same(each, traces[0])
    assert all(each ^ lots[0] == set() for each in lots)


def test_one_person_with_many_rows_takes_no_way_of_their_own(tmp_path: Path) -> None:
    """More rows take longer, and nothing else; up to 512 digests take as long one by one."""
    found = []
    for i, most in enumerate((3, 20_000)):
        rows = [*range(6000), *[7] * most, 8, 8, 8]
        more = {"who": pa.array(rows, pa.int64()), "seen": pa.array([3] * len(rows), pa.int64())}
        source = stored(tmp_path / str(i), KINDS["big"], [1] * len(rows), more)
        table = Table("t", source, Unit("who", 2), {"seen": SEEN})
        ask(table)()
        found.append(ways(trace(ask(table))))
        found[-1] = {each for each in found[-1] if not each[0].startswith(DIGESTS)}
    assert found[0] == found[1]


def differ(one: Sequence[Any], two: Sequence[Any]) -> None:
    """Say where two ways part."""
    for step, other in zip(one, two, strict=False):
        assert step == other
    assert len(one) == len(two)


ONE_KEY: dict[str, Callable[[Row], Row]] = {
    "visits": lambda row: (row[0], 3, *row[2:]),
    "lines": lambda row: (3, *row[1:]),
    "patients": lambda row: row,
}
"""Everything of one visit, which everybody makes."""


def tables_of(seed: int) -> list[Data]:
    """Tables of a clinic: all keys single, as they come, repeated, of one person, dangling."""
    rng = random.Random(seed)
    plain, hostile = draw_data(rng, hostile=False), draw_data(rng, people=rng.choice([2, 6]))
    repeated = {name: list(map(ONE_KEY[name], rows)) for name, rows in hostile.items()}
    alone = {
        name: [(1, *row[1:]) if name != "lines" else row for row in rows]
        for name, rows in repeated.items()
    }
    dangling = {**plain, "lines": [(9, *row[1:]) for row in plain["lines"]]}
    return [plain, hostile, repeated, alone, dangling]


MOST_PAIRS = 10_000
"""Rows that there is room for, more than any relation makes here."""


def work_out(data: Data, relation: UnitLocal) -> object:
    room = SpillRoom(rows=MOST_PAIRS)
    return rows_of(table_of(relation, 3), relation, Clinic.of(data).stock, room)


@pytest.mark.parametrize("part", range(max(2, TRACES // 8)))
def test_keys_choose_no_way_through_relations(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins, references, groups and windows: unit by unit, whatever is repeated and missing."""
    rng = random.Random(part)
    monkeypatch.setattr(unit_joins, "MOST_OF_UNIT", 20)
    relations = [*SOUND.values()] if part == 0 else [draw_relation(rng, 3) for _ in range(12)]
    clinics = tables_of(part)
    for place, relation in enumerate(relations):
        beside = clinics[1:] if EVERY else [clinics[1 + (place + k) % 4] for k in (0, 2)]
        works = [partial(work_out, data, relation) for data in (clinics[0], *beside)]
        works[0]()  # what is kept is kept now
        found = [turns(no_lots(trace(work))) for work in works]
        for each in found[1:]:
            differ(each, found[0])


EACH_KEY = (
    "is_key",
    "_in_order.<locals>",
    "_read_key",
    "_numbers.<locals>",
    "_number.<locals>",
    "_that_count.<locals>",
)
"""Steps that are done with one key after the other."""


@pytest.mark.parametrize("most", [1, 3])
def test_keys_that_nobody_listed_choose_no_way(most: int, tmp_path: Path) -> None:
    """Whatever keys there are, and whoever has them: they are read, cut short and counted."""
    rng, sought, found = random.Random(most), Sought("keys", most), []
    column = Column("c", "text", sought=sought)
    what = ("t", "c", sought, GAUSSIAN.name, Fraction(1), Fraction(1, 10**6))
    asked = Discovery(*what)
    counted = [
        CountedDiscovery(*what, Fraction(1), most, True, "other", 10),
        CountedDiscovery(*what, Fraction(0), most + 1, True, "other", 10),
        CountedDiscovery(*what, Fraction(1), most, False, "other", 10),
    ]
    pools: list[list[str | None]] = [["a"]]
    pools += [[f"k{i}" for i in range(90)], ["", "a", "\n", "x" * 2000, None, "b", "c", "d"]]
    for i, pool in enumerate([*pools, ["\n", None], pools[2]]):
        rows = (
            [i // 4 for i in range(120)] if i < 4 else [rng.choice([1, None]) for _ in range(120)]
        )
        frame = pa.table(
            {
                "c": pa.array([rng.choice(pool) for _ in rows], pa.string()),
                "who": pa.array(rows, pa.int64()),
            }
        )
        parquet.write_table(frame, tmp_path / f"{i}.parquet")
        table = Table("t", str(tmp_path / f"{i}.parquet"), Unit("who", 200), {"c": column})

        def work(table: Table = table) -> None:
            pairs = TableVault(table, b"salt" * 8).pairs("c", sought)
            _choose(asked, pairs)
            for each in counted:
                _count(each, pairs)

        work()
        ran = ways(no_lots(trace(work)))
        found.append({each for each in ran if not each[0].startswith(EACH_KEY)})
    for each in found:
        assert each ^ found[0] == set()


def test_combinations_choose_no_way(tmp_path: Path) -> None:
    """Keys of two columns together: all listed, some, or none."""
    parts = [
        Column("c", "text", other="other", sought=Sought("keys", 1)),
        Column("d", "integer", sought=Sought("keys", 1)),
    ]
    listed = tuple(join_key(each) for each in (("a", 1), ("b", 7), ("a", 7), ("other", 1)))
    joint = replace(joint_column(parts), domain=Values(listed))
    rng, traces = random.Random(1), []
    pools: list[tuple[list[str | None], list[int | None]]] = [
        (["a"], [1, 7]),
        (["x", None], [2**40, -3]),
        (["a", "b", "\U0001f600"], [None, 1, 2, 7]),
    ]
    for i, (texts, numbers) in enumerate(pools):
        values = [rng.choice(texts) for _ in range(70)]
        more = {
            "d": pa.array([rng.choice(numbers) for _ in values], pa.int64()),
            "seen": pa.array([rng.choice([None, 0, 3, 12]) for _ in values], pa.int64()),
            "who": pa.array([each // 4 for each in range(70)], pa.int64()),
        }
        parquet.write_table(
            pa.table({"c": pa.array(values, pa.string()), **more}), tmp_path / f"{i}.parquet"
        )
        columns = {"c": parts[0], "d": parts[1], joint.name.casefold(): joint, "seen": SEEN}
        table = Table("t", str(tmp_path / f"{i}.parquet"), Unit("who", 2), columns)
        ask(table)()
        traces.append(trace(ask(table)))
    for each in traces[1:]:
        same(each, traces[0])


ROWS = {
    "plain": ["3,a", "12,b", ",a"],
    "quoted": ['"3","a"', '"9",b', '3,"a,b"', '3,"c ""d"""', '3,"a"\r'],
    "wide": ["3,\xe9", '"3",\U0001f600'],
}
"""Rows of a CSV file."""
NONE = {
    "blank": [""],
    "spoilt": ['"3,a', '3,"a"b', '"3"",a', '"', '3,a"', "3,a,4", "3", "\r", "3\r,a"],
    "foreign": ["3,\udcff", "\udc80,a"],
}
"""Lines that are none."""


def test_lines_choose_no_way(tmp_path: Path) -> None:
    """Quotes, delimiters, line ends and bytes that are not UTF-8 take the steps of plain ones."""
    rng, found = random.Random(1), []
    for i, (rows, others) in enumerate(itertools.product(ROWS.values(), NONE.values())):
        lines = [rng.choice(rows) for _ in range(40)] + [rng.choice(others) for _ in range(20)]
        text = "\n".join(["seen,c", *rng.sample(lines, len(lines))])
        path = tmp_path / f"{i}.csv"
        path.write_bytes(text.encode(errors="surrogateescape"))
        table = Table("t", str(path), Unit(), {"seen": SEEN, "c": WORDS["text"]})
        ask(table)()
        found.append(ways(trace(ask(table), (*APART, "prefetch.py"))))
    for each in found[1:]:
        assert each ^ found[0] == set()


WHOLE = ("array", "cells")
"""Arrays that are handed over as a whole, to be looked at in some places."""
EXTRA, FEW = 1.05, 1000
"""The part by which a function may do more for a row and a unit more: lots are drawn."""


def amounts(steps: Sequence[Step]) -> Counter[tuple[str, str]]:
    """The length of all arrays together that each function works on."""
    found = Counter[tuple[str, str]]()
    for name, arrays, _, file in steps:
        found[name, file] += sum(math.prod(shape) for one, _, shape in arrays if one not in WHOLE)
    return found


BLOCKS = (
    *("codes.digests:ROWS", "codes.row_texts:ROWS", "codes.tally:CHUNK", "unit.unit_counts:CHUNK"),
    *("codes.distinct_integers:BLOCK", "codes.distinct_integers:SORTED"),
    *("files.duckdb:ROWS", "unit.key_counts:BLOCK", "unit.shared_units:BATCH"),
    *(f"unit.unit_numbers:{name}" for name in ("BATCH", "CONTENTS", "GATHERED", "STRIDE")),
)
"""Rows that are looked at together: one more of these blocks is more work of the same kind. Here
they are the whole of each size, or parts of it, as many as of the next one."""
BITS, SHARES = (6, 9, 10, 11, 12, 13, 15, 16, 18, 20), (16, 512)
"""Sizes, and cells: with the products of both they are the powers of two that the code has."""
OTHERS = ("timestamps.py", "prefetch.py")
"""Functions that run in threads."""
OWNERS = {"alone": "i", "crowded": "least(i // 4, {size} // 4 - 1)", "text": "'p' || i"}
"""Units of rows; the first alone of many rows."""


@pytest.mark.parametrize("size", [1 << bits for bits in BITS])
def test_one_more_chooses_no_way(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row and a unit more than every power of two; and so of rows times cells.

    Each function does as much for both, but for as little as that.
    """
    column = Column("c", "integer", IntegerRange(0, SHARES[-1] - 1))
    cells = [Cells(("c",), (np.arange(column.size) % share,)) for share in SHARES]
    for name, who in [*OWNERS.items()][: 3 - (size > 1 << 13) - (size > 1 << 16)]:
        for place in BLOCKS:
            module, _, block = place.partition(":")
            rows = size + 1 if name == "alone" else size // 4 + 1
            monkeypatch.setattr(f"dpsql.privacy.vault.{module}.{block}", rows)
        found = []
        for count in (3, size, size + 1):
            path = tmp_path / f"{name}{count}.parquet"
            with duckdb.connect() as scribe:
                shown = f"i % {column.size} AS c, {who.format(size=size)} AS who"
                scribe.execute(f"COPY (SELECT {shown} FROM range({count}) r(i)) TO '{path}'")
            table = Table("t", str(path), Unit("who", 2), {"c": column}, room=2 << BITS[-1])
            vault = TableVault(table, b"salt" * 8)

            def work(vault: TableVault = vault) -> None:
                vault.load()
                for each in cells:
                    vault.tally([each])
                    vault.tally([each], True)
                    vault.mark([each])

            found.append(no_lots(trace(work, OTHERS)))
        plain = [[step for step in each if step[-1] != APART[0]] for each in found]
        assert ways(plain[1]) ^ ways(plain[2]) == set()  # what is kept is kept from the first on
        less, more = map(amounts, found[1:])
        assert {each for each in more if more[each] > EXTRA * less[each] + FEW} == set()


NO_SIZES = {
    *("spill.MOST_DERIVED", "spill.MOST_VIEWS"),  # tables and views of one session
    *("spill.SOUGHT", "spill.MARKED"),  # bytes
    *("digests.BLOCK", "digests.FEW", "byte_texts.LONG", "unit_numbers.KEY"),  # of one text or key
    *("row_texts.TOGETHER", "duckdb.COLUMNS"),  # digests of one draw, columns of a table
}
"""Powers of two that no number of rows, units or cells is compared with."""


def powers_of_two(folder: Path) -> dict[str, int]:
    """Constants of modules that are powers of two and could be numbers of rows: what they are."""
    found: dict[str, int] = {}
    for path in [*folder.glob("codes/*.py"), *folder.glob("unit/*.py"), folder / "files/duckdb.py"]:
        module = "dpsql." + ".".join(path.with_suffix("").parts[path.parts.index("privacy") :])
        for name, value in vars(importlib.import_module(module)).items():
            is_own = re.search(rf"^({name} =|[A-Z, ]*\b{name}\b[A-Z, ]* =)", path.read_text(), re.M)
            is_size = type(value) is int and 16 <= value <= 1 << 24 and value & value - 1 == 0
            if is_own and is_size:
                found[f"{path.stem}.{name}"] = value
    return found


def test_every_power_of_two_of_the_code_is_a_size_of_the_tests() -> None:
    tried = {1 << bits for bits in BITS}
    tried |= {size * share for size in tried for share in SHARES}
    found = powers_of_two(Path(dpsql.privacy.__file__).parent / "vault")
    patched = {place.partition(".")[2].replace(":", ".") for place in BLOCKS}
    left = {name for name, size in found.items() if size not in tried} - patched - NO_SIZES
    assert left == set()
    assert found.keys() >= NO_SIZES


def people_of(count: int) -> Data:
    """Rows of so many people: a visit of each, and a line of it, by way of the visit."""
    numbers = range(1, count + 1)
    return {
        "patients": [(i, "fm"[i % 2], i % 5) for i in numbers],
        "visits": [(i, i, "abc"[i % 3], i % 10, i % 7) for i in numbers],
        "lines": [(i, "xy"[i % 2], i % 8) for i in numbers],
    }


@pytest.mark.parametrize("size", [1 << bits for bits in BITS if bits <= 10])
def test_one_more_chooses_no_way_through_relations(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person more, with rows in each table, than a power of two: joins, references, windows."""
    for place in BLOCKS:
        module, _, block = place.partition(":")
        monkeypatch.setattr(f"dpsql.privacy.vault.{module}.{block}", size + 1)
    relations = [*SOUND.values()]
    for relation in relations[BITS.index(size.bit_length() - 1) :: 3 if EVERY else 6]:
        works = [partial(work_out, people_of(count), relation) for count in (3, size, size + 1)]
        found = [ways(no_lots(trace(work))) for work in works]
        assert found[1] ^ found[2] == set()


HASHED = {"unique", "isin", "setdiff1d", "intersect1d", "union1d", "setxor1d"}
"""Functions of NumPy that find values by a hash of them, unless places are asked for too: how many
are different, and which, decides how long they take."""


def hashed(source: str) -> list[int]:
    """Lines of calls that find values by a hash of them."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in HASHED
        and not any((each.arg or "").startswith("return_") for each in node.keywords)
    ]


def test_no_step_finds_values_by_a_hash_of_its_librarys() -> None:
    """A million different numbers took 1.6 s, and as many that are one number .05 s."""
    folder = Path(dpsql.privacy.__file__).parent
    paths = [*(folder / "vault").rglob("*.py"), folder / "doors" / "find_keys.py"]
    assert hashed("np.unique(a)\nnp.unique(a, return_index=True)\nnp.isin(a, b)") == [1, 3]
    assert {
        f"{each.name}": hashed(each.read_text()) for each in paths if hashed(each.read_text())
    } == {}
