"""Two catalogs over one data file share nothing by accident: the second is refused."""

from __future__ import annotations

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


def test_a_claim_lapses_with_its_ledger_and_anchor(tmp_path: Path) -> None:
    folder = tmp_path / "anchors"
    claim_sources(folder, ["data.csv"], tmp_path / "a.ledger", "a")
    claim_sources(folder, ["data.csv"], tmp_path / "b.ledger", "b")


def test_a_damaged_note_fails_closed(tmp_path: Path) -> None:
    claim_sources(tmp_path, ["data.csv"], tmp_path / "a.ledger", "a")
    (note,) = tmp_path.glob("*.source")
    note.write_text("?")
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
