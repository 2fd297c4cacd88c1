"""Two catalogs over one data file share nothing by accident: the second is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.engine import engine
from dpsql.errors import LedgerError
from dpsql.files import replace_file
from dpsql.privacy.budget.source_claims import Sources, claim_sources

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_reader")]


def test_a_source_belongs_to_one_ledger(tmp_path: Path) -> None:
    folder, data = tmp_path / "anchors", tmp_path / "data.csv"
    data.write_text("x\n")
    first, second = tmp_path / "a.ledger", tmp_path / "b.ledger"
    first.touch()
    claim_sources([folder], [str(data)], first, "a")
    claim_sources([folder], [str(data)], first, "a")
    link = tmp_path / "link.csv"
    link.symlink_to(data)
    with pytest.raises(LedgerError, match="E_LEDGER_MISMATCH"):
        claim_sources([folder], [str(link)], second, "b")
    moved = tmp_path / "c.ledger"
    first.rename(moved)
    claim_sources([folder], [str(data)], moved, "a")
    with pytest.raises(LedgerError, match=r"c\.ledger"):
        claim_sources([folder], [str(data)], second, "b")


def test_a_hard_link_or_a_new_name_is_the_same_source(tmp_path: Path) -> None:
    folder, data = tmp_path / "anchors", tmp_path / "data.csv"
    data.write_text("x\n")
    first, second, link = tmp_path / "a.ledger", tmp_path / "b.ledger", tmp_path / "link.csv"
    first.touch()
    claim_sources([folder], [str(data)], first, "a")
    os.link(data, link)
    with pytest.raises(LedgerError, match="E_LEDGER_MISMATCH"):
        claim_sources([folder], [str(link)], second, "b")
    claim_sources([folder], [str(link)], first, "a")
    data.unlink()
    named = link.rename(tmp_path / "named.csv")
    with pytest.raises(LedgerError, match="E_LEDGER_MISMATCH"):
        claim_sources([folder], [str(named)], second, "b")
    named.write_text("x\n1\n")
    claim_sources([folder], [str(named)], first, "a")
    with pytest.raises(LedgerError, match="E_LEDGER_MISMATCH"):
        claim_sources([folder], [str(named)], second, "b")


def test_a_place_on_the_disk_that_is_used_again_is_another_source(tmp_path: Path) -> None:
    folder, data = tmp_path / "anchors", tmp_path / "data.csv"
    data.write_text("x\n")
    first, second = tmp_path / "a.ledger", tmp_path / "b.ledger"
    first.touch()
    claim_sources([folder], [str(data)], first, "a")
    named = data.rename(tmp_path / "named.csv")
    named.write_text("y\n1\n")  # the same place, as when a deleted file's is given to a new one
    claim_sources([folder], [str(named)], second, "b")


def test_notes_are_written_once(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("x\n")
    claim_sources([tmp_path], [str(data)], tmp_path / "a.ledger", "a")
    before = {note: note.stat().st_mtime_ns for note in tmp_path.glob("*.source")}
    claim_sources([tmp_path], [str(data)], tmp_path / "a.ledger", "a")
    assert before == {note: note.stat().st_mtime_ns for note in tmp_path.glob("*.source")}


def test_nothing_is_noted_where_one_of_the_sources_is_refused(tmp_path: Path) -> None:
    folder, first, second = tmp_path / "anchors", tmp_path / "a.ledger", tmp_path / "b.ledger"
    first.touch()
    for name in ("x.csv", "y.csv"):
        (tmp_path / name).write_text("x\n")
    claim_sources([folder], [str(tmp_path / "y.csv")], first, "a")
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(LedgerError, match="E_LEDGER_MISMATCH"):
        claim_sources([folder], [str(tmp_path / "x.csv"), str(tmp_path / "y.csv")], second, "b")
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_note_that_others_replace_is_read_again(tmp_path: Path) -> None:
    folder, data = tmp_path / "anchors", tmp_path / "data.csv"
    data.write_text("x\n")
    ledgers = [tmp_path / f"{name}.ledger" for name in "ab"]
    for ledger in ledgers:
        ledger.touch()
    claim_sources([folder], [str(data)], ledgers[0], "a")
    claim_sources([folder], [str(data)], ledgers[0], "a")
    for note in folder.glob("*.[si]*"):
        content = note.read_text().replace('"a"', '"b"').replace("/a.ledger", "/b.ledger")
        replace_file(note, content.encode())
    with pytest.raises(LedgerError, match=r"b\.ledger"):
        claim_sources([folder], [str(data)], ledgers[0], "a")
    claim_sources([folder], [str(data)], ledgers[1], "b")


def test_a_claim_lapses_with_its_ledger_and_anchor(tmp_path: Path) -> None:
    folder = tmp_path / "anchors"
    claim_sources([folder], ["data.csv"], tmp_path / "a.ledger", "a")
    claim_sources([folder], ["data.csv"], tmp_path / "b.ledger", "b")


@pytest.mark.parametrize("text", ["?", "{}", "[]", "1", '{"ledger": "a.ledger"}'])
def test_a_damaged_note_fails_closed(text: str, tmp_path: Path) -> None:
    claim_sources([tmp_path], ["data.csv"], tmp_path / "a.ledger", "a")
    (note,) = tmp_path.glob("*.source")
    note.write_text(text)
    with pytest.raises(LedgerError, match="E_LEDGER_TAMPERED"):
        claim_sources([tmp_path], ["data.csv"], tmp_path / "b.ledger", "b")


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


def replaced(connection: Connection, sql: str) -> Path | None:
    """The note that a refusal names, None for an answer."""
    try:
        connection.execute(sql)
    except LedgerError as refused:
        told, hint = str(refused), refused.hint or ""
    else:
        return None
    assert "in the place of" in told
    assert connection.budget.entries == 0
    return Path(hint.rsplit(": ", 1)[1])


def test_a_ledger_that_was_replaced_is_told_as_such(demo: Path) -> None:
    sql = "SELECT sex, COUNT(*) FROM adult GROUP BY sex"
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        connection.execute(sql)
    (ledger,) = demo.glob("*.ledger")
    ledger.unlink()
    for anchor in demo.rglob("*.anchor"):
        anchor.unlink()
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        notes = set()
        while (note := replaced(connection, sql)) is not None:  # two notes in each of two folders
            assert note not in notes
            notes.add(note)
            note.unlink()
        assert connection.budget.entries == 1


COLUMNS = '[table.{0}.column]\nage = {{ type = "integer", domain = [17, 90] }}\n'
SQL = "SELECT COUNT(*) FROM {} WHERE age > 30"


def catalog(folder: Path, name: str, tables: dict[str, str], source: str, ledger: str = "") -> Path:
    """A catalog of tables over one file: their names, and what is said of each."""
    text = "[budget]\nepsilon = 10\n" + (f'[ledger]\nanchor = "{ledger}"\n' if ledger else "")
    for table, facts in tables.items():
        text += f'[table.{table}]\nsource = "{source}"\n{facts}\n{COLUMNS.format(table)}'
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


ROW, PUBLIC = 'privacy_unit = "row"', "public = true"
OWN = 'privacy_unit = "row"\nbudget = { epsilon = 1 }'
PERSON = 'privacy_unit = { column = "education", max_rows = 3 }'


def asked(path: Path, table: str = "t") -> None:
    with dpsql.connect(path, epsilon=1) as connection:
        connection.execute(SQL.format(table))


def second_budget(folder: Path, way: str) -> None:
    """Ask for a file twice, where the second budget is not the first's."""
    source = "adult.parquet"
    asked(catalog(folder, "first", {"t": ROW}, source))
    if way == "anchors":
        asked(catalog(folder, "second", {"t": ROW}, source, ledger="mine"))
    elif way == "anchors of both":
        (folder / "first.toml").unlink()
        shutil.copy(folder / source, folder / "copy.parquet")
        asked(catalog(folder, "third", {"t": ROW}, "copy.parquet", ledger="a"))
        asked(catalog(folder, "fourth", {"t": ROW}, "copy.parquet", ledger="b"))
    elif way == "public":
        path = catalog(folder, "second", {"t": ROW, "p": PUBLIC}, source)
        with dpsql.connect(path) as connection:
            connection.execute("SELECT COUNT(*) FROM p")
    elif way == "public alone":
        path = catalog(folder, "second", {"p": PUBLIC}, source, ledger="mine")
        with dpsql.connect(path) as connection:
            connection.execute("SELECT COUNT(*) FROM p")
    elif way == "public by hard link":
        os.link(folder / source, folder / "linked.parquet")
        path = catalog(folder, "second", {"p": PUBLIC}, "l*.parquet")
        with dpsql.connect(path) as connection:
            connection.execute("SELECT COUNT(*) FROM p")


