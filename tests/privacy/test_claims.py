"""Two catalogs over one data file share nothing by accident: the second is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import dpsql
from dpsql.errors import LedgerError
from dpsql.privacy.claims import claim_sources


def test_a_source_belongs_to_one_ledger(tmp_path: Path) -> None:
    folder, data = tmp_path / "anchors", tmp_path / "data.csv"
    data.write_text("x\n")
    first, second = tmp_path / "a.ledger", tmp_path / "b.ledger"
    first.touch()
    claim_sources(folder, [str(data)], first, "a")
    claim_sources(folder, [str(data)], first, "a")
    link = tmp_path / "link.csv"
    link.symlink_to(data)
    with pytest.raises(LedgerError, match="E_LEDGER_MISMATCH"):
        claim_sources(folder, [str(link)], second, "b")
    moved = tmp_path / "c.ledger"
    first.rename(moved)
    claim_sources(folder, [str(data)], moved, "a")
    with pytest.raises(LedgerError, match=r"c\.ledger"):
        claim_sources(folder, [str(data)], second, "b")


def test_a_hard_link_or_a_new_name_is_the_same_source(tmp_path: Path) -> None:
    folder, data = tmp_path / "anchors", tmp_path / "data.csv"
    data.write_text("x\n")
    first, second, link = tmp_path / "a.ledger", tmp_path / "b.ledger", tmp_path / "link.csv"
    first.touch()
    claim_sources(folder, [str(data)], first, "a")
    os.link(data, link)
    with pytest.raises(LedgerError, match="E_LEDGER_MISMATCH"):
        claim_sources(folder, [str(link)], second, "b")
    claim_sources(folder, [str(link)], first, "a")
    data.unlink()
    named = link.rename(tmp_path / "named.csv")
    with pytest.raises(LedgerError, match="E_LEDGER_MISMATCH"):
        claim_sources(folder, [str(named)], second, "b")
    named.write_text("x\n1\n")
    claim_sources(folder, [str(named)], first, "a")
    with pytest.raises(LedgerError, match="E_LEDGER_MISMATCH"):
        claim_sources(folder, [str(named)], second, "b")


def test_a_place_on_the_disk_that_is_used_again_is_another_source(tmp_path: Path) -> None:
    folder, data = tmp_path / "anchors", tmp_path / "data.csv"
    data.write_text("x\n")
    first, second = tmp_path / "a.ledger", tmp_path / "b.ledger"
    first.touch()
    claim_sources(folder, [str(data)], first, "a")
    named = data.rename(tmp_path / "named.csv")
    named.write_text("y\n1\n")  # the same place, as when a deleted file's is given to a new one
    claim_sources(folder, [str(named)], second, "b")


def test_notes_are_written_once(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("x\n")
    claim_sources(tmp_path, [str(data)], tmp_path / "a.ledger", "a")
    before = {note: note.stat().st_mtime_ns for note in tmp_path.glob("*.source")}
    claim_sources(tmp_path, [str(data)], tmp_path / "a.ledger", "a")
    assert before == {note: note.stat().st_mtime_ns for note in tmp_path.glob("*.source")}


def test_a_claim_lapses_with_its_ledger_and_anchor(tmp_path: Path) -> None:
    folder = tmp_path / "anchors"
    claim_sources(folder, ["data.csv"], tmp_path / "a.ledger", "a")
    claim_sources(folder, ["data.csv"], tmp_path / "b.ledger", "b")


@pytest.mark.parametrize("text", ["?", "{}", "[]", "1", '{"ledger": "a.ledger"}'])
def test_a_damaged_note_fails_closed(text: str, tmp_path: Path) -> None:
    claim_sources(tmp_path, ["data.csv"], tmp_path / "a.ledger", "a")
    (note,) = tmp_path.glob("*.source")
    note.write_text(text)
    with pytest.raises(LedgerError, match="E_LEDGER_TAMPERED"):
        claim_sources(tmp_path, ["data.csv"], tmp_path / "b.ledger", "b")


def test_a_second_catalog_over_the_same_file_is_refused(demo: Path) -> None:
    sql = "SELECT sex, COUNT(*) FROM adult GROUP BY sex"
    shutil.copy(demo / "adult.toml", demo / "twin.toml")
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        connection.execute(sql)
    with dpsql.connect(demo / "twin.toml", epsilon=1) as connection:
        with pytest.raises(LedgerError, match="another catalog"):
            connection.execute(sql)
        assert connection.budget.entries == 0


def test_a_second_catalog_over_a_hard_link_is_refused(demo: Path) -> None:
    sql = "SELECT sex, COUNT(*) FROM adult GROUP BY sex"
    os.link(demo / "adult.parquet", demo / "other.parquet")
    twin = (demo / "adult.toml").read_text().replace("adult.parquet", "other.parquet")
    (demo / "twin.toml").write_text(twin)
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        connection.execute(sql)
    with dpsql.connect(demo / "twin.toml", epsilon=1) as connection:
        with pytest.raises(LedgerError, match="another catalog"):
            connection.execute(sql)
        assert connection.budget.entries == 0
