"""Versions of Delta tables, as another writer leaves them: rows that were deleted do not count."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.drafting import draft_catalog
from tests.privacy.delta_tables import arrow, written
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


@pytest.mark.parametrize("seed", range(2))
def test_every_version_is_read_as_it_was(seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "a [1] {b,c} * ?#\u00e9"
    versions = written(tmp_path / "t", seed, 4)
    (tmp_path / "t").rename(folder)  # its writer makes none of such a name
    for version, rows in versions.items():
        if rows:
            same_as_plain(folder, "delta", version, arrow(rows))


def test_a_session_counts_one_version_and_pays_for_the_next(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", arrow(ROWS))
    first = catalog(tmp_path, '{ delta = "t", version = 0 }')
    with zero_noise(), dpsql.connect(first, epsilon=1) as connection:
        assert dict(connection.execute(COUNT).result.rows) == {"A": 10, "B": 10, "other": 10}
        DeltaTable(tmp_path / "t").delete("ward = 'A'")
        again = connection.execute(COUNT).result
        assert again.cost is not None
        assert again.cost.free
    policy = read_catalog(first).policy_hash()
    later = catalog(tmp_path, '{ delta = "t", version = 1 }')
    assert read_catalog(later).policy_hash() == policy
    with zero_noise(), dpsql.connect(later, epsilon=1) as connection:
        assert dict(connection.execute(COUNT).result.rows) == {"A": 0, "B": 10, "other": 10}
        assert connection.budget.entries == 2
    (tmp_path / "two").mkdir()
    other = catalog(tmp_path / "two", '{ delta = "../t", version = 1 }')
    with dpsql.connect(other, epsilon=1) as connection:
        assert refused(lambda: connection.execute(COUNT)).code == "E_LEDGER_MISMATCH"
    (tmp_path / "three").mkdir()
    plain = catalog(tmp_path / "three", f'"{DeltaTable(tmp_path / "t").file_uris()[0]}"')
    with dpsql.connect(plain, epsilon=1) as connection:
        assert refused(lambda: connection.execute(COUNT)).code == "E_LEDGER_MISMATCH"


def with_vectors(folder: Path) -> None:
    write_deltalake(folder, arrow(ROWS), configuration={"delta.enableDeletionVectors": "true"})


def vacuumed(folder: Path) -> None:
    write_deltalake(folder, arrow(ROWS))
    write_deltalake(folder, arrow(ROWS), mode="overwrite")
    options: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}
    DeltaTable(folder).vacuum(dry_run=False, **options)


def without_log(folder: Path) -> None:
    write_deltalake(folder, arrow(ROWS))
    shutil.rmtree(folder / "_delta_log")


def later(folder: Path) -> None:
    write_deltalake(folder, arrow(ROWS))


REFUSED: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "deletion vectors": (with_vectors, '{ delta = "t", version = 0 }', "deletionVectors"),
    "files gone": (vacuumed, '{ delta = "t", version = 0 }', "have gone"),
    "no log": (without_log, '{ delta = "t", version = 0 }', "no Delta table"),
    "no such version": (later, '{ delta = "t", version = 7 }', "no version 7"),
    "all files": (later, '"t/*.parquet"', "files of a Delta table"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_files_do_not_show_is_refused(which: str, tmp_path: Path) -> None:
    write, said, why = REFUSED[which]
    write(tmp_path / "t")
    refuse(tmp_path, said, why)


@pytest.mark.parametrize(
    "said",
    [
        '{ delta = "t" }',
        '{ delta = "t", version = "3" }',
        '{ delta = "t", version = true }',
        '{ delta = "https://host/t", version = 3 }',
        '{ delta = "t", version = 3, table = "x" }',
    ],
)
def test_a_version_is_stated(said: str, tmp_path: Path) -> None:
    assert refused(lambda: read_catalog(catalog(tmp_path, said))).code == "E_POLICY"


def test_a_catalog_is_drafted_and_checked(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", arrow(ROWS))
    DeltaTable(tmp_path / "t").delete("ward = 'A'")
    text = draft_catalog(str(tmp_path / "t"), folder=tmp_path)
    assert 'source = { delta = "t", version = 1 }' in text
    check_facts(catalog(tmp_path, '{ delta = "t", version = 1 }'), "delta")


def test_without_the_package_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsql.privacy.vault.files import delta

    write_deltalake(tmp_path / "t", arrow(ROWS))
    monkeypatch.setattr(delta, "find_spec", lambda name: None)
    with dpsql.connect(catalog(tmp_path, '{ delta = "t", version = 0 }'), epsilon=1) as connection:
        error = refused(lambda: connection.execute(COUNT))
        assert (error.code, "dpsql[delta]" in f"{error.hint}") == ("E_DATA", True)
