"""Hostile data: handled by the catalog's rule, with no visible trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.dbapi.connection import inspect
from dpsql.privacy.vault.files import refused_types
from dpsql.privacy.vault.vault import TableVault
from tests.hostile.conftest import own_copy
from tests.support.seam import zero_noise
from tests.support.world import ROWS, refusal, watching

CATALOG = """
[budget]
epsilon = 100

[table.t]
source = "t.{kind}"
privacy_unit = {unit}

[table.t.column]
"""
ROW = '"row"'


def write_catalog(folder: Path, columns: str, kind: str = "parquet", unit: str = ROW) -> Path:
    path = folder / "t.toml"
    text = CATALOG.replace("{kind}", kind).replace("{unit}", unit)
    path.write_text(text + columns, encoding="utf-8")
    return path


def answers(catalog: Path, sql: str) -> list[tuple[Any, ...]]:
    with zero_noise(), dpsql.connect(catalog, epsilon=1) as connection:
        result = connection.execute(sql).result
        assert result.notes == result.standing
        return list(result.rows)


def edit(path: Path, sql: str) -> None:
    """Rewrite a Parquet file after running SQL on its rows as table t."""
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE t AS FROM '{path}'")
        database.execute(sql)
        database.execute(f"COPY t TO '{path}'")


def test_values_outside_the_domain(world: Path) -> None:
    """B146: the other cell if declared, else not counted where the column is mentioned."""
    country = "SELECT COUNT(*) FROM adult WHERE native_country = 'other'"
    total = "SELECT COUNT(*) FROM adult"
    own_copy(world, "adult.parquet")
    assert answers(world, country) == [(0.0,)]
    edit(
        world.parent / "adult.parquet",
        "INSERT INTO t SELECT * REPLACE ('Atlantis' AS native_country) FROM t LIMIT 3;"
        "ALTER TABLE t ALTER age TYPE HUGEINT;"
        "INSERT INTO t SELECT * EXCLUDE (v) REPLACE (v AS age) FROM (FROM t LIMIT 1),"
        " (VALUES (-5), (10::HUGEINT ** 30), (NULL)) x(v)",
    )
    assert answers(world, country) == [(3.0,)]
    assert answers(world, total) == [(ROWS + 6.0,)]
    assert answers(world, f"{total} WHERE age IS NOT NULL") == [(ROWS + 3.0,)]


def test_rows_without_an_owner_and_owners_with_very_many(world: Path) -> None:
    """B148, B149."""
    own_copy(world, "visits.parquet")
    total = "SELECT COUNT(*) FROM visits"
    (before,) = answers(world, total)[0]
    edit(
        world.parent / "visits.parquet",
        "INSERT INTO t SELECT NULL, 'A', 1 FROM range(50);"
        "INSERT INTO t SELECT 'busy', 'A', i FROM range(1000000) r(i)",
    )
    assert answers(world, total) == [(before + 5,)]


def test_more_rows_than_any_bound(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B151: wrap-around is no error."""

    def huge(self: TableVault, resolutions: list[Any], units: bool = False) -> Any:
        return np.full(tuple(each.size for each in resolutions), 2**62, dtype=np.int64)

    monkeypatch.setattr(TableVault, "tally", huge)
    with dpsql.connect(world, epsilon=1) as connection:
        for sql in (
            "SELECT COUNT(*) FROM adult",
            "SELECT sex, COUNT(*) FROM adult GROUP BY sex",
            "SELECT COUNT(*) AS a FROM adult WHERE age < 30 OR age > 40",
        ):
            assert connection.execute(sql).result.rows


def test_broken_csv_rows_leave_no_trace(tmp_path: Path) -> None:
    """B152."""
    clean = b"a,b\n1,x\n2,y\n"
    column = 'a = { type = "integer", domain = [0, 9] }\n'
    catalog = write_catalog(tmp_path, column, "csv")
    sql = "SELECT a, COUNT(*) FROM t GROUP BY a"
    (tmp_path / "t.csv").write_bytes(clean)
    good = answers(catalog, sql)
    (tmp_path / "t.csv").write_bytes(clean + b"3,\xff\xfe\n4\n5,x,y,z\nnonsense,q\n,\n")
    bad = answers(catalog, sql)
    assert [row[0] for row in bad] == [row[0] for row in good]
    assert [row[1] for row in bad][1:3] == [1.0, 1.0]
    assert sum(row[1] for row in bad) <= 5