WAYS = ("anchors", "anchors of both", "public", "public alone", "public by hard link")


@pytest.mark.parametrize("way", WAYS)
def test_no_catalog_gives_a_second_budget(demo: Path, way: str) -> None:
    with pytest.raises((LedgerError, dpsql.CatalogError)) as caught:
        second_budget(demo, way)
    assert caught.value.code in ("E_LEDGER_MISMATCH", "E_POLICY")


@pytest.mark.parametrize("way", WAYS[:2])
def test_claims_beside_the_anchors_alone_are_not_enough(
    demo: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def anchors_alone(catalog: Any, folders: Any, *rest: Any) -> Sources:
        return Sources(catalog, folders[:1], *rest)

    monkeypatch.setattr(engine, "Sources", anchors_alone)
    second_budget(demo, way)


@pytest.mark.parametrize("way", WAYS[3:])
def test_public_tables_that_are_not_checked_are_found(
    demo: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.privacy.budget.source_claims.refuse_claimed", lambda *_: None)
    second_budget(demo, way)


@pytest.mark.parametrize(
    ("one", "other", "problem"),
    [
        (ROW, ROW, None),
        (ROW, OWN, "asked for twice"),
        (OWN, OWN, "asked for twice"),
        (ROW, PERSON, "different privacy units"),
        (ROW, PUBLIC, "only one of them is public"),
        (PUBLIC, PUBLIC, None),
    ],
)
@pytest.mark.parametrize("linked", ["same", "link", "hard", "glob"])
def test_two_tables_of_one_file_share_one_budget(
    demo: Path, one: str, other: str, problem: str | None, linked: str
) -> None:
    with duckdb.connect() as database:  # all values of public tables are read
        few = f"SELECT * FROM '{demo / 'adult.parquet'}' LIMIT 300"
        database.execute(f"COPY ({few}) TO '{demo / 'few.parquet'}'")
    os.replace(demo / "few.parquet", demo / "adult.parquet")
    path = catalog(demo, "c", {"t": one, "u": other}, "adult.parquet")
    if linked == "glob":
        path.write_text(path.read_text().replace("adult.parquet", "adul*.parquet", 1))
    elif linked != "same":
        make = os.symlink if linked == "link" else os.link
        make(demo / "adult.parquet", demo / "other.parquet")
        path.write_text(path.read_text().replace("adult.parquet", "other.parquet", 1))
    with dpsql.connect(path, epsilon=1) as connection:
        for table in ("t", "u"):
            if problem is None:
                connection.execute(SQL.format(table))
                continue
            with pytest.raises(dpsql.CatalogError, match=problem):
                connection.execute(SQL.format(table))
        private = problem is None and PUBLIC not in one
        assert connection.budget.spent_epsilon == (2 if private else 0)


def test_tables_within_one_database_file_are_different_sources(demo: Path) -> None:
    with duckdb.connect(str(demo / "d.duckdb")) as database:
        database.execute("CREATE TABLE t AS SELECT 20 AS age; CREATE TABLE u AS SELECT 30 AS age")
    asked(catalog(demo, "c", {"t": OWN, "u": ROW}, "d.duckdb"))
    with duckdb.connect(str(demo / "e.duckdb")) as database:
        database.execute("CREATE TABLE single AS SELECT 20 AS age")
    with pytest.raises(dpsql.CatalogError, match="asked for twice"):
        asked(catalog(demo, "e", {"t": OWN, "u": ROW}, "e.duckdb"))


def test_a_public_table_of_a_file_that_nobody_charged_is_read(demo: Path) -> None:
    path = catalog(demo, "c", {"p": PUBLIC}, "adult.parquet")
    with dpsql.connect(path) as connection:
        assert connection.execute("SELECT COUNT(*) FROM p").fetchall() == [(48842,)]
    shutil.copy(demo / "adult.parquet", demo / "copy.parquet")
    asked(catalog(demo, "d", {"t": ROW}, "copy.parquet"))
