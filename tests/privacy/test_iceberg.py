"""Snapshots of Iceberg tables, as another writer leaves them: deleted rows do not count."""

from __future__ import annotations

import datetime as dt
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.drafting import draft_catalog
from tests.privacy.logged_tables import (
    COUNT,
    ROWS,
    catalog,
    check_facts,
    refuse,
    refused,
    same_as_plain,
)
from tests.support.seam import zero_noise

pytest.importorskip("pyiceberg")

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestFile,
    read_manifest_list,
    write_manifest_list,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from tests.privacy.iceberg_tables import SCHEMA, create, rows_in, written


def test_every_snapshot_is_read_as_it_was(tmp_path: Path) -> None:
    snapshots = written(tmp_path, 1, 5)
    folder = tmp_path / "a [1] {b,c} * ?#é"
    (tmp_path / "db" / "t").rename(folder)  # all that it says of itself is where it was
    for number, rows in snapshots.items():
        if rows:
            same_as_plain(folder, "iceberg", number, rows_in(rows))


LATEST = '{{ iceberg = "db/t", version = {0} }}'


def number(table: Any) -> int:
    return int(table.current_snapshot().snapshot_id)


def test_a_session_counts_one_snapshot_and_pays_for_the_next(tmp_path: Path) -> None:
    table = create(tmp_path, SCHEMA)
    table.append(rows_in(ROWS))
    first = catalog(tmp_path, LATEST.format(number(table)))
    policy = read_catalog(first).policy_hash()
    with zero_noise(), dpsql.connect(first, epsilon=1) as connection:
        assert dict(connection.execute(COUNT).result.rows) == {"A": 10, "B": 10, "other": 10}
        table.delete("ward = 'A'")
        again = connection.execute(COUNT).result
        assert again.cost is not None
        assert again.cost.free
    later = catalog(tmp_path, LATEST.format(number(table)))
    assert read_catalog(later).policy_hash() == policy
    with zero_noise(), dpsql.connect(later, epsilon=1) as connection:
        assert dict(connection.execute(COUNT).result.rows) == {"A": 0, "B": 10, "other": 10}
        assert connection.budget.entries == 2
    file = next((tmp_path / "db" / "t" / "data").glob("*.parquet"))
    for source in (f'{{ iceberg = "../db/t", version = {number(table)} }}', f'"{file}"'):
        other = catalog(tmp_path / f"{len(source)}", source)
        with dpsql.connect(other, epsilon=1) as connection:
            assert refused(lambda: connection.execute(COUNT)).code == "E_LEDGER_MISMATCH"


def filled(here: Path) -> Any:
    table = create(here, SCHEMA)
    table.append(rows_in(ROWS))
    return table


def with_deletes(here: Path) -> Any:
    """A snapshot with a manifest of deletes, which pyiceberg itself does not write."""
    table = filled(here)
    snapshot = table.current_snapshot()
    manifests = list(read_manifest_list(table.io.new_input(snapshot.manifest_list)))
    counts = [f"{what}_{of}_count" for what in ("added", "existing", "deleted") for of in FACTS]
    facts: dict[str, Any] = dict.fromkeys(counts, 1)
    deletes = ManifestFile.from_args(
        manifest_path=manifests[0].manifest_path,
        manifest_length=manifests[0].manifest_length,
        partition_spec_id=0,
        content=ManifestContent.DELETES,
        sequence_number=1,
        min_sequence_number=1,
        added_snapshot_id=snapshot.snapshot_id,
        **facts,
    )
    out = PyArrowFileIO().new_output(snapshot.manifest_list)
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    with write_manifest_list(2, out, snapshot.snapshot_id, None, 1, "null") as writer:
        writer.add_manifests([*manifests, deletes])
    return table


FACTS = ("files", "rows")


def renamed(here: Path) -> Any:
    """The names of two columns are swapped, so that those of the files are the others'."""
    table = filled(here)
    for one, two in (("who", "x"), ("ward", "who"), ("x", "ward")):
        with table.update_schema() as schema:
            schema.rename_column(one, two)
    table.append(
        rows_in(ROWS).select(["who", "ward", "age"]).rename_columns(["ward", "who", "age"])
    )
    return table


def expired(here: Path) -> Any:
    table = filled(here)
    for path in (here / "db" / "t" / "data").iterdir():
        path.unlink()
    return table


def without_manifests(here: Path) -> Any:
    table = filled(here)
    for path in (here / "db" / "t" / "metadata").glob("*.avro"):
        path.write_bytes(path.read_bytes()[:100])
    return table


def without_metadata(here: Path) -> Any:
    table = filled(here)
    shutil.rmtree(here / "db" / "t" / "metadata")
    return table


def damaged(here: Path) -> Any:
    table = filled(here)
    for path in (here / "db" / "t" / "metadata").glob("*.json"):
        path.write_text('{"format-version": 9, "who": "Alice"}')
    return table


def emptied(here: Path) -> Any:
    table = filled(here)
    table.delete("age >= 0")
    return table


