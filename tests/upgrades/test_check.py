"""``dpsql upgrade --check``: what a version would charge again of a ledger; it changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pytest

import dpsql
from dpsql.dbapi.connection import adopt_ledger, inspect, migrate_ledger
from dpsql.dbapi.upgrading import UpgradedRequest, asked_again
from dpsql.errors import LedgerError
from dpsql.ui.cli import run_command_line
from tests.engine.test_discover import sell
from tests.upgrades import ask
from tests.upgrades.test_upgrades import SUMMED

ANALYSTS = "\n[analyst.ana]\nepsilon = 50\n\n[analyst.ben]\nepsilon = 50\n"

BY_G = "SELECT g, COUNT(*) AS n FROM pay GROUP BY g"
SCRIPT = f"{BY_G}; SELECT AVG(net) AS a FROM pay -- of all\n; SELECT SUM(gross) AS s FROM pay"
CUT = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(clip = 'svt') SUM(gross) AS s, COUNT(*) AS n FROM pay"
)
DRAWN = (
    "CREATE SYNTHETIC TABLE drawn FROM pay OPTIONS (model = 'rap', epsilon = 1)"
    " FOR (SELECT g, COUNT(*) AS n FROM pay GROUP BY g)"
)


def clinic(folder: Path, more: str = "") -> Path:
    """The catalog of the corpus and its data in a folder of their own, with nothing charged."""
    folder = folder / "clinic"
    folder.mkdir()
    for each in (*ask.HERE.glob("*.toml"), *ask.HERE.glob("*.parquet")):
        shutil.copy(each, folder)
    path = folder / ask.CATALOG
    path.write_text(path.read_text() + more)
    return path


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Nothing in a folder may be written meanwhile; a lock has no content."""

    def contents() -> dict[Path, bytes]:
        return {e: e.read_bytes() for e in folder.rglob("*") if e.is_file() if e.suffix != ".lock"}

    before = contents()
    yield
    assert contents() == before


def check(path: Path) -> list[UpgradedRequest]:
    with unchanged(path.parent):
        return list(asked_again(path))


def test_what_a_kept_version_was_paid_for_is_free(tmp_path: Path) -> None:
    """The oldest, whose store lacks tables and whose sums have other weights."""
    path = clinic(tmp_path)
    with zipfile.ZipFile(ask.HERE / f"{SUMMED}.zip") as file:
        file.extractall(path.parent)
    adopt_ledger(path, "the corpus is a copy")
    with ask.known_by_name():
        found = check(path)
        with inspect(path) as curator:
            debits = [each.seq for each in curator.entries() if each.kind == "debit"]
        assert [each.entries for each in found] == [(seq,) for seq in debits]
        assert [each for each in found if not each.free] == []


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_requests_are_asked_as_they_were(tmp_path: Path, noise: str) -> None:
    path = clinic(tmp_path)
    with dpsql.connect(
        path, epsilon=Fraction(3, 10), delta=Fraction(1, 10**10), noise=noise
    ) as connection:
        connection.executescript(SCRIPT)
        connection.execute(CUT)
        connection.set("reuse", "never")
        connection.execute(BY_G)
        connection.execute(BY_G)
        connection.set("epsilon", "0.5")
        connection.execute(BY_G)
    found = check(path)
    # A search for a clip that hits nothing is made again, with an entry of its own.
    cut = next(each.entries for each in found if each.entries[0] == 2)
    plain = cut[-1] + 1
    assert cut in [(2, 3), (2, 3, 4)]
    assert [each.entries for each in found] == [(1,), cut, (plain,), (plain + 2,)]
    assert [each for each in found if not each.free] == []
    (path.parent / "clinic.releases").unlink()
    shutil.rmtree(path.parent / "clinic.releases-journal", ignore_errors=True)
    (path.parent / "clinic.releases-journal").unlink(missing_ok=True)
    lost = check(path)
    assert [each.sql.count(";\n") for each in lost if each.entries == (1,)] == [2]
    amounts = {each.entries: each.epsilon for each in lost}
    assert amounts[(1,)] == amounts[(plain,)] == Fraction(3, 10)
    assert amounts[(plain + 2,)] == Fraction(1, 2)
    assert not any(each.free for each in lost)


def test_tables_that_were_made_are_there(tmp_path: Path) -> None:
    path = clinic(tmp_path)
    with dpsql.connect(path) as connection:
        connection.execute(DRAWN)
    assert [each.free for each in check(path)] == [True]


def test_domains_are_free_while_they_stand_and_once_they_are_dropped(tmp_path: Path) -> None:
    path = sell(tmp_path / "shop")
    with dpsql.connect(path, epsilon=1) as connection:
        connection.execute("CREATE DOMAIN d FROM sales (product)")
        assert [each.free for each in check(path)] == [True]
        connection.execute("DROP DOMAIN d")
    assert [each.free for each in check(path)] == [True]


