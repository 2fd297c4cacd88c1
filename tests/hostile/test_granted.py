"""SQL alone reaches no file: one folder is granted, and errors quote nothing of its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.engine.granted_files import GrantedFiles
from dpsql.errors import UsageError
from tests.support.people import people

SECRET = "s3cret"
READ = "CREATE SYNTHETIC TABLE s FROM people OPTIONS (epsilon = 1) FOR WORKLOAD '{}'"
WRITE = "MATERIALIZE SYNTHETIC TABLE drawn INTO '{}' ROWS = 2"
MAKE = (
    "CREATE SYNTHETIC TABLE drawn FROM people OPTIONS (epsilon = 1) "
    "FOR (SELECT sex, COUNT(*) FROM people GROUP BY sex)"
)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The granted folder."""
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


@pytest.fixture
def world(tmp_path: Path, own: Path) -> Iterator[Connection]:
    """A connection that is granted the folder, with something to draw rows from."""
    with dpsql.connect(people(tmp_path / "w"), files=own) as connection:
        connection.execute(MAKE)
        yield connection


def refused(action: Callable[[], object]) -> dpsql.Error:
    with pytest.raises(dpsql.Error) as caught:
        action()
    assert SECRET not in str(caught.value)
    return caught.value


def files_in(folder: Path) -> dict[str, bytes]:
    """The contents of all files but of the ledger and what goes with it."""
    skip = (".ledger", ".lock", ".anchor", ".synthetic", ".releases")
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): path.read_bytes() for path in found if not str(path).endswith(skip)}


@pytest.mark.parametrize("sql", [READ, WRITE])
def test_without_a_grant_no_file_is_reached(tmp_path: Path, own: Path, sql: str) -> None:
    (own / "there.sql").write_text(f"SELECT {SECRET}")
    with dpsql.connect(people(tmp_path / "w")) as connection:
        connection.execute(MAKE)
        before, spent = files_in(tmp_path), connection.entries()
        names = [str(own / "there.sql"), str(own / "not.sql"), "there.sql", "x.csv", "/etc/passwd"]
        errors = {str(refused(lambda n=name: connection.execute(sql.format(n)))) for name in names}  # type: ignore[misc]
        assert len(errors) == 1
        assert "[E_FILES]" in errors.pop()
        assert (files_in(tmp_path), connection.entries()) == (before, spent)


OUTSIDE = (
    "{up}/there.{ext}",
    "{up}/missing.{ext}",
    "{up}/no/folder.{ext}",
    "../there.{ext}",
    "../missing.{ext}",
    "sub/../../there.{ext}",
    "sub/../there.{ext}",
    "link.{ext}",
    "dangling.{ext}",
    "out/there.{ext}",
    "out/missing.{ext}",
    "{up}/w/../own/there.{ext}",
    "",
    ".",
    "\0",
)


@pytest.mark.parametrize(("sql", "ext"), [(READ, "sql"), (WRITE, "csv")])
def test_outside_the_folder_nothing_is_reached_or_told(
    world: Connection, tmp_path: Path, own: Path, sql: str, ext: str
) -> None:
    (tmp_path / f"there.{ext}").write_text(f"SELECT {SECRET}")
    (own / "sub").mkdir()
    (own / f"link.{ext}").symlink_to(tmp_path / f"there.{ext}")
    (own / f"dangling.{ext}").symlink_to(tmp_path / f"missing.{ext}")
    (own / "out").symlink_to(tmp_path)
    before = files_in(tmp_path)
    for pattern in OUTSIDE:
        name = pattern.format(up=tmp_path, ext=ext)
        error = refused(lambda name=name: world.execute(sql.format(name)))  # type: ignore[misc]
        if error.code == "E_FILES":
            assert error.message.endswith("is not in the folder that SQL is granted")
        else:
            assert name in ("", ".", "\0"), (name, error)
    assert files_in(tmp_path) == before