REFUSED: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "delete files": (with_deletes, LATEST, "delete files"),
    "names were swapped": (renamed, LATEST, "other names by now"),
    "files gone": (expired, LATEST, "have gone"),
    "manifests damaged": (without_manifests, LATEST, "cannot be read"),
    "no metadata": (without_metadata, LATEST, "no Iceberg table"),
    "damaged metadata": (damaged, LATEST, "metadata cannot be read"),
    "no rows": (emptied, LATEST, "no file"),
    "no such snapshot": (filled, '{{ iceberg = "db/t", version = 7 }}', "no snapshot 7"),
    "all files": (filled, '"db/t/data/*.parquet"', "files of an Iceberg table"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_files_do_not_show_is_refused(which: str, tmp_path: Path) -> None:
    write, said, why = REFUSED[which]
    said = said.format(number(write(tmp_path)))
    refuse(tmp_path, said, why)


def test_columns_are_those_of_the_snapshot(tmp_path: Path) -> None:
    table = renamed(tmp_path)
    first = table.snapshots()[0].snapshot_id
    with zero_noise(), dpsql.connect(catalog(tmp_path, LATEST.format(first)), epsilon=1) as found:
        assert dict(found.execute(COUNT).result.rows) == {"A": 10, "B": 10, "other": 10}
    other = create(tmp_path, SCHEMA, "u")
    other.append(rows_in(ROWS))
    with other.update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("age")
    other.delete("ward = 'A'")  # rewrites the file, and leaves the column out
    drafted = tomllib.loads(draft_catalog(str(tmp_path / "db" / "u")))["table"]["u"]
    assert [*drafted["column"]] == ["who", "ward"]


def test_files_without_ids_and_partitions_that_are_in_no_file(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("day", pa.date32()), ("year", pa.int32())])
    table = create(tmp_path, schema)
    with table.update_spec() as spec:
        for name in ("day", "year"):
            spec.add_field(name, IdentityTransform(), name)
    days = [dt.date(2024, 1, 1), None]
    data, files = tmp_path / "db" / "t" / "data", []
    data.mkdir(parents=True, exist_ok=True)
    for i, day in enumerate(days):
        pq.write_table(rows_in(ROWS), path := data / f"{i}.parquet")  # as Hive leaves them
        counts = ("value_counts", "null_value_counts", "nan_value_counts")
        facts: dict[str, Any] = {each: {} for each in counts}
        files.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{table.location()}/data/{i}.parquet",
                file_format=FileFormat.PARQUET,
                partition=Record(None if day is None else (day - dt.date(1970, 1, 1)).days, 2024),
                record_count=len(ROWS),
                file_size_in_bytes=path.stat().st_size,
                column_sizes={},
                lower_bounds={},
                upper_bounds={},
                **facts,
            )
        )
    with table.transaction() as change:
        change.set_properties(**{"schema.name-mapping.default": NAMES})
        with change.update_snapshot().fast_append() as append:
            for file in files:
                append.append_data_file(file)
    text = draft_catalog(str(tmp_path / "db" / "t"), folder=tmp_path)
    drafted = tomllib.loads(text)["table"]["t"]
    kinds = {name: each["type"] for name, each in drafted["column"].items()}
    assert kinds == {
        "who": "text",
        "ward": "text",
        "age": "integer",
        "day": "date",
        "year": "integer",
    }
    path = catalog(tmp_path, LATEST.format(number(table)))
    more = 'day = { type = "date", domain = ["2024-01-01", "2024-01-02"], by = "day" }\n'
    path.write_text(path.read_text() + more)
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        found = connection.execute("SELECT day, COUNT(*) AS n FROM visits GROUP BY day").result
        assert [n for _, n in found.rows] == [30, 0]
    with table.update_schema() as changed:  # its old name stays in the mapping
        changed.rename_column("ward", "place")
    table.append(table.scan(limit=1).to_arrow())
    path = catalog(tmp_path / "b", LATEST.replace("db/", "../db/").format(number(table)))
    with dpsql.connect(path, epsilon=1) as connection:
        assert "other names by now" in f"{refused(lambda: connection.execute(COUNT))}"


NAMES = """[{"field-id": 1, "names": ["who"]}, {"field-id": 2, "names": ["ward"]},
{"field-id": 3, "names": ["age"]}, {"field-id": 4, "names": ["day"]},
{"field-id": 5, "names": ["year"]}]"""


@pytest.mark.parametrize(
    "said",
    [
        '{ iceberg = "t" }',
        '{ iceberg = "t", version = "3" }',
        '{ iceberg = "https://host/t", version = 3 }',
        '{ iceberg = "t", version = 3, engine = "spark", master = "local" }',
    ],
)
def test_a_snapshot_is_stated(said: str, tmp_path: Path) -> None:
    error = refused(lambda: read_catalog(catalog(tmp_path, said)))
    assert error.code == "E_POLICY"


def test_a_catalog_is_drafted_and_checked(tmp_path: Path) -> None:
    table = filled(tmp_path)
    table.delete("ward = 'A'")
    said = f'{{ iceberg = "db/t", version = {number(table)} }}'
    assert f"source = {said}" in draft_catalog(str(tmp_path / "db" / "t"), folder=tmp_path)
    check_facts(catalog(tmp_path, said), "iceberg")


def test_without_the_package_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsql.privacy.vault.files import iceberg

    said = LATEST.format(number(filled(tmp_path)))
    monkeypatch.setattr(iceberg, "find_spec", lambda name: None)
    with dpsql.connect(catalog(tmp_path, said), epsilon=1) as connection:
        error = refused(lambda: connection.execute(COUNT))
        assert (error.code, "dpsql[iceberg]" in f"{error.hint}") == ("E_DATA", True)