def test_a_changed_column_type_is_the_curators(world: Path) -> None:
    """B154: at load, before any charge."""
    own_copy(world, "adult.parquet")
    edit(world.parent / "adult.parquet", "ALTER TABLE t ALTER age TYPE VARCHAR")
    with dpsql.connect(world, epsilon=1) as connection:
        error = refusal(lambda: connection.execute("SELECT COUNT(*) FROM adult"))
        assert error.code == "E_POLICY"
        assert connection.budget.entries == 0


def test_a_missing_or_damaged_source_charges_nothing(world: Path) -> None:
    path = own_copy(world, "adult.parquet")
    with dpsql.connect(world, epsilon=1) as connection:
        for content in (None, b"", b"PAR1 not a table PAR1"):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            else:
                path.symlink_to("nowhere")
            error = refusal(lambda: connection.execute("SELECT COUNT(*) FROM adult"))
            assert error.code == "E_DATA"
        assert connection.budget.entries == 0


def test_a_source_that_changes_while_connected_charges_nothing(world: Path) -> None:
    own_copy(world, "adult.parquet")
    with dpsql.connect(world, epsilon=1) as connection:
        connection.execute("SELECT COUNT(*) FROM adult")
        edit(world.parent / "adult.parquet", "DELETE FROM t WHERE age > 40")
        error = refusal(lambda: connection.execute("SELECT sex, COUNT(*) FROM adult GROUP BY sex"))
        assert error.code == "E_DATA"
        assert connection.budget.entries == 1


def test_infinite_dates_are_no_dates(tmp_path: Path) -> None:
    """B182."""
    with duckdb.connect(str(tmp_path / "t.duckdb")) as database:
        database.execute("CREATE TABLE t (d DATE)")
        database.execute(
            "INSERT INTO t VALUES ('infinity'), ('-infinity'), (NULL), ('2024-01-15'), "
            "('5877642-06-25 (BC)'), ('294247-01-10')"
        )
    line = 'd = { type = "date", domain = ["2024-01-01", "2024-02-29"], by = "month" }\n'
    catalog = write_catalog(tmp_path, line, "duckdb")
    rows = answers(catalog, "SELECT d, COUNT(*) FROM t GROUP BY d")
    assert [row[1] for row in rows] == [1.0, 0.0]


@pytest.mark.parametrize("moment", [10**7, 2**62, -(2**63)])
def test_a_time_in_milliseconds_that_no_clock_shows_is_a_row_outside(
    moment: int, tmp_path: Path
) -> None:
    days = pa.array([0, 5, moment, 86_400_000], pa.int64()).cast(pa.timestamp("ms"))
    pq.write_table(pa.table({"day": days}), tmp_path / "t.parquet", version="1.0")
    day = 'day = { type = "date", domain = ["1970-01-01", "1970-01-02"] }\n'
    rows = answers(write_catalog(tmp_path, day), "SELECT day, COUNT(*) FROM t GROUP BY day")
    assert [row[1] for row in rows] == [2.0 + (moment == 10**7), 1.0]


@pytest.mark.parametrize("moment", [10**7, 2**62])
def test_a_column_that_one_value_can_make_unreadable_is_refused_at_connect(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its type, whatever it holds; no row is loaded, no vault opened and nothing written."""
    monkeypatch.setattr(refused_types, "find_spec", lambda name: None)  # what reads them is missing
    days = pa.array([0, moment], pa.int64()).cast(pa.timestamp("ms"))
    pq.write_table(pa.table({"day": days}), tmp_path / "t.parquet")
    day = 'day = { type = "date", domain = ["1970-01-01", "1970-01-09"] }'
    catalog = write_catalog(tmp_path, day)
    before = sorted(tmp_path.iterdir())
    with watching() as watch:
        error = refusal(lambda: dpsql.connect(catalog, epsilon=1))
        assert watch.opened == watch.loaded == 0
    assert error.code == "E_DATA"
    assert f"{moment}" not in f"{error}".replace(f"{tmp_path}", "")
    assert sorted(tmp_path.iterdir()) == before
    with inspect(catalog) as connection:
        assert connection.budget.entries == 0
