"""Engines of other packages hand over keys: rows of several tables meet as those of files do."""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.dbapi.drafting import draft_catalog
from dpsql.privacy.vault.plugins import GROUP
from tests.support.packages import folder_of_packages, install
from tests.support.seam import zero_noise

STRANGER = Path(__file__).parent / "sqlite_engine"
BATCHES = """
import pyarrow.parquet as pq
from dpsql.data_engine import ArrowEngine, fingerprint

class Table:
    kind, table = "batches", ""
    def __init__(self, path):
        self.paths, self.schema = (path,), pq.read_schema(path)
    def fingerprint(self):
        return fingerprint(self.paths, str(self.schema))
    def batches(self, names):
        yield from pq.read_table(self.paths[0], columns=list(names)).to_batches(7)

ENGINE = ArrowEngine(lambda table: Table(table.source.partition("://")[2]))
"""
CATALOG = """
[budget]
epsilon = 100
delta = 1e-6
discovery_delta = 1e-7
[unit.buyer]
[table.buyers]
source = "{0}/buyers{1}"
privacy_unit = {{ column = "buyer", max_rows = 1 }}
[table.buyers.column]
kind = {{ type = "text", domain = ["x", "y"] }}
[table.lines]
source = "{0}/lines{1}"
privacy_unit = {{ column = "buyer", max_rows = 90 }}
references = {{ buyers = "buyer" }}
unit_keys = ["bill"]
unit_columns = ["friend"]
[table.lines.column]
shop = {{ type = "text", domain = "discover", max_keys = 4 }}
pieces = {{ type = "integer", domain = [0, 9] }}
[table.gifts]
source = "{0}/gifts{1}"
privacy_unit = {{ through = "lines", on = "bill", max_rows = 90 }}
[table.gifts.column]
size = {{ type = "integer", domain = [0, 2] }}
"""
ROWS: dict[str, dict[str, list[Any]]] = {
    "buyers": {"buyer": [*range(40)], "kind": ["xy"[i % 2] for i in range(40)]},
    "lines": {
        "buyer": [i // 6 for i in range(180)],
        "bill": [f"b{i // 6}-{i % 6}" if i % 7 else None for i in range(180)],
        "friend": [i * 7 % 50 if i % 5 else None for i in range(180)],
        "shop": ["abc"[i % 3 * i % 3] if i % 11 else None for i in range(180)],
        "pieces": [i * i % 10 for i in range(180)],
    },
    "gifts": {
        "bill": [f"b{i % 31}-{i % 8}" if i % 9 else None for i in range(90)],
        "size": [i % 3 for i in range(90)],
    },
}
STATEMENTS = (
    "SELECT kind, COUNT(DISTINCT bill) AS n FROM lines JOIN buyers USING (buyer) GROUP BY kind",
    "SELECT pieces, COUNT(*) FROM lines a WHERE bill IN "
    "(SELECT bill FROM lines b WHERE b.pieces = 4) GROUP BY pieces",
    "SELECT kind, COUNT(*) FROM lines l JOIN buyers b ON l.friend = b.buyer GROUP BY kind",
    "SELECT size, COUNT(*) FROM gifts GROUP BY size",
    "SELECT size, pieces, COUNT(*) FROM gifts JOIN lines USING (bill) GROUP BY size, pieces",
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same rows in files, in a database and in batches, and packages that read the last two."""
    database = tmp_path / "d.db"
    for name, columns in ROWS.items():
        table = pa.table(columns)
        for end in ("parquet", "batches"):  # a file has one ledger, whoever reads it
            pq.write_table(table, tmp_path / f"{name}.{end}")
        with closing(sqlite3.connect(database)) as connection, connection:
            kinds = ("TEXT" if each.type == pa.string() else "INTEGER" for each in table.schema)
            listed = ", ".join(f"{n} {k}" for n, k in zip(columns, kinds, strict=True))
            connection.execute(f"CREATE TABLE {name} ({listed})")
            marks = ", ".join("?" for _ in columns)
            rows = zip(*columns.values(), strict=True)
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    project = tomllib.loads((STRANGER / "pyproject.toml").read_text("utf-8"))["project"]
    module = (STRANGER / "sqlite_engine.py").read_text("utf-8")
    with folder_of_packages(tmp_path / "site", monkeypatch) as folder:
        install(folder, "sqlite_engine", module.replace("10_000", "13"), project["entry-points"])
        install(folder, "batches", BATCHES, {GROUP: {"batches": "batches:ENGINE"}})
        yield tmp_path


def answers(folder: Path, name: str, source: str, end: str) -> list[Any]:
    path = folder / name / "c.toml"
    path.parent.mkdir()
    text = CATALOG.format(source, end).replace("d.db/", "d.db#")
    path.write_text(text, encoding="utf-8")
    with zero_noise(), dpsql.connect(path, epsilon=5) as connection:
        found = [sorted(connection.execute(sql).result.rows) for sql in STATEMENTS]
        connection.execute("CREATE DOMAIN shops FROM lines (shop) OPTIONS (epsilon = 20)")
        shops = "SELECT shop, COUNT(DISTINCT buyer) FROM lines GROUP BY shop"
        return [*found, sorted(connection.execute(shops).result.rows, key=str)]


def test_rows_meet_by_keys_as_those_of_files_do(site: Path) -> None:
    files = answers(site, "files", str(site), ".parquet")
    assert [len(each) for each in files[:4]] == [2, 10, 2, 3]
    assert {shop for shop, _ in files[-1]} >= {"a", "b"}
    assert answers(site, "batches", f"batches://{site}", ".batches") == files
    drafted = tomllib.loads(draft_catalog(f"batches://{site}/lines.batches"))["table"]
    (draft,) = drafted.values()
    assert draft["source"] == f"batches://{site}/lines.batches"
    assert [*draft["column"]] == [*ROWS["lines"]]
    assert answers(site, "sqlite", f"sqlite://{site}/d.db", "") == files


SHORT = """
from sqlite_engine import SQLite, SQLiteTable

class Table(SQLiteTable):
    def read(self, asked, unit):
        batches = [*super().read(asked, unit)]
        yield from batches[1:] if bool(asked) is {} else batches

class Engine(SQLite):
    def open(self, table):
        found = SQLite.open(self, table)
        return Table(found.paths, found.table)

ENGINE = Engine()
"""


@pytest.mark.parametrize("which", [True, False])
def test_readings_of_different_rows_charge_nothing(which: bool, site: Path) -> None:
    module = SHORT.format(which)
    install(site / "site", "short", module, {GROUP: {"short": "short:ENGINE"}})
    path = site / "c.toml"
    path.write_text(CATALOG.format(f"short://{site}/d.db", "").replace("d.db/", "d.db#"))
    with dpsql.connect(path, epsilon=5) as connection:
        with pytest.raises(dpsql.Error) as caught:
            connection.execute(STATEMENTS[0])
        assert caught.value.code == "E_INTERNAL"
        assert connection.budget.entries == 0