def test_what_a_wider_catalog_does_not_hold_is_charged_or_refused(tmp_path: Path) -> None:
    path = clinic(tmp_path)
    asked = [BY_G, "SELECT COUNT(*) AS n FROM people", "SELECT AVG(score) AS a FROM pay"]
    with dpsql.connect(path, epsilon=1) as connection:
        for sql in asked:
            connection.execute(sql)
    changed(path, "domain = [0, 3]", "domain = [0, 5]")
    changed(path, 'score = { type = "number", domain = [0, 100], bins = 50 }\n', "")
    with pytest.raises(LedgerError, match="E_POLICY_CHANGED"):
        check(path)
    migrate_ledger(path, "wider")
    wide, _, gone = check(path)
    assert (wide.sql, wide.epsilon, wide.refusal) == (asked[0], Fraction(1), None)
    assert (gone.sql, gone.epsilon) == (asked[2], Fraction(0))
    assert gone.refusal is not None
    assert "score" in gone.refusal.message


def test_long_sql_is_not_compared(tmp_path: Path) -> None:
    path = clinic(tmp_path)
    with dpsql.connect(path, epsilon=1) as connection:
        connection.executescript(";".join([BY_G] * 60))
    (found,) = check(path)
    assert found.refusal is not None
    assert "only the beginning" in found.refusal.message


def test_analysts_are_asked_for_each(tmp_path: Path) -> None:
    path = clinic(tmp_path)
    with dpsql.connect(path, epsilon=1) as connection:
        connection.execute(BY_G)
    path.write_text(path.read_text() + ANALYSTS)
    migrate_ledger(path)
    with dpsql.connect(path, epsilon=1, analyst="Ben") as connection:
        connection.execute("SELECT COUNT(*) AS n FROM visits")
    found = [(each.entries, each.analyst, each.free) for each in check(path)]
    assert [each[:2] for each in found] == [((1,), "ana"), ((1,), "ben"), ((3,), "ben")]
    assert found[-1][2]
    changed(path, "[analyst.ben]", "[analyst.eve]")
    migrate_ledger(path)
    gone = check(path)[-1]
    assert gone.analyst == "ben"
    assert gone.refusal is not None
    assert gone.refusal.code == "E_ANALYST"


def test_charges_of_which_nothing_came_are_not_owned(tmp_path: Path) -> None:
    path = clinic(tmp_path)
    failing = mock.patch("dpsql.engine.engine.measure", side_effect=MemoryError)
    with dpsql.connect(path, epsilon=1) as connection, failing, pytest.raises(dpsql.Error):
        connection.execute(BY_G)
    assert check(path) == []


@pytest.fixture
def closed() -> Iterator[Callable[[Path], None]]:
    """Close folders to writing, as read-only media are."""
    known: list[Path] = []

    def close(folder: Path) -> None:
        known.extend((folder, *(each for each in folder.rglob("*"))))
        for each in known:
            each.chmod(0o555 if each.is_dir() else 0o444)

    yield close
    for each in known:
        each.chmod(0o755 if each.is_dir() else 0o644)


def test_a_ledger_that_is_only_read_is_checked(
    tmp_path: Path, closed: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = clinic(tmp_path)
    with dpsql.connect(path, epsilon=1) as connection:
        connection.execute(BY_G)
    closed(path.parent)
    monkeypatch.setattr(
        os, "access", lambda place, mode, **_: bool(mode & ~os.W_OK) or mode == os.F_OK
    )  # root may write whatever a file says
    assert [each.free for each in check(path)] == [True]


def test_a_ledger_that_is_damaged_or_missing_is_refused(tmp_path: Path) -> None:
    path = clinic(tmp_path)
    with pytest.raises(LedgerError, match="E_LEDGER_MISSING"):
        check(path)
    with dpsql.connect(path, epsilon=1) as connection:
        connection.execute(BY_G)
    ledger = path.parent / "clinic.ledger"
    ledger.write_bytes(ledger.read_bytes().replace(b"laplace", b"lap1ace"))
    with pytest.raises(LedgerError, match="E_LEDGER_TAMPERED"):
        check(path)


def test_the_command_says_what_would_be_charged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(clinic(tmp_path))
    with dpsql.connect(path, epsilon=1) as connection:
        connection.execute(BY_G)
    assert run_command_line(["upgrade", "--check", path, "--format", "json"]) == 0
    told = capsys.readouterr()
    row = {"entry": "1", "analyst": "", "statement": BY_G, "now": "free"}
    assert json.loads(told.out) == [row]
    assert told.err == "1 free, 0 charged, 0 cannot be asked: ε 0 would be charged\n"
    changed(Path(path), "domain = [0, 3]", "domain = [0, 5]")
    assert run_command_line(["upgrade", path, "--check"]) == 3
    assert "[E_POLICY_CHANGED]" in capsys.readouterr().err
    migrate_ledger(path)
    assert run_command_line(["upgrade", path, "--check", "--format", "csv"]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines()[1].endswith(",would be charged ε 1")
    assert told.err == "0 free, 1 charged, 0 cannot be asked: ε 1 would be charged\n"
    assert run_command_line(["upgrade", path]) == 2
    assert f"hint: dpsql upgrade --check {path}" in capsys.readouterr().err
