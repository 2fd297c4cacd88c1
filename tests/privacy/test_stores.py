"""Objects in stores: read as the same files on a disk, or refused in words that tell no secret."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import random
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import CatalogError, DataUnavailable, Error
from dpsql.privacy.doors.check_figures import Figures
from dpsql.privacy.vault.data_engine import Unreadable
from dpsql.privacy.vault.files import stores
from dpsql.privacy.vault.files.data_files import find_source
from dpsql.privacy.vault.files.partitions import NULL
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import cells_of
from tests.privacy.delta_tables import arrow, rows_of, written
from tests.support.seam import zero_noise
from tests.support.stores import (
    BUCKET,
    KEY_ID,
    SECRET,
    Answer,
    answering,
    azure,
    certificate,
    point_to,
    s3,
)

SALT = b"0123456789abcdef"
HEAD = """
[budget]
epsilon = 100.0
delta = 1e-9
[table.t]
privacy_unit = {unit}
source = {source}
[table.t.column]
ward = {{ type = "text", domain = ["A", "B", "C"] }}
age = {{ type = "integer", domain = [0, 9], null = true }}
"""
UNITS = ('"row"', '{ column = "who", max_rows = 2 }')
ASKED = "SELECT ward, COUNT(*), SUM(age) FROM t GROUP BY ward"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Any]]:
    with s3() as found:
        yield found


@pytest.fixture
def bucket(server: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    address, client = server
    point_to(address, monkeypatch)
    return client


def put(client: Any, key: str, body: bytes) -> None:
    client.put_object(Bucket=BUCKET, Key=key, Body=body)


def as_parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def as_csv(table: pa.Table, cut: str = ",") -> bytes:
    lines = [table.column_names, *(map(str, row.values()) for row in table.to_pylist())]
    return "".join(cut.join(each) + "\n" for each in lines).encode()


def answers(folder: Path, source: str, unit: str = UNITS[0]) -> list[Any]:
    """Ask a table of a source, without noise."""
    folder.mkdir(exist_ok=True)
    catalog = folder / "c.toml"
    catalog.write_text(HEAD.format(unit=unit, source=source))
    with zero_noise():
        connection = dpsql.connect(catalog, epsilon=50)
        try:
            return connection.execute(ASKED).fetchall()
        finally:
            connection.close()


def counted(folder: Path, source: str, unit: str = UNITS[0]) -> list[Any]:
    """Count the rows of a source by ward and age, and the units of each ward."""
    catalog = folder / "counted.toml"
    catalog.write_text(HEAD.format(unit=unit, source=source))
    vault = TableVault(read_catalog(catalog).tables["t"], SALT)
    ward, age = cells_of("ward", np.arange(3)), cells_of("age", np.arange(11))
    return [vault.tally([ward, age]).tolist(), vault.tally([ward], unit != UNITS[0]).tolist()]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("seed", range(2))
def test_objects_are_read_as_the_same_files(
    bucket: Any, seed: int, unit: str, tmp_path: Path
) -> None:
    chosen = random.Random(seed)
    tables = [arrow(rows_of(chosen, 9)) for _ in range(3)]
    folder = f"same {seed}/ä+%20#{len(unit)}"
    here = tmp_path / "files"
    here.mkdir()
    for i, table in enumerate(tables):
        for name, body in (
            (f"{i}.parquet", as_parquet(table)),
            (f"{i}.csv", as_csv(table)),
            (f"{i}.txt", as_csv(table, ";")),
        ):
            put(bucket, f"{folder}/{name}", body)
            (here / name).write_bytes(body)
    put(bucket, f"{folder}/below/9.parquet", as_parquet(tables[0]))
    put(bucket, f"{folder}x/9.csv", as_csv(tables[0]))
    forms = {
        "*.parquet": '"{}"',
        "*.csv": '"{}"',
        "0.csv": '{{ file = "{}" }}',
        "*.txt": '{{ file = "{}", delimiter = ";" }}',
    }
    for name, form in forms.items():
        found = counted(tmp_path, form.format(f"s3://{BUCKET}/{folder}/{name}"), unit)
        assert found == counted(tmp_path, form.format(here / name), unit), name


@pytest.mark.parametrize("seed", range(2))
def test_versions_of_delta_tables_are_those_of_the_folder(
    bucket: Any, seed: int, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    versions = written(folder, seed, 3)
    for path in folder.rglob("*"):
        if path.is_file():
            put(bucket, f"delta{seed}/{path.relative_to(folder)}", path.read_bytes())
    for version, rows in versions.items():
        if rows:
            address = f"s3://{BUCKET}/delta{seed}"
            one, two = (
                counted(tmp_path, f'{{ delta = "{each}", version = {version} }}')
                for each in (address, folder)
            )
            assert one == two
    drafted = draft_catalog(f"s3://{BUCKET}/delta{seed}")
    assert f"version = {max(versions)}" in drafted


PARTS = [("2023", "A"), ("2024", "B"), ("2024", "A/c ä"), (NULL, "C")]


@pytest.mark.parametrize("end", ["parquet", "csv"])
def test_folders_of_objects_tell_columns_as_folders_of_files_do(
    bucket: Any, end: str, tmp_path: Path
) -> None:
    """By the address of each object: unescaped, NULL, and in any depth."""
    chosen, folder = random.Random(5), f"hive {end}"
    for year, ward in PARTS:
        table = arrow(rows_of(chosen, 9)).drop_columns(["ward"])
        body = as_parquet(table) if end == "parquet" else as_csv(table)
        name = f"{folder}/year={year}/ward={quote(ward, safe=' ä')}/0.{end}"
        put(bucket, name, body)
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(body)
    said = '{{ file = "{}", partitions = ["ward", "year"] }}'
    found = counted(tmp_path, said.format(f"s3://{BUCKET}/{folder}/**/*.{end}"))
    assert found == counted(tmp_path, said.format(tmp_path / folder / "*" / "*" / f"*.{end}"))
    assert sum(map(sum, found[0])) == 9 * 3  # one ward is not declared
    drafted = tomllib.loads(draft_catalog(f"s3://{BUCKET}/{folder}/"))["table"]
    (table,) = drafted.values()
    assert table["source"] == {
        "file": f"s3://{BUCKET}/{folder}/**/*.{end}",
        "partitions": ["year", "ward"],
    }
    assert {"year", "ward", "age"} <= table["column"].keys()
    put(bucket, f"{folder}/year=2024/0.{end}", body)
    with pytest.raises(DataUnavailable, match="in no folder ward="):
        counted(tmp_path, said.format(f"s3://{BUCKET}/{folder}/**/*.{end}"))


def test_partitions_of_a_stored_delta_table_are_drafted_by_its_log(
    bucket: Any, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    folder = tmp_path / "t"
    days = pa.array([dt.date(2024, 1, each) for each in (1, 2, 3)])
    rows = pa.table(
        {"day": days, "year": [2023, 2024, 2024], "ward": ["A", "B", "C"], "n": [1, 2, 3]}
    )
    deltalake.write_deltalake(folder, rows, partition_by=["day", "year", "ward"])
    for path in folder.rglob("*"):
        if path.is_file():
            put(bucket, f"parts/{unquote(str(path.relative_to(folder)))}", path.read_bytes())
    stored, here = (
        tomllib.loads(draft_catalog(each))["table"]
        for each in (f"s3://{BUCKET}/parts", str(folder))
    )
    (one,), (other,) = stored.values(), here.values()
    kinds = {name: each["type"] for name, each in one["column"].items()}
    assert kinds == {"day": "date", "year": "integer", "ward": "text", "n": "integer"}
    assert one["column"] == other["column"]


@pytest.mark.parametrize("log", ["_delta_log/0.json", "metadata/v3.metadata.json"])
def test_objects_below_a_log_are_no_files_of_their_own(
    bucket: Any, tmp_path: Path, log: str
) -> None:
    """Rows that a log has removed are in them still, wherever in a bucket the log is."""
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1, 2]}), parquet)
    place = f"below-{log[:4]}"
    put(bucket, f"{place}/t/day=1/a.parquet", parquet.read_bytes())
    address = f"s3://{BUCKET}/{place}/t/**/*.parquet"
    assert find_source(address, "t").paths
    put(bucket, f"{place}/{log}", b"{}")
    with pytest.raises(DataUnavailable, match="some of which hold rows that are no more") as caught:
        find_source(address, "t")
    assert "source = {" in f"{caught.value.hint}"
    assert find_source(f"s3://{BUCKET}/{place}/t/day=1/a.parquet", "t").paths


def test_snapshots_of_iceberg_tables_are_read_from_a_store(bucket: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from tests.privacy.iceberg_tables import written as iceberg

    snapshots = iceberg(tmp_path, 4, 3)
    folder = tmp_path / "db" / "t"
    for path in folder.rglob("*"):
        if path.is_file():
            put(bucket, f"ice/t/{path.relative_to(folder)}", path.read_bytes())
    for number in snapshots:
        stored, here = (
            f'{{ iceberg = "{each}", version = {number} }}'
            for each in (f"s3://{BUCKET}/ice/t", folder)
        )
        assert counted(tmp_path, stored) == counted(tmp_path, here)
    assert f'{{ iceberg = "s3://{BUCKET}/ice/t", version = {number} }}' in draft_catalog(
        f"s3://{BUCKET}/ice/t/"
    )
    for path in (folder / "data").iterdir():
        bucket.delete_object(Bucket=BUCKET, Key=f"ice/t/data/{path.name}")
    with pytest.raises(DataUnavailable, match="have gone"):
        counted(tmp_path, stored)


def test_a_table_is_charged_by_the_addresses_of_its_objects(bucket: Any, tmp_path: Path) -> None:
    put(bucket, "claim/a.parquet", as_parquet(arrow(rows_of(random.Random(1), 9))))
    assert answers(tmp_path / "one", f'"s3://{BUCKET}/claim/*.parquet"')
    with pytest.raises(Error, match="charged to"):
        answers(tmp_path / "two", f'"s3://{BUCKET}/claim/a.parquet"')


def test_a_script_asks_a_store_once_what_it_holds(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    listed = stores._list

    def counted_list(root: str, folder: str) -> list[Any]:
        asked.append((root, folder))
        return listed(root, folder)

    monkeypatch.setattr(stores, "_list", counted_list)
    rows = arrow(rows_of(random.Random(5), 9))
    for name in ("a1", "a2", "b1"):
        put(bucket, f"once/{name}.parquet", as_parquet(rows))
    head, table = HEAD[: HEAD.index("[table")], HEAD[HEAD.index("[table") :]
    texts = [
        table.format(unit='"row"', source=f'"s3://{BUCKET}/once/{name}*.parquet"').replace(
            "[table.t", f"[table.{name}"
        )
        for name in "ab"
    ]
    (tmp_path / "c.toml").write_text(head + "".join(texts))
    script = "".join(f"SELECT ward, COUNT(*) FROM {name} GROUP BY ward; " for name in "ab")
    with dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        connection.executescript(script)
        first = sorted(asked)
        assert first == sorted({*asked})
        assert (f"s3://{BUCKET}", "once") in first
        connection.executescript(script.replace("ward", "age"))
        assert {asked.count(each) for each in asked} <= {1, 2}
    asked.clear()
    (one, other) = examine(chosen_tables(tmp_path / "c.toml", None))
    assert isinstance(one, Figures)
    assert isinstance(other, Figures)
    assert {asked.count(each) for each in asked} == {2}


def test_an_object_that_is_written_again_is_another_version(bucket: Any, tmp_path: Path) -> None:
    rows = rows_of(random.Random(2), 9)
    put(bucket, "again.parquet", as_parquet(arrow(rows)))
    catalog = tmp_path / "c.toml"
    catalog.write_text(HEAD.format(unit='"row"', source=f'"s3://{BUCKET}/again.parquet"'))
    with zero_noise():
        connection = dpsql.connect(catalog, epsilon=20)
        first = connection.execute(ASKED)
        assert first.fetchall()
        again = connection.execute(ASKED).result
        assert again is not None
        assert again.cost is not None
        assert again.cost.free
        put(bucket, "again.parquet", as_parquet(arrow(rows * 3)))
        with pytest.raises(DataUnavailable, match="changed"):
            connection.execute("SELECT COUNT(*) FROM t")
        connection.close()
        connection = dpsql.connect(catalog, epsilon=20)
        assert connection.execute("SELECT COUNT(*) FROM t").fetchall() == [(27,)]
        connection.close()


def test_within_a_stated_version_rows_stay_as_they_were_opened(bucket: Any, tmp_path: Path) -> None:
    rows = rows_of(random.Random(3), 9)
    put(bucket, "stated.parquet", as_parquet(arrow(rows)))
    catalog = tmp_path / "c.toml"
    address = f"s3://{BUCKET}/stated.parquet"
    for stated, count in (("1", 9), ("1", 9), ("2", 27)):
        source = f'{{ file = "{address}", version = "{stated}" }}'
        catalog.write_text(HEAD.format(unit='"row"', source=source))
        with zero_noise():
            connection = dpsql.connect(catalog, epsilon=20)
            assert connection.execute("SELECT COUNT(*) FROM t").fetchall() == [(count,)]
            put(bucket, "stated.parquet", as_parquet(arrow(rows * 3)))
            assert connection.execute("SELECT COUNT(*) FROM t").fetchall() == [(count,)]
            connection.close()


def test_nothing_of_an_object_is_known_by_its_etag(bucket: Any, tmp_path: Path) -> None:
    """Two objects with other bytes of the same number, written in one second, are one version."""
    body = as_csv(arrow([("p", "A", 1)] * 9))
    other = body.replace(b"A", b"B")
    assert len(body) == len(other)
    known = stores.StoredObject(f"s3://{BUCKET}/tag.csv", len(body), "")
    put(bucket, "tag.csv", body)
    (found,) = stores.find_objects(known.address)
    put(bucket, "tag.csv", other)
    (again,) = stores.find_objects(known.address)
    assert (found.address, found.size) == (again.address, again.size)
    assert stores.StoredObject.__slots__ == ("address", "size", "written")


def test_check_and_init_tell_of_objects_as_of_files(bucket: Any, tmp_path: Path) -> None:
    table = arrow(rows_of(random.Random(4), 9))
    body = as_csv(table, ";") + b"one;field\n"
    put(bucket, "told/x.csv", body)
    (tmp_path / "x.csv").write_bytes(body)
    drafted, same = (
        draft_catalog(each) for each in (f"s3://{BUCKET}/told/x.csv", tmp_path / "x.csv")
    )
    assert drafted.replace(f"s3://{BUCKET}/told", str(tmp_path)).split("[table")[1:] == [
        each.replace('"x.csv"', f'"{tmp_path}/x.csv"') for each in same.split("[table")[1:]
    ]
    assert f's3://{BUCKET}/told/*.csv", delimiter = ";"' in draft_catalog(f"s3://{BUCKET}/told/")
    catalog = tmp_path / "c.toml"
    source = f'{{ file = "s3://{BUCKET}/told/x.csv", delimiter = ";" }}'
    catalog.write_text(HEAD.format(unit='"row"', source=source))
    (figures,) = examine(chosen_tables(str(catalog), None), {})
    assert isinstance(figures, Figures)
    assert (figures.rows, figures.unread[0].file, figures.unread[0].first) == (9, "x.csv", 11)


def told(source: str) -> Error:
    """Return the error that a source is told by, with what must not be in it."""
    with pytest.raises(Error) as raised:
        draft_catalog(source)
    text = f"{raised.value} {raised.value.hint} {raised.value.__cause__!r}"
    assert not any(each in text for each in (SECRET, KEY_ID, "<")), text
    return raised.value


def test_faults_of_a_store_are_told_in_constant_words(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bucket, "there.csv", b"a,b\n1,2\n")
    monkeypatch.setattr(stores, "TRIES", 0)
    assert "no such object" in str(told(f"s3://{BUCKET}/gone.csv"))
    assert "no such object" in str(told(f"s3://{BUCKET}/the*.parquet"))
    assert "no such object" in str(told("s3://nobucket/there.csv"))
    assert "no such object" in str(told("s3://nobucket/*.csv"))
    assert "database" in str(told(f"s3://{BUCKET}/there.sqlite"))
    point_to("http://127.0.0.1:9", monkeypatch)
    assert "cannot be reached" in str(told(f"s3://{BUCKET}/there.csv"))


DATED = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>4711 Jane Roe</Message></Error>"
CASES: dict[str, tuple[Any, str]] = {
    "expired": (lambda m, p: (400, {}, EXPIRED), "credentials"),
    "denied": (lambda m, p: (403, {}, b"<Error><Code>AccessDenied</Code></Error>"), "credentials"),
    "elsewhere": (lambda m, p: (301, {}, b"<Error>eu-west-9</Error>"), "no such"),
    "broken": (lambda m, p: (500, {}, b"4711 Jane Roe"), "cannot be reached"),
    "cut off": (
        lambda m, p: (200, {**DATED, "Content-Length": "100"}, b"a,b\n4711,Jane Roe\n"),
        "ended before",
    ),
    "altered": (
        lambda m, p: (200, {**DATED, "Content-Length": "40"} if m == "HEAD" else DATED, b"a\n"),
        "written again",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_of_a_store_that_are_none(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr(stores, "TRIES", 0)
    answer, words = CASES[case]
    with answering(answer) as address:
        point_to(address, monkeypatch)
        error = told("s3://bucket/x.csv")
    assert words in str(error), error
    assert "Jane" not in f"{error}{error.hint}"
    assert error.code == "E_DATA"


def test_missing_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr(stores, "TRIES", 0)
    with answering(lambda m, p: (404, {}, b"")) as address:
        for name in [each for each in os.environ if each.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", address)
        assert "credentials" in str(told("s3://bucket/x.csv"))


def test_copies_are_for_their_owner_and_end_with_their_readers(bucket: Any) -> None:
    put(bucket, "mode/x.csv", b"a,b\n1,2\n")
    objects = stores.find_objects(f"s3://{BUCKET}/mode/x.csv")
    (copy,) = stores.copy_objects(objects)
    assert stores.copy_objects(objects) == (copy,)
    assert os.stat(copy.path).st_mode & 0o077 == 0
    path = copy.path
    stores._copies.pop(objects[0].address)
    del copy
    assert not os.path.exists(path)


def test_room_on_the_disk_is_asked_for_first(bucket: Any) -> None:
    large = stores.StoredObject(f"s3://{BUCKET}/large.csv", 1 << 60, "2024")
    with pytest.raises(Unreadable, match=r"has no room for its objects$"):
        stores.copy_objects([large])


@pytest.mark.parametrize(
    "address",
    [
        "https://user:secretofthetest@data.example/x.csv",
        "https://data.example/x.csv?token=secretofthetest",
        "https://bucket.s3.eu-west-1.amazonaws.com/x.csv",
        "https://storage.googleapis.com/bucket/x.csv",
        "https://account.blob.core.windows.net/c/x.csv",
        "s3://bucket",
        "s3:///x.csv",
    ],
)
def test_addresses_with_secrets_or_of_two_names_are_refused(address: str, tmp_path: Path) -> None:
    for source in (f'"{address}"', f'{{ file = "{address}" }}'):
        catalog = tmp_path / "c.toml"
        catalog.write_text(HEAD.format(unit='"row"', source=source))
        with pytest.raises(CatalogError) as raised:
            read_catalog(catalog)
        assert SECRET not in f"{raised.value} {raised.value.hint}"


def test_other_places_of_a_catalog_do_not_change_the_policy(tmp_path: Path) -> None:
    hashes = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        catalog = tmp_path / name / "c.toml"
        catalog.write_text(HEAD.format(unit='"row"', source='"s3://bucket/x.parquet"'))
        hashes.add(read_catalog(catalog).policy_hash())
    assert len(hashes) == 1


def test_opening_a_catalog_asks_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(stores, "_asked", asked)
    catalog = tmp_path / "c.toml"
    catalog.write_text(HEAD.format(unit='"row"', source='"s3://bucket/x.parquet"'))
    dpsql.connect(catalog, epsilon=1).close()


def test_a_vault_that_is_open_outlives_what_the_store_does(bucket: Any, tmp_path: Path) -> None:
    """Columns that are read later are of the very bytes that were opened."""
    rows = rows_of(random.Random(5), 9)
    put(bucket, "later.parquet", as_parquet(arrow(rows)))
    catalog = tmp_path / "c.toml"
    source = f'{{ file = "s3://{BUCKET}/later.parquet", version = "1" }}'
    catalog.write_text(HEAD.format(unit='"row"', source=source))
    table = read_catalog(catalog).tables["t"]
    vault = TableVault(table, SALT)
    vault.load(["ward"])
    bucket.delete_object(Bucket=BUCKET, Key="later.parquet")
    vault.load(["age"])
    assert vault.rows().count == 9


def test_containers_of_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    table = arrow(rows_of(random.Random(6), 9))
    (tmp_path / "0.parquet").write_bytes(as_parquet(table))
    (tmp_path / "azurite").mkdir()
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    with azure(tmp_path / "azurite") as (address, send):
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", address)
        send("d/0.parquet", as_parquet(table))
        found = counted(tmp_path, f'"az://{BUCKET}/d/*.parquet"')
        assert found == counted(tmp_path, f'"{tmp_path}/0.parquet"')
        assert "no such object" in str(told(f"az://{BUCKET}/gone.csv"))
        assert "no such object" in str(told("az://nobucket/x.csv"))
    monkeypatch.delenv("AZURE_STORAGE_USE_EMULATOR")
    assert "credentials" in str(told(f"az://{BUCKET}/d/0.parquet"))


def test_the_driver_of_google_at_a_server_of_s3(
    bucket: Any, server: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and credentials only: both stores answer lists and reads alike, and this is no GCS."""
    table = arrow(rows_of(random.Random(7), 9))
    body = as_parquet(table)
    bucket.put_object(Bucket=BUCKET, Key="google/0.parquet", Body=body, ACL="public-read")
    (tmp_path / "0.parquet").write_bytes(as_parquet(table))
    key = {"gcs_base_url": server[0], "disable_oauth": True, "client_email": ""}
    key |= {"private_key": "", "private_key_id": ""}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(key))
    found = counted(tmp_path, f'"gs://{BUCKET}/google/*.parquet"')
    assert found == counted(tmp_path, f'"{tmp_path}/0.parquet"')
    assert "no such object" in str(told(f"gs://{BUCKET}/gone.csv"))


def test_files_of_web_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr(stores, "TRIES", 0)
    body = as_csv(arrow(rows_of(random.Random(8), 9)))
    (tmp_path / "a b.csv").write_bytes(body)
    authority, *own = certificate(tmp_path)
    pages = {"/d/a%20b.csv": DATED, "/undated.csv": {}}

    def answer(method: str, path: str) -> Answer:
        return (200, pages[path], body) if path in pages else (404, {}, b"Jane Roe")

    with answering(answer, (own[0], own[1])) as address:
        assert "cannot be reached" in str(told(f"{address}/d/a%20b.csv"))  # of no known authority
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        found = counted(tmp_path, f'"{address}/d/a%20b.csv"')
        assert found == counted(tmp_path, f'"{tmp_path}/a b.csv"')
        assert counted(tmp_path, f'{{ file = "{address}/undated.csv", version = "1" }}') == found
        with pytest.raises(DataUnavailable, match="does not say when"):
            counted(tmp_path, f'"{address}/undated.csv"')
        assert "no such object" in str(told(f"{address}/gone.csv"))
        assert "lists no files" in str(told(f"{address}/d/*.csv"))
