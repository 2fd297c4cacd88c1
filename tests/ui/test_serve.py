"""``serve --check`` refuses what a run would refuse, ``user add`` who cannot sign in."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.server.users import Users

Run = Callable[..., Any]
CATALOG = """
[budget]
epsilon = 10
[unit.person]
[table.people]
source = "people.parquet"
privacy_unit = { column = "id", max_rows = 1 }
[table.people.column]
sex = { type = "text", domain = ["f", "m"] }
[table.visits]
source = "visits.csv"
privacy_unit = { column = "id", max_rows = 3 }
[table.visits.column]
ward = { type = "text", domain = ["a"] }
[table.wards]
source = "wards.csv"
public = true
[table.wards.column]
ward = { type = "text" }
"""


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "site"
    folder.mkdir()
    with duckdb.connect() as scribe:
        people = "SELECT 'p1' AS id, 'f' AS sex"
        scribe.execute(f"COPY ({people}) TO '{folder}/people.parquet'")
    (folder / "visits.csv").write_text("id,ward\np1,a\n")
    (folder / "wards.csv").write_text("ward,floor\na,1\n")
    for each in folder.iterdir():
        each.chmod(0o600)
    path = folder / "c.toml"
    path.write_text(CATALOG)
    Users(folder / "c.users").put("ana", "secret", new=True)
    return path


def edited(catalog: Path, old: str, new: str) -> None:
    text = catalog.read_text()
    assert old in text
    catalog.write_text(text.replace(old, new))


def gone(catalog: Path) -> None:
    (catalog.parent / "visits.csv").unlink()


def broken(catalog: Path) -> None:
    (catalog.parent / "people.parquet").write_bytes(b"PAR1")


def short(catalog: Path) -> None:
    (catalog.parent / "wards.csv").write_text("ward,floor\na\n")


DEFECTS: dict[str, Callable[[Path], None]] = {
    "a file that is not there": gone,
    "a file that is damaged": broken,
    "a public line that is no row": short,
    "no such column": lambda path: edited(path, "sex =", "gender ="),
    "another type": lambda path: edited(path, '"text", domain = ["f", "m"]', '"boolean"'),
    "no such unit": lambda path: edited(
        path, 'column = "id", max_rows = 3', 'column = "who", max_rows = 3'
    ),
    "no TOML": lambda path: edited(path, "[budget]", "[budget"),
    "one file, public and not": lambda path: edited(path, '"wards.csv"', '"visits.csv"'),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_check_opens_everything(defect: str, dpsql: Run, catalog: Path) -> None:
    sound = dpsql("serve", catalog, "--check")
    assert sound.status == 0, sound.err
    assert "sources" in sound.err
    DEFECTS[defect](catalog)
    (catalog.parent / "c.ledger").unlink()
    shutil.rmtree(catalog.parent.parent / "state")
    refused = dpsql("serve", catalog, "--check")
    assert refused.status
    assert "in order" not in refused.err
    sql = "SELECT COUNT(*) FROM people; SELECT COUNT(*) FROM visits JOIN wards USING (ward)"
    shutil.rmtree(catalog.parent.parent / "state", ignore_errors=True)
    (catalog.parent / "c.ledger").unlink(missing_ok=True)
    run = dpsql(catalog, "-e", "1", "-c", sql)
    codes = [re.findall(r"\[E_\w+\]", each.err) for each in (run, refused)]
    assert (run.status, codes[0]) == (refused.status, codes[1]), run.err


def test_data_of_another_ledger_are_refused(dpsql: Run, catalog: Path) -> None:
    assert dpsql(catalog, "-e", "1", "-c", "SELECT COUNT(*) FROM visits").status == 0
    other = catalog.with_name("d.toml")
    shutil.copy(catalog, other)
    shutil.copy(catalog.with_suffix(".users"), other.with_suffix(".users"))
    refused = dpsql("serve", other, "--check")
    assert refused.status
    assert "charged to the ledger of another catalog" in refused.err


def test_users_are_analysts(dpsql: Run, catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(name: str, *options: str) -> Any:
        return dpsql("user", "add", catalog, name, *options, stdin="secret\n")

    assert "bo may sign in" in add("bo").err
    edited(catalog, "[budget]", "[analyst.ana]\nepsilon = 1\n[budget]")
    refused = add("cy")
    assert refused.status == 2
    assert "cy is no analyst" in refused.err
    assert "[analyst.cy]" in refused.err
    assert Users(catalog.with_suffix(".users")).find("cy") is None
    assert "on the page alone" in add("dee", "--curator").err
    (catalog.parent / "c.ledger").unlink(missing_ok=True)
    told = dpsql("serve", catalog, "--check")
    assert "bo is no analyst" in told.err
    assert "ana is no analyst" not in told.err
    assert "dee is no analyst" not in told.err
