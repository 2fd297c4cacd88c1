"""Tables of one unit in files: keys of every type, units that leave all of them, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsql.catalog.read import read_catalog
from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.errors import DataUnavailable
from dpsql.privacy.doors.check_figures import Figures
from dpsql.privacy.vault.vault import TableVault
from dpsql.relation.derive import derive
from dpsql.relation.row_view import RowView
from dpsql.relation.unit_local import JoinRows, Scan
from tests.oracle.test_private_joins import CATALOG, LINES, differences, star
from tests.support.seam import zero_noise
from tests.support.tables import open_tables, write_tables

SALT = b"0123456789abcdef" * 2
TYPES = {
    "VARCHAR": "'k' || {} || 'é'",
    "DOUBLE": "{} + 0.5",
    "UUID": "md5('' || {})::UUID",
    "DATE": "DATE '2020-01-01' + {}::INTEGER",
}
NUMBERS = {"UBIGINT": "{}", "DECIMAL(12,2)": "{}"}
KEYS = {"patients": ["patient_id"], "visits": ["visit_id", "patient_id"], "lines": ["visit_id"]}
KEYS |= {"bills": ["visit", "who"], "wards": []}


KEY = (("visit_id", "visit_id"),)


def retyped(folder: Path, seed: int, kind: str) -> dict[str, str]:
    """The tables of a star with all keys in another type."""
    with write_tables(folder / "plain", CATALOG, star(seed)) as database:
        tables: dict[str, str] = {}
        for name, keys in KEYS.items():
            listed = ", ".join(
                f"({(TYPES | NUMBERS)[kind].format(key)})::{kind} AS {key}" for key in keys
            )
            star_of = f"SELECT * REPLACE ({listed})" if keys else "SELECT *"
            path = folder / f"{name}-{kind[:4]}.parquet"
            database.execute(f"COPY ({star_of} FROM {name}) TO '{path}' (FORMAT parquet)")
            tables[name] = f"SELECT * FROM '{path}'"
    return tables


@pytest.mark.parametrize("kind", TYPES)
def test_keys_of_every_type(tmp_path: Path, kind: str) -> None:
    with open_tables(tmp_path / kind, CATALOG, retyped(tmp_path, 7, kind)) as world, zero_noise():
        for sql in LINES[:20:3]:
            assert differences(world, sql) == [], sql


def test_keys_of_different_types_are_refused(tmp_path: Path) -> None:
    tables = dict(star(1))
    tables["patients"] = "SELECT '' || i AS patient_id, 'f' AS sex, 1 AS age FROM range(9) r(i)"
    with open_tables(tmp_path, CATALOG, tables) as (connection, _):
        before = connection.budget
        with pytest.raises(DataUnavailable, match="stored as") as caught:
            connection.execute("SELECT COUNT(*) FROM visits JOIN patients USING (patient_id)")
        assert caught.value.code == "E_POLICY"
        assert connection.budget == before


def test_a_unit_leaves_all_files(tmp_path: Path) -> None:
    relations = {
        "lookup": JoinRows(Scan("lines"), Scan("visits"), "v", KEY, one=True),
        "pairs": JoinRows(Scan("visits"), Scan("bills"), "b"),
    }
    for name, relation in relations.items():
        counts: dict[int | None, Any] = {}
        for gone in (None, 3, 7):
            folder = tmp_path / f"{name}{gone}"
            with write_tables(folder, CATALOG, star(8)) as database:
                lost = "SELECT visit_id FROM visits WHERE patient_id"
                database.execute(f"DELETE FROM lines WHERE visit_id IN ({lost} = {gone or -1})")
                database.execute(f"DELETE FROM visits WHERE patient_id = {gone or -1}")
                database.execute(f"DELETE FROM bills WHERE who = {gone or -1}")
                for table in ("lines", "visits", "bills"):
                    database.execute(f"COPY {table} TO '{folder / table}.parquet'")
            made = derive(read_catalog(folder / "t.toml"), relation, name, 4)
            columns = [key for key, column in made.columns.items() if column.domain]
            vault = TableVault(made, SALT).within(RowView(tuple(columns)))
            sizes = [np.arange(made.columns[key].size) for key in columns]
            counts[gone] = vault.count(columns, sizes)
        for gone in (3, 7):
            assert 1 <= np.abs(counts[None] - counts[gone]).sum() <= 4


def test_errors_are_those_of_a_table_joined_beforehand(tmp_path: Path) -> None:
    flat = """
[table.flat]
source = "flat.parquet"
privacy_unit = { column = "patient_id", max_rows = 30 }
[table.flat.column]
ward = { type = "text", domain = ["a", "b", "c"] }
cost = { type = "integer", bounds = [0, 100] }
sex = { type = "text", domain = ["f", "m"], null = true }
"""
    tables = dict(star(9))
    tables["flat"] = "SELECT * FROM visits JOIN patients USING (patient_id)"
    with open_tables(tmp_path, CATALOG + flat, tables) as (connection, _):
        asked = "SELECT sex, ward, COUNT(*) AS n, SUM(cost) AS s FROM {} GROUP BY ALL"
        joined = connection.execute(asked.format("visits JOIN patients USING (patient_id)")).result
        before = connection.execute(asked.format("flat")).result
        assert joined.stddev == before.stddev


def test_check_tells_of_rows_that_belong_by_reference(tmp_path: Path) -> None:
    with write_tables(tmp_path, CATALOG, star(2)):
        found = list(examine(chosen_tables(tmp_path / "t.toml", None)))
    figures = {each.table: each for each in found if isinstance(each, Figures)}
    assert figures["lines"].rows == 200
    assert figures["visits"].units == 25


def test_keys_of_wider_integers_are_those_of_narrower_ones(tmp_path: Path) -> None:
    tables = retyped(tmp_path, 7, "UBIGINT")
    for name, wide in (("lines", "BIGINT"), ("patients", "BIGINT")):
        listed = ", ".join(f"{key}::{wide} AS {key}" for key in KEYS[name])
        tables[name] = tables[name].replace("*", f"* REPLACE ({listed})", 1)
    with open_tables(tmp_path / "wide", CATALOG, tables) as world, zero_noise():
        for sql in LINES[:20:3]:
            assert differences(world, sql) == [], sql


def test_decimals_of_other_places_are_other_keys(tmp_path: Path) -> None:
    tables = retyped(tmp_path, 7, "DECIMAL(12,2)")
    tables["patients"] = tables["patients"].replace(
        "*", "* REPLACE (patient_id::DECIMAL(12,0) AS patient_id)", 1
    )
    with open_tables(tmp_path / "other", CATALOG, tables) as (connection, _):
        with pytest.raises(DataUnavailable, match="decimal with 2 places") as caught:
            connection.execute("SELECT COUNT(*) FROM visits JOIN patients USING (patient_id)")
        assert caught.value.code == "E_POLICY"
