"""Rows are of one version of the files, even where another has the same sizes and times.

Columns may be read one after the other, and are lined up by place. In both versions all columns of
a row are the same; a row that was made of two persons would be seen off the diagonal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.privacy.vault import vault
from dpsql.privacy.vault.stored_rows import StoredRows
from tests.support.seam import zero_noise

CATALOG = """[budget]
epsilon = 10000
delta = 1e-4
discovery_delta = 9e-5
[table.t]
source = "t*.{}"
privacy_unit = "row"
[table.t.column]
a = {{ type = "integer", domain = [0, 1] }}
b = {{ type = "integer", domain = [0, 1] }}
key = {{ type = "text", domain = "discover", max_keys = 1 }}
"""
BOTH = "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b"
STATEMENTS = (
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
    "SELECT b, COUNT(*) AS n FROM t GROUP BY b",
    BOTH,
    "CREATE DOMAIN keys FROM t (key) OPTIONS (epsilon = 50)",
)


def replaced(folder: Path, ending: str) -> None:
    """A file with the rows in the other order, of the same size, said to be as old as it was."""
    path, other = folder / f"t.{ending}", folder / f"u.{ending}"
    facts = path.stat()
    other.write_bytes((folder / f"second.{ending}").read_bytes())
    os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    other.replace(path)


def overwritten(folder: Path, ending: str) -> None:
    """The same in its place."""
    path = folder / f"t.{ending}"
    facts = path.stat()
    path.write_bytes((folder / f"second.{ending}").read_bytes())
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.fixture(params=["parquet", "csv"])
def ending(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def session(tmp_path: Path, ending: str) -> Iterator[Connection]:
    how = "(FORMAT parquet, COMPRESSION uncompressed)" if ending == "parquet" else ""
    with duckdb.connect() as scribe:
        for name, order in (("t", "i"), ("second", "-i")):
            scribe.execute(
                f"COPY (SELECT i % 2 AS a, i % 2 AS b, 'k' || i % 2 AS key FROM range(1000) r(i)"
                f" ORDER BY {order}) TO '{tmp_path}/{name}.{ending}' {how}"
            )
    assert (tmp_path / f"t.{ending}").stat().st_size == (
        tmp_path / f"second.{ending}"
    ).stat().st_size
    (tmp_path / "c.toml").write_text(CATALOG.format(ending))
    with zero_noise(), dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        yield connection


def check(session: Connection, sql: str) -> bool:
    """Ask, and look at the diagonal; say whether it was refused, uncharged."""
    charges, code = len(session.entries()), ""
    try:
        found = session.execute(sql).fetchall()
    except dpsql.Error as error:
        code, found = error.code, []
    assert code in ("", "E_DATA", "E_INTERNAL")
    assert not code or len(session.entries()) == charges or sql.startswith("CREATE")
    if sql == BOTH:
        assert [row for row in found if row[0] != row[1] and row[2] != 0] == []
    return bool(code)


@pytest.mark.parametrize("change", [replaced, overwritten])
@pytest.mark.parametrize("before", range(len(STATEMENTS)))
def test_rows_are_of_one_version(
    session: Connection, change: Callable[[Path, str], None], before: int, ending: str
) -> None:
    folder = session.catalog.path.parent
    for sql in STATEMENTS[:before]:
        assert not check(session, sql)
    change(folder, ending)
    for sql in STATEMENTS[before:]:
        check(session, sql)
    session.engine.reopen()
    for sql in STATEMENTS[:3]:
        assert not check(session, sql)


def test_a_file_that_changes_while_it_is_read_is_refused(
    session: Connection, ending: str, tmp_path: Path
) -> None:
    read = StoredRows.read

    def read_and_change(self: StoredRows, columns: frozenset[str]) -> object:
        found = read(self, columns)
        replaced(tmp_path, ending)
        return found

    with mock.patch.object(StoredRows, "read", read_and_change):
        assert check(session, STATEMENTS[0])


# All columns of a CSV file are read at once: none are of another version.
@pytest.mark.parametrize("ending", ["parquet"], indirect=True)
def test_the_planted_fault_is_found(
    session: Connection, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes and times alone: rows of Parquet are then made of two persons each."""
    monkeypatch.setattr(vault, "written", lambda paths: ())
    assert not check(session, STATEMENTS[0])
    replaced(session.catalog.path.parent, ending)
    with pytest.raises(AssertionError):
        check(session, BOTH)
