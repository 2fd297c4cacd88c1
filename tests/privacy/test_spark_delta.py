"""Versions of Delta tables that Spark counts without Delta: what the log says, and no other row."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import dpsql
from dpsql.catalog.catalog import Table, Unit
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.privacy.doors.check_figures import Figures
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import cells_of
from tests.privacy.delta_tables import arrow, written
from tests.privacy.logged_tables import COLUMNS, COUNT, ROWS, SALT, refused
from tests.support.seam import zero_noise
from tests.support.spark import MASTER

pytestmark = pytest.mark.usefixtures("spark")
STRANGE = ("a b #:\u00e9", "a b # \u00e9 {a,a}[1]*")
CATALOG = """
[budget]
epsilon = 100
[table.visits]
source = {source}
privacy_unit = {{ column = "who", max_rows = 50 }}
[table.visits.column]
ward = {{ type = "text", domain = ["A", "B"], other = true }}
age = {{ type = "integer", domain = [0, 9], null = true }}
"""


def in_spark(folder: Path, version: int, unit: Unit, read: str) -> Table:
    options = {"engine": "spark", "master": MASTER, "delta": str(folder), "read": read}
    options["version"] = str(version)
    listed = tuple(sorted(options.items()))
    return Table("t", f"spark://{folder}", unit, COLUMNS, options=listed)


def catalog(folder: Path, said: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "visits.toml"
    path.write_text(CATALOG.format(source=said), encoding="utf-8")
    return path


def of(folder: Path | str, version: object = 0, more: str = "") -> str:
    """A source of Spark, as a catalog states it."""
    listed = f'engine = "spark", master = "{MASTER}", delta = "{folder}", version = {version}'
    return f"{{ {listed}{more} }}"


def test_every_version_is_counted_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    versions = written(folder, 0, 3)
    for version, rows in versions.items():
        folder = folder.rename(tmp_path / STRANGE[version % 2])  # its writer makes none like it
        if not rows:
            continue
        plain = tmp_path / f"{version}.parquet"
        pq.write_table(arrow(rows), plain)
        unit = Unit("who", 2) if version % 2 else Unit()
        file = TableVault(Table("t", str(plain), unit, COLUMNS), SALT)
        reads = ("push", "stream") if version == max(versions) else ("push",)
        for other in [TableVault(in_spark(folder, version, unit, read), SALT) for read in reads]:
            for asked in ([cells_of("ward", np.arange(3))], [cells_of("age", np.arange(10))]):
                one, two = (vault.tally(asked, bool(unit.column)) for vault in (file, other))
                np.testing.assert_array_equal(one, two, err_msg=f"{version} {asked}")
            other.close()
        file.close()


def test_one_version_is_counted_and_has_one_ledger(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", arrow(ROWS))
    first = catalog(tmp_path / "one", of("../t"))
    with zero_noise(), dpsql.connect(first, epsilon=1) as connection:
        assert f"counted in spark, {tmp_path}" in "\n".join(connection.explain(COUNT).lines())
        assert dict(connection.execute(COUNT).result.rows) == {"A": 10, "B": 10, "other": 10}
        DeltaTable(tmp_path / "t").delete("ward = 'A'")
        again = connection.execute(COUNT).result
        assert again.cost is not None
        assert again.cost.free
    policy = read_catalog(first).policy_hash()
    later = catalog(tmp_path / "one", of("../t", 1, ', read = "stream"'))
    assert read_catalog(later).policy_hash() == policy
    with zero_noise(), dpsql.connect(later, epsilon=1) as connection:
        assert dict(connection.execute(COUNT).result.rows) == {"A": 0, "B": 10, "other": 10}
        assert connection.budget.entries == 2
    file = DeltaTable(tmp_path / "t").file_uris()[0]
    for said in ('{ delta = "../t", version = 1 }', f'"{file}"'):
        with dpsql.connect(catalog(tmp_path / str(len(said)), said), epsilon=1) as connection:
            error = refused(partial(connection.execute, COUNT))
            assert error.code == "E_LEDGER_MISMATCH"


def test_a_column_that_came_later_is_null_before(tmp_path: Path) -> None:
    rows = arrow(ROWS)
    write_deltalake(tmp_path / "t", rows.drop_columns(["age"]))
    write_deltalake(tmp_path / "t", rows, mode="append", schema_mode="merge")
    with zero_noise(), dpsql.connect(catalog(tmp_path, of("t", 1)), epsilon=1) as connection:
        asked = "SELECT age IS NULL AS x, COUNT(*) AS n FROM visits GROUP BY x"
        assert dict(connection.execute(asked).result.rows) == {True: 30, False: 30}
    (found,) = examine(chosen_tables(tmp_path / "visits.toml", None))
    assert isinstance(found, Figures)
    assert (found.kind, found.rows, found.units) == ("spark", 60, 7)


def with_vectors(folder: Path) -> None:
    write_deltalake(folder, arrow(ROWS), configuration={"delta.enableDeletionVectors": "true"})


def by_ward(folder: Path) -> None:
    write_deltalake(folder, arrow(ROWS), partition_by=["ward"])


def by_other(folder: Path) -> None:
    rows = arrow(ROWS).append_column("ward=A", pa.array(["B", "A"] * 15))
    write_deltalake(folder, rows, partition_by=["ward=A"])


def without_log(folder: Path) -> None:
    write_deltalake(folder, arrow(ROWS))
    shutil.rmtree(folder / "_delta_log")


def one_gone(folder: Path) -> None:
    write_deltalake(folder, arrow(ROWS))
    Path(DeltaTable(folder).file_uris()[0]).unlink()


REFUSED: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "deletion vectors": (with_vectors, 0, "deletionVectors"),
    "a partition": (by_ward, 0, "partitioned by 'ward'"),
    "no log": (without_log, 0, "no Delta table"),
    "a file gone": (one_gone, 0, "have gone"),
    "no such version": (with_vectors, 7, "no version 7"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_files_do_not_show_is_refused(which: str, tmp_path: Path) -> None:
    write, version, why = REFUSED[which]
    write(tmp_path / "t")
    with dpsql.connect(catalog(tmp_path, of("t", version)), epsilon=1) as connection:
        assert connection.explain(COUNT).statements
        error = refused(lambda: connection.execute(COUNT))
        assert (error.code, why in f"{error}") == ("E_DATA", True), f"{error}"
        assert connection.budget.entries == 0


def test_names_of_folders_are_no_values(tmp_path: Path) -> None:
    by_other(tmp_path / "t")
    with zero_noise(), dpsql.connect(catalog(tmp_path, of("t")), epsilon=1) as connection:
        assert dict(connection.execute(COUNT).result.rows) == {"A": 10, "B": 10, "other": 10}


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ('"3"', ""),
        ("true", ""),
        ("0", ', table = "x"'),
        ("0", ', path = "/x"'),
        ("0", ', refresh = "day"'),
        ("0", ', read = "all"'),
        ("0", ', format = "delta"'),
    ],
)
def test_what_a_source_says_is_checked(version: str, more: str, tmp_path: Path) -> None:
    path = catalog(tmp_path, of("t", version, more))
    assert refused(lambda: read_catalog(path)).code == "E_POLICY"
