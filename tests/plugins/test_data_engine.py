"""Data engines of other packages: one that is sound is used end to end, broken ones are refused.

The sound one is tests/plugins/sqlite_engine, written as a stranger would: a project file and a
module.
"""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.errors import Error
from dpsql.privacy.doors.check_figures import Figures
from dpsql.privacy.vault.conformance import FORMS, find_faults
from dpsql.privacy.vault.files.duckdb import FILES
from dpsql.privacy.vault.plugins import GROUP
from dpsql.privacy.vault.public_rows import read_public
from dpsql.privacy.vault.vault import TableVault, Vault
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import AnyResolution, Nodes, cells_of
from tests.support.packages import folder_of_packages, install
from tests.support.seam import zero_noise
from tests.support.tables import insert

STRANGER = Path(__file__).parent / "sqlite_engine"
SALT = b"0123456789abcdef"
CATALOG = """
[budget]
epsilon = 100

[table.visits]
source = "{source}"
privacy_unit = {unit}

[table.visits.column]
ward = {{ type = "text", domain = ["A", "B", "C"], other = true, null = true }}
age = {{ type = "integer", domain = [0, 99], null = true }}
cost = {{ type = "number", bounds = [0, 100] }}
paid = {{ type = "number", domain = [0, 50], bins = 5 }}
day = {{ type = "date", domain = ["2024-01-01", "2024-02-29"], by = "month" }}
"""
ROWS: list[tuple[Any, ...]] = [
    (
        f"p{i % 90}" if i % 31 else None,
        [None, "A", "B", "C", "D", "\u00e9"][i % 6],
        None if i % 17 == 0 else i * 7 % 130 - 10,
        None if i % 23 == 0 else (i * 13 % 1200) / 10 - 5,
        float(i * 11 % 60),
        None if i % 19 == 0 else f"2024-0{1 + i % 3}-{1 + i % 28:02}",
    )
    for i in range(600)
]
TYPES = {
    "who": "TEXT",
    "ward": "TEXT",
    "age": "INTEGER",
    "cost": "REAL",
    "paid": "REAL",
    "day": "DATE",
}
STATEMENTS = (
    "SELECT COUNT(*) AS n FROM visits",
    "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
    "SELECT ward, SUM(cost) AS s, COUNT(*) AS n FROM visits WHERE age < 60 GROUP BY ward",
    "SELECT day, COUNT(DISTINCT who) AS n FROM visits GROUP BY day",
)
BROKEN = """
from sqlite_engine import SQLite, SQLiteTable
from dpsql.privacy.vault.data_engine import Batch, Values64

class Table(SQLiteTable):
    {table}

class Engine(SQLite):
    {engine}
    def open(self, table):
        found = SQLite.open(self, table)
        return Table(found.paths, found.table)

ENGINE = Engine()
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for installed packages, with that of the stranger."""
    project = tomllib.loads((STRANGER / "pyproject.toml").read_text("utf-8"))["project"]
    module = (STRANGER / "sqlite_engine.py").read_text("utf-8")
    with folder_of_packages(tmp_path / "site", monkeypatch) as folder:
        install(folder, "sqlite_engine", module, project["entry-points"])
        yield folder


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A folder with the same rows in a SQLite database and in a Parquet file."""
    listed = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    with closing(sqlite3.connect(tmp_path / "clinic.db")) as database, database:
        database.execute(f"CREATE TABLE visits ({listed})")
        database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?)", ROWS)
    with duckdb.connect() as scribe:
        types = listed.replace("TEXT", "VARCHAR").replace("REAL", "DOUBLE")
        scribe.execute(f"CREATE TABLE visits ({types})")
        insert(scribe, "visits", ROWS)
        scribe.execute(f"COPY visits TO '{tmp_path / 'visits.parquet'}'")
    return tmp_path


BY_ROW = '"row"'
BY_PERSON = '{ column = "who", max_rows = 3 }'


def catalog(folder: Path, name: str, source: str, unit: str = BY_PERSON) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(CATALOG.format(source=source, unit=unit), encoding="utf-8")
    return path


def sqlite_catalog(folder: Path, unit: str = BY_PERSON, engine: str = "sqlite") -> Path:
    return catalog(folder, f"of_{engine}", f"{engine}://{folder / 'clinic.db'}#visits", unit)


def refused(work: Callable[[], object]) -> Error:
    with pytest.raises(Error) as caught:
        work()
    return caught.value


@pytest.mark.parametrize("unit", [BY_ROW, BY_PERSON])
def test_vectors_are_those_of_the_same_rows_in_files(unit: str, stored: Path, site: Path) -> None:
    paths = sqlite_catalog(stored, unit), catalog(stored, "files", "visits.parquet", unit)
    tables = [read_catalog(path).tables["visits"] for path in paths]
    one, other = (TableVault(table, SALT) for table in tables)
    columns = tables[0].columns
    asked: list[tuple[str, list[AnyResolution]]] = [("", [])]
    asked += [(n, [cells_of(n, np.arange(c.size))]) for n, c in columns.items() if c.size]
    asked += [("cost", [Nodes("cost", 2, 1, 1000, ())]), ("paid", [Nodes("paid", 1, 5, 60, ())])]

    def vectors(vault: Vault) -> Iterator[Any]:
        yield vault.tally([cells_of("ward", np.arange(5)), cells_of("day", np.arange(2))])
        for name, resolutions in asked:
            narrow = vault.within(RowView((name,) if name else ()))
            yield narrow.tally(resolutions)
            if name and columns[name].size and not isinstance(resolutions[0], Nodes):
                yield narrow.tally(resolutions, True)

    for first, second in zip(vectors(one), vectors(other), strict=True):
        assert first.sum() > 0
        np.testing.assert_array_equal(first, second)


def test_a_table_is_used_end_to_end(stored: Path, site: Path) -> None:
    answers = []
    roomy = BY_PERSON.replace("3", "9")  # ledgers have salts of their own: nobody has too many rows
    for path in (sqlite_catalog(stored, roomy), catalog(stored, "f", "visits.parquet", roomy)):
        with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
            for sql in STATEMENTS:
                assert connection.explain(sql).statements[0].errors
            assert connection.budget.entries == 0
            answers.append([connection.execute(sql).result for sql in STATEMENTS])
            assert connection.budget.entries == len(STATEMENTS)
            again = connection.execute(STATEMENTS[1]).result
            assert again.cost is not None
            assert again.cost.free
    for one, other in zip(*answers, strict=True):
        assert one.rows == other.rows
        assert one.stddev == other.stddev


def test_the_curator_is_told_exact_figures(stored: Path, site: Path) -> None:
    paths = sqlite_catalog(stored), catalog(stored, "files", "visits.parquet")
    (one,), (other,) = (examine(chosen_tables(path, None)) for path in paths)
    assert isinstance(one, Figures)
    assert isinstance(other, Figures)
    assert (one.kind, one.files, other.kind) == ("sqlite", 1, "parquet")
    assert (one.rows, one.unowned, one.least, one.dropped) == (
        *(other.rows, other.unowned, other.least, other.dropped),
    )
    for first, second in zip(one.columns, other.columns, strict=True):
        assert (first.nulls, first.undeclared) == (second.nulls, second.undeclared)
        assert sorted(map(str, first.values)) == sorted(map(str, second.values))


def test_a_changed_database_is_another_version(stored: Path, site: Path) -> None:
    with dpsql.connect(sqlite_catalog(stored), epsilon=1) as connection:
        connection.execute(STATEMENTS[0])
        with closing(sqlite3.connect(stored / "clinic.db")) as database, database:
            database.execute("DELETE FROM visits WHERE age > 40")
        assert refused(lambda: connection.execute(STATEMENTS[1])).code == "E_DATA"
        assert connection.budget.entries == 1


def test_the_rows_are_charged_to_one_ledger(stored: Path, site: Path) -> None:
    with dpsql.connect(sqlite_catalog(stored), epsilon=1) as connection:
        connection.execute(STATEMENTS[0])
    (stored / "link.db").symlink_to("clinic.db")
    twin = catalog(stored, "twin", f"sqlite://{stored / 'link.db'}#visits")
    with dpsql.connect(twin, epsilon=1) as connection:
        assert refused(lambda: connection.execute(STATEMENTS[0])).code == "E_LEDGER_MISMATCH"


def test_one_catalog_gives_no_second_budget(stored: Path, site: Path) -> None:
    path = sqlite_catalog(stored)
    text = path.read_text("utf-8")
    (stored / "link.db").symlink_to("clinic.db")
    twin = text[text.index("[table.visits]") :].replace("table.visits", "table.twin")
    twin = twin.replace("clinic.db", "link.db").replace(
        "max_rows = 3 }", "max_rows = 3 }\nbudget = { epsilon = 1 }"
    )
    path.write_text(text + twin, encoding="utf-8")
    with dpsql.connect(path, epsilon=1) as connection:
        assert refused(lambda: connection.execute(STATEMENTS[0])).code == "E_POLICY"
        assert connection.budget.entries == 0


def test_a_folder_with_the_database_is_not_granted(stored: Path, site: Path) -> None:
    error = refused(lambda: dpsql.connect(sqlite_catalog(stored), epsilon=1, files=stored))
    assert error.code == "E_FILES"


@pytest.mark.parametrize(
    ("source", "code", "why"),
    [
        ("sqlite://{}/gone.db#visits", "E_DATA", "no such file"),
        ("sqlite://clinic.db#visits", "E_DATA", "absolute"),
        ("sqlite://{}/clinic.db#other", "E_DATA", "no table of that name"),
        ("mysql://{}/clinic.db#visits", "E_DATA", "no installed package has a data engine 'mysql'"),
    ],
)
def test_a_source_that_does_not_open_charges_nothing(
    source: str, code: str, why: str, stored: Path, site: Path
) -> None:
    path = catalog(stored, "bad", source.format(stored))
    with dpsql.connect(path, epsilon=1) as connection:
        assert connection.explain(STATEMENTS[0]).statements
        error = refused(lambda: connection.execute(STATEMENTS[0]))
        assert (error.code, why in f"{error}") == (code, True)
        assert connection.budget.entries == 0


PUBLIC = """public = true
[table.visits.column]
day = { type = "date" }
"""


def test_public_rows_are_those_that_are_stored(stored: Path, site: Path) -> None:
    path = sqlite_catalog(stored)
    text = path.read_text("utf-8")
    path.write_text(f"{text[: text.index('[table.visits.column]')]}{PUBLIC}", "utf-8")
    path.write_text(re.sub("privacy_unit.*\n", "", path.read_text("utf-8")), "utf-8")
    found = read_public(read_catalog(path).tables["visits"])
    assert [kind for kind, _ in found.values()] == [
        *("VARCHAR", "VARCHAR", "BIGINT", "DOUBLE", "DOUBLE", "DATE")
    ]
    rows = [(*row[:5], row[5] and dt.date.fromisoformat(row[5])) for row in ROWS]
    assert [*zip(*(values for _, values in found.values()), strict=True)] == rows


READ = "def read(self, asked, unit):\n        "
WRONG = {
    "version": ("version = 7", "pass", "E_ENGINE", "version 7"),
    "no version": ("version = None", "pass", "E_ENGINE", "version None"),
    "open": ("pass", "def __init__(self, *_): raise ValueError('Ann')", "E_ENGINE", "withheld"),
    "columns": ("pass", "columns = ('who', 'ward')", "E_ENGINE", "withheld"),
    "families": ("pass", "columns = (('who', 'secret'),)", "E_ENGINE", "does not describe"),
    "kind": ("pass", "kind = None", "E_ENGINE", "does not describe"),
    "fingerprint": ("pass", "def fingerprint(self): 1 / 0", "E_ENGINE", "withheld"),
    "types": (
        "pass",
        "columns = (('who', 'text'), ('ward', 'date'))",
        "E_POLICY",
        "stored as date",
    ),
    "read": ("pass", READ + "raise ValueError('Ann Example')", "E_INTERNAL", "withheld"),
    "late": ("pass", READ + "yield from super().read(asked, unit); 1 / 0", "E_INTERNAL", ""),
    "floats": (
        "pass",
        READ + "for b in super().read(asked, unit): yield Batch(b.rows, [Values64(v.numbers * 0.5,"
        " v.missing, v.unknown) for v in b.columns], b.units, b.owned)",
        "E_INTERNAL",
        "",
    ),
    "lengths": (
        "pass",
        READ + "for b in super().read(asked, unit): yield Batch(b.rows - 1, b.columns, b.units,"
        " b.owned)",
        "E_INTERNAL",
        "",
    ),
    "units": (
        "pass",
        READ + "for b in super().read(asked, None): yield b",
        "E_INTERNAL",
        "",
    ),
}


@pytest.mark.parametrize("which", WRONG)
def test_a_broken_engine_is_refused_before_any_charge(which: str, stored: Path, site: Path) -> None:
    engine, table, code, why = WRONG[which]
    module = BROKEN.format(engine=engine, table=table)
    install(site, "broken_engine", module, {GROUP: {"broken": "broken_engine:ENGINE"}})
    with dpsql.connect(sqlite_catalog(stored, engine="broken"), epsilon=1) as connection:
        error = refused(lambda: connection.execute(STATEMENTS[1]))
        assert (error.code, why in f"{error}") == (code, True)
        assert "Ann" not in f"{error}"
        assert error.__cause__ is None
        assert error.__context__ is None
        assert connection.budget.entries == 0


def test_an_engine_that_two_packages_declare_or_that_is_not_there_is_refused(
    stored: Path, site: Path
) -> None:
    install(site, "again", "", {GROUP: {"sqlite": "again:ENGINE", "lost": "again:LOST"}})
    for name, why in (("sqlite", "several"), ("lost", "cannot be loaded")):
        with dpsql.connect(sqlite_catalog(stored, engine=name), epsilon=1) as connection:
            error = refused(lambda: connection.execute(STATEMENTS[0]))
            assert (error.code, why in error.message) == ("E_ENGINE", True)


SQL_TYPES = {"integer": "INTEGER", "float": "REAL", "text": "TEXT", "date": "DATE"}
ODD: dict[str, Sequence[object]] = {
    "integer": ["x", 0.5, b"\xff", 1e300],
    "float": ["x", b"\xff"],
    "text": [b"\xff", b"A\xff"],
    "date": ["0000-00-00", 5, 1e300, b"\xff", "tomorrow"],
    **dict.fromkeys(("decimal", "boolean", "timestamp", "time"), ()),
}


def engine(name: str) -> Any:
    (point,) = entry_points(group=GROUP, name=name)
    return point.load()


def test_the_promises_of_an_engine_are_tried(tmp_path: Path, site: Path) -> None:
    numbers = count()

    def write(family: str, rows: Sequence[Any]) -> str:
        path, kind = tmp_path / f"{next(numbers)}.db", SQL_TYPES[family]
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f"CREATE TABLE t (v {kind}, u {kind})")
            plain = [[str(v) if isinstance(v, dt.date) else v for v in row] for row in rows]
            database.executemany("INSERT INTO t VALUES (?, ?)", plain)
        return f"sqlite://{path}#t"

    assert find_faults(engine("sqlite"), write, ODD) == []
    faulty = {
        "dropping": "yield from list(super().read(asked, unit))[:0]",
        "raising": "assert not any(b.columns[0].missing.any() for b in super().read(asked, unit))",
        "reaching": "for b in super().read(asked, unit): yield Batch(b.rows, [Values64(v.numbers,"
        " v.missing | v.missing.any(), v.unknown & False) for v in b.columns], b.units, b.owned)",
        "turning": "for b in super().read(asked, unit): yield b if unit else Batch(b.rows, ["
        "Values64(v.numbers[::-1], v.missing[::-1], v.unknown[::-1]) for v in b.columns])",
    }
    for name, body in faulty.items():
        module = BROKEN.format(engine="pass", table=READ + body + "\n        yield from ()")
        install(site, name, module, {GROUP: {name: f"{name}:ENGINE"}})
        few: dict[str, Sequence[object]] = {each: [] for each in FORMS if each != "float"}
        assert find_faults(engine(name), write, few) != []


@pytest.mark.slow
def test_the_engine_of_files_keeps_its_promises(tmp_path: Path) -> None:
    numbers = count()
    kinds = {"integer": "BIGINT", "float": "DOUBLE", "text": "VARCHAR", "date": "DATE"}
    with duckdb.connect() as scribe:

        def write(family: str, rows: Sequence[Any]) -> str:
            path = tmp_path / f"{next(numbers)}.parquet"
            scribe.execute(f"CREATE OR REPLACE TABLE t (v {kinds[family]}, u {kinds[family]})")
            if rows:
                insert(scribe, "t", rows)
            scribe.execute(f"COPY t TO '{path}'")
            return str(path)

        others: dict[str, Sequence[object]] = {each: [] for each in FORMS if each != "text"}
        assert find_faults(FILES, write, others) == []
