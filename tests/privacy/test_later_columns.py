"""Columns that came later: where an older file of a version lacks one, its rows are without it."""

from __future__ import annotations

import datetime as dt
import random
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpsql.catalog.read import read_catalog
from dpsql.dbapi.drafting import draft_catalog
from tests.privacy.logged_tables import same_as_plain
from tests.support.effort import effort, first_seed, one_in

LATER: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "n": (pa.int32(), [0, 1, 7, None]),
    "t": (pa.string(), ["a", "b", "c", None]),
    "d": (pa.date32(), [dt.date(2024, 1, 5), dt.date(2024, 3, 1), None]),
    "x": (pa.float32(), [0.5, 2.25, -1.0, None]),
    "b": (pa.bool_(), [True, False, None]),
    "at": (pa.timestamp("us"), [dt.datetime(2024, 1, 5, 3), dt.datetime(2024, 2, 1), None]),
}
"""Columns that are added, one by one, and their values."""
WIDER = {"n": pa.int64(), "x": pa.float64()}
"""Types that these columns have in files of a later day, where the format allows it."""
CATALOG = """
[budget]
epsilon = 1
[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
ward = { type = "text", domain = ["A", "B"], other = true, null = true }
n = { type = "integer", domain = [0, 9], null = true }
t = { type = "text", domain = ["a", "b"], other = true, null = true }
d = { type = "date", domain = ["2024-01-01", "2024-03-31"], by = "month", null = true }
x = { type = "number", domain = [0, 4], bins = 4, null = true }
b = { type = "boolean", null = true }
at = { type = "timestamp", domain = ["2024-01-01", "2024-03-31"], by = "month", null = true }
"""
BASE = {"who": pa.string(), "ward": pa.string()}


def drawn(chosen: random.Random, types: dict[str, pa.DataType]) -> pa.Table:
    """Draw rows of some columns."""
    columns = {
        "who": [f"p{chosen.randrange(5)}" for _ in range(9)],
        "ward": [chosen.choice(["A", "B", "C"]) for _ in range(9)],
        **{name: [chosen.choice(LATER[name][1]) for _ in range(9)] for name in types.keys() - BASE},
    }
    return pa.table({name: pa.array(columns[name], kind) for name, kind in types.items()})


def whole(parts: Sequence[pa.Table]) -> pa.Table:
    """Rows of all files, with NULL where a column came later."""
    found = pa.concat_tables(parts, promote_options="permissive")
    types = {name: kind for name, (kind, _) in LATER.items() if name not in found.column_names}
    for name, kind in types.items():
        found = found.append_column(name, pa.nulls(len(found), kind))
    return found


def in_delta(here: Path, chosen: random.Random) -> tuple[Path, dict[int, list[pa.Table]]]:
    """Write a Delta table, whose columns come one by one and are in no, some or all files."""
    deltalake = pytest.importorskip("deltalake")
    types, parts = dict(BASE), list[pa.Table]()
    found: dict[int, list[pa.Table]] = {}
    by = chosen.choice([None, ["ward"]])
    names = chosen.sample([*LATER], len(LATER))
    for i, name in enumerate(["", *names]):
        types |= {name: LATER[name][0]} if name else {}
        shown = dict(chosen.sample([*types.items()], len(types))) if i % 2 else types
        parts = [*parts, drawn(chosen, shown)]
        merge: dict[str, Any] = {"mode": "append", "schema_mode": "merge"} if i else {}
        deltalake.write_deltalake(here / "t", parts[-1], partition_by=by, **merge)
        found[deltalake.DeltaTable(here / "t").version()] = parts
    fields = [deltalake.Field("of_none", deltalake.schema.PrimitiveType("integer"))]
    deltalake.DeltaTable(here / "t").alter.add_columns(fields)
    found[deltalake.DeltaTable(here / "t").version()] = parts
    return here / "t", found


def in_iceberg(here: Path, chosen: random.Random) -> tuple[Path, dict[int, list[pa.Table]]]:
    """Write an Iceberg table in the same way, of which types are widened as well."""
    pytest.importorskip("pyiceberg")
    from pyiceberg.types import DoubleType, LongType

    from tests.privacy.iceberg_tables import create

    wide: dict[str, Any] = {"n": LongType(), "x": DoubleType()}
    types, parts = dict(BASE), list[pa.Table]()
    found: dict[int, list[pa.Table]] = {}
    table = create(here, pa.schema([*types.items()]))
    for name in ["", *chosen.sample([*LATER], len(LATER)), *WIDER]:
        with table.update_schema() as schema:
            if name in types:
                types[name] = WIDER[name]
                schema.update_column(name, wide[name])
            elif name:
                types[name] = LATER[name][0]
                schema.union_by_name(pa.schema([(name, types[name])]))
        parts = [*parts, drawn(chosen, types)]
        table.append(parts[-1])
        found[int(table.current_snapshot().snapshot_id)] = parts
    with table.update_schema() as schema:
        schema.union_by_name(pa.schema([("of_none", pa.int32())]))
    return here / "db" / "t", found


WRITERS = {"delta": in_delta, "iceberg": in_iceberg}


@pytest.mark.parametrize("form", WRITERS)
def test_columns_that_came_later_are_missing_before(form: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CATALOG)
    columns = dict(read_catalog(tmp_path / "c.toml").tables["t"].columns)
    for seed in range(first_seed(1), first_seed(1) + effort(1)):
        chosen, here = random.Random(seed), tmp_path / str(seed)
        here.mkdir()
        folder, versions = WRITERS[form](here, chosen)
        for number, parts in [*versions.items()][:: one_in(3)]:
            known = {n: c for n, c in columns.items() if n in whole(parts).column_names}
            there = {name for part in parts for name in part.column_names}
            shown = {name: each for name, each in known.items() if name in there}
            same_as_plain(folder, form, number, whole(parts), shown)
        drafted = tomllib.loads(draft_catalog(str(folder)))["table"]["t"]
        kinds = {name: each["type"] for name, each in drafted["column"].items()}
        assert kinds["of_none" if form == "delta" else "n"] == "integer"
