"""A ledger that cannot be written is read all the same; damage is never told as a lack of rights.

Media are read-only by the rights of folders, of files, and of both, for a user who is not root.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.connection import verify_ledger
from dpsql.dbapi.history import read_past
from dpsql.errors import CatalogError, Error, LedgerError
from tests.support.effort import effort

CATALOG = """
[budget]
epsilon = 10

[ledger]
anchor = "anchors"

[table.t]
source = "t.csv"
privacy_unit = "row"

[table.t.column]
g = { type = "integer", domain = [0, 3] }
"""
BY = "SELECT g, COUNT(*) AS n FROM t GROUP BY g"
PART = "SELECT COUNT(*) AS n FROM t WHERE g = 1"
OTHERS = 65534
"""The number of the user whom nothing belongs to."""
READING = ("SHOW tables", "SHOW budget", "SHOW ledger", "SHOW domains", "EXPLAIN " + BY, BY, PART)
DAMAGES = effort(60)


@pytest.fixture
def paid() -> Iterator[Path]:
    """A catalog with a ledger, in a folder that every user may look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "t.csv").write_text("g\n" + "\n".join(str(i % 4) for i in range(40)))
    (folder / "t.toml").write_text(CATALOG)
    with dpsql.connect(folder / "t.toml", epsilon=1) as connection:
        connection.execute(BY)
    yield folder / "t.toml"
    shutil.rmtree(folder)


@contextmanager
def read_only(folder: Path, what: str) -> Iterator[None]:
    """Take the rights to write from what a user owns, and be that user."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    found = [folder, *folder.rglob("*")]
    for each in found:
        os.chown(each, OTHERS, OTHERS)
        if each.is_dir():
            each.chmod(0o555 if what in ("folders", "all") else 0o755)
        else:
            each.chmod(0o444 if what in ("files", "all") else 0o600)
    os.seteuid(OTHERS)
    try:
        yield
    finally:
        os.seteuid(0)
        for each in found:
            each.chmod(0o755 if each.is_dir() else 0o600)


def content(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("leftovers", [True, False], ids=["as it was", "without locks"])
@pytest.mark.parametrize("what", ["folders", "files", "all"])
def test_reading_needs_no_writing(paid: Path, what: str, leftovers: bool) -> None:
    if not leftovers:
        for each in (*paid.parent.glob("*.lock"), *paid.parent.glob("*-journal")):
            each.unlink()
    with dpsql.connect(paid, epsilon=1) as connection:
        answers = connection.execute(BY).fetchall()
    before = content(paid.parent)
    with read_only(paid.parent, what):
        assert verify_ledger(paid).entries == 1
        past = read_past(paid)
        assert (len(past.moments), past.problem) == (2, None)
        with dpsql.connect(paid, epsilon=1) as connection:
            for sql in READING:
                connection.execute(sql).fetchall()
            assert connection.execute(BY).fetchall() == answers
            assert len(connection.entries()) == 2
            assert connection.budget.entries == 1
            if what != "folders":  # whose files may be written
                with pytest.raises(LedgerError, match="E_LEDGER_IO"):
                    connection.execute("SELECT SUM(g) AS s FROM t")
    if what != "folders":
        assert content(paid.parent) == before


def damaged(path: Path, draw: random.Random, at: int | None) -> None:
    body = bytearray(path.read_bytes())
    if at is None:
        del body[draw.randrange(len(body)) :]
    else:
        body[at] ^= 1 << draw.randrange(8)
    path.write_bytes(body)


@pytest.mark.parametrize("what", ["", "folders", "files", "all"])
def test_history_outlives_its_catalog_wherever_it_is_read_from(
    paid: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paid.parent)
    for broken in (paid.write_text("[x"), None):
        if broken is None:
            paid.unlink()
        with read_only(paid.parent, what) if what else nullcontext():
            past = read_past(paid.name)
        assert len(past.moments) == 2
        assert isinstance(past.problem, CatalogError)


@pytest.mark.parametrize("suffix", [".ledger", ".releases"])
def test_damage_is_not_told_as_a_lack_of_rights(paid: Path, suffix: str) -> None:
    draw, path = random.Random(17), paid.with_suffix(suffix)
    before = content(paid.parent)
    places = [
        *range(16, 24),
        *range(44, 48),
        *draw.sample(range(100), min(100, DAMAGES // 4)),
        None,
        None,
    ]
    places += draw.sample(range(len(before[path])), DAMAGES - len(places))
    found = set()
    for at in places:
        for each, body in before.items():
            if each.suffix != ".csv":  # of the same version
                each.write_bytes(body)
        damaged(path, draw, at)
        try:
            verify_ledger(paid)
            with dpsql.connect(paid, epsilon=1) as connection:
                connection.execute(BY).fetchall()
        except Error as error:  # nothing else may be raised
            found.add((error.code, "writable" in f"{error} {error.hint}"))
    codes = ("E_LEDGER_TAMPERED", "E_LEDGER_VERSION", "E_LEDGER_ROLLBACK")
    assert found <= {(code, False) for code in codes}
    assert ("E_LEDGER_TAMPERED", False) in found