def test_a_folder_that_follows_links_is_found(
    world: Connection, tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_name_alone(self: GrantedFiles, name: str) -> Path:
        assert self.folder is not None
        return self.folder / name

    monkeypatch.setattr(GrantedFiles, "find", by_name_alone)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_outside_the_folder_nothing_is_reached_or_told(world, tmp_path, own, WRITE, "csv")


def test_within_the_folder_files_are_read_and_written(world: Connection, own: Path) -> None:
    (own / "sub").mkdir()
    (own / "sub" / "w.sql").write_text("SELECT ward, COUNT(*) FROM people GROUP BY ward")
    world.execute(READ.format("sub/w.sql"))
    world.execute(WRITE.format(own / "sub" / "rows.csv"))
    assert (own / "sub" / "rows.csv").stat().st_mode & 0o077 == 0
    assert refused(lambda: world.execute(WRITE.format("sub/rows.csv"))).code == "E_OUTPUT"


WRONG = (
    f"SELECT {SECRET} FROM people",
    f"SELECT COUNT(*) FROM {SECRET}",
    f"SELECT COUNT(*) FROM people WHERE sex = '{SECRET}'",
    f"SELECT COUNT(*) FROM people;\n {SECRET} -- a password",
    f"SELECT COUNT(*) AS {SECRET} FROM people OPTIONS(epsilon = 1)",
    f"SELECT COUNT(*) FROM people WHERE age > {SECRET}(1)",
    f"'{SECRET}",
    f"DROP TABLE {SECRET}",
    f"SELECT AVG(cost) AS {SECRET} FROM people",
    f"SELECT COUNT(*) AS {SECRET} FROM other",
    f"CREATE SYNTHETIC TABLE {SECRET} FROM people FOR (SELECT COUNT(*) FROM people)",
)


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("explain", ["", "EXPLAIN "])
def test_errors_quote_nothing_of_a_file(
    world: Connection, own: Path, text: str, explain: str
) -> None:
    (own / "w.sql").write_text(text)
    error = refused(lambda: world.execute(explain + READ.format("w.sql")))
    assert "w.sql" in error.message
    assert error.__cause__ is None
    entry = world.entries()[-1]
    assert entry.epsilon == "1"
    assert entry.seq == 1


def test_errors_that_quote_a_file_are_found(
    world: Connection, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.engine.learn.unquoted", lambda *_: nullcontext())
    with pytest.raises(AssertionError):
        test_errors_quote_nothing_of_a_file(world, own, WRONG[0], "")


def test_a_file_that_is_no_text_or_never_ends_is_refused(world: Connection, own: Path) -> None:
    (own / "binary.sql").write_bytes(b"\xff" + SECRET.encode())
    (own / "folder.sql").mkdir()
    os.mkfifo(own / "pipe.sql")
    for name in ("binary.sql", "folder.sql", "pipe.sql", "none.sql"):
        assert refused(lambda name=name: world.execute(READ.format(name))).code == "E_INPUT"  # type: ignore[misc]


def sourced(folder: Path, source: str) -> Path:
    """A catalog with a source of its own."""
    catalog = folder / "catalog" / "c.toml"
    catalog.parent.mkdir()
    catalog.write_text(
        f'[budget]\nepsilon = 1\n[table.t]\nsource = "{source}"\nprivacy_unit = "row"\n'
        '[table.t.column]\na = { type = "integer", domain = [0, 1] }\n'
    )
    return catalog


@pytest.mark.parametrize(
    ("source", "granted", "fine"),
    [
        ("data/a.csv", "data", False),
        ("data/a.csv", ".", False),
        ("data/a.csv", "data/deeper", True),
        ("data/a.csv", "other", True),
        ("linked/a.csv", "data", False),
        ("data/to.csv", "other", False),
        ("data/*.csv", "data", False),
        ("data/*.csv", "data/deeper", False),
        ("data/**/*.csv", "data/deeper", False),
        ("*/deeper/*.csv", "other", False),
        ("d*/*.csv", "other", False),
        ("data/x-*.csv", "other", True),
        ("data/missing.csv", "data", False),
        ("data/missing.csv", "other", True),
        ("data/a.csv", "catalog", False),
        ("data/a.csv", "state", False),
        ("data/a.csv", "state/dpsql/anchors/in", False),
        ("data/a.csv", "data/a.csv", False),
        ("data/a.csv", "nowhere", False),
    ],
)
def test_a_folder_of_sources_is_never_granted(
    tmp_path: Path, source: str, granted: str, fine: bool
) -> None:
    for name in ("data/deeper", "other", "state/dpsql/anchors/in"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data" / "a.csv").write_text("a\n1\n")
    (tmp_path / "other" / "real.csv").write_text("a\n1\n")
    (tmp_path / "data" / "to.csv").symlink_to(tmp_path / "other" / "real.csv")
    (tmp_path / "linked").symlink_to(tmp_path / "data")
    catalog = sourced(tmp_path, f"{tmp_path}/{source}")
    if fine:
        dpsql.connect(catalog, files=tmp_path / granted).close()
        return
    with pytest.raises(UsageError) as caught:
        dpsql.connect(catalog, files=tmp_path / granted)
    assert caught.value.code == "E_FILES"


def test_a_terminal_grants_where_it_is_unless_data_lie_there(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = people(tmp_path / "w")
    for place, folder in ((own, own), (catalog.parent, None), (tmp_path, None)):
        monkeypatch.chdir(place)
        with dpsql.connect(catalog) as connection:
            assert connection.engine.granted == GrantedFiles()
            connection.grant_here()
            assert connection.engine.granted.folder == folder
