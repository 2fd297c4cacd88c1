"""An engine of another package with all rights: it counts where its rows are, and is public."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.errors import Error
from dpsql.privacy.doors.check_figures import Figures
from dpsql.privacy.vault.conformance import HOSTILE, count_faults, find_faults
from dpsql.privacy.vault.pushdown import PushedCodes
from tests.support.effort import effort
from tests.support.packages import folder_of_packages, install
from tests.support.seam import zero_noise
from tests.support.tables import insert

STRANGER = Path(__file__).parent / "duck_engine"
SQL = {
    "integer": "BIGINT",
    "float": "DOUBLE",
    "text": "VARCHAR",
    "date": "DATE",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "time": "TIME",
}
NONE: Mapping[str, Sequence[object]] = {"decimal": []}
EACH_TIME = ("text", "float", "timestamp")
"""Families whose rows are streamed at every run, each from a table of its own; all are counted."""


def installed(folder: Path, name: str = "duck_engine", change: tuple[str, str] = ("", "")) -> Any:
    """Install the stranger's package, and return its engine."""
    module = (STRANGER / "duck_engine.py").read_text("utf-8")
    assert change[0] in module
    points = tomllib.loads((STRANGER / "pyproject.toml").read_text("utf-8"))["project"]
    found = points["entry-points"]["dpsql.data_engines"]
    listed = {
        (key if name == "duck_engine" else name): value.replace("duck_engine", name)
        for key, value in found.items()
    }
    text = module.replace(*change) if change[0] else module
    install(folder, name, text, {"dpsql.data_engines": listed})
    (point,) = entry_points(group="dpsql.data_engines", name=next(iter(listed)))
    return point.load()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with folder_of_packages(tmp_path / "site", monkeypatch) as folder:
        yield folder


class Writer:
    """Tables of rows of one family, each in a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.numbers = folder, count()

    def __call__(self, family: str, rows: Sequence[Any]) -> str:
        path, kind = self.folder / f"{next(self.numbers)}.db", SQL[family]
        with duckdb.connect(str(path)) as database:
            database.execute(f"CREATE TABLE t (v {kind}, u {kind})")
            if rows:
                insert(database, "t", rows)
        return f"duck://{path}#t"


@pytest.mark.parametrize("family", SQL)
def test_counts_are_those_of_rows(family: str, tmp_path: Path, site: Path) -> None:
    assert count_faults(installed(site), Writer(tmp_path), family, HOSTILE[family]) == []


@pytest.mark.slow
def test_the_kit_finds_no_fault_in_an_engine_with_all_rights(tmp_path: Path, site: Path) -> None:
    left = [] if effort(1) > 1 else [each for each in HOSTILE if each not in EACH_TIME]
    more: dict[str, Sequence[object]] = {**NONE, **{family: [] for family in left}}
    assert find_faults(installed(site), Writer(tmp_path), more) == []


TEXT = "text"
FAULTS = {
    "dropped": ("yield from self._connection", "yield from [] and self._connection", "text"),
    "halves": ("round_even({double}, 0)", "ceil({double})", "float"),
    "owners": (
        "return OwnerSql(column, column, known)",
        "return OwnerSql('1', '1', known)",
        "text",
    ),
    "days": ("1970-01-01', {day}", "1970-01-02', {day}", "date"),
    "raising": ("CASE WHEN isfinite({column})", "CASE WHEN error('x') IS NULL", "date"),
}


@pytest.mark.parametrize("which", FAULTS)
def test_the_kit_finds_what_is_counted_otherwise(which: str, tmp_path: Path, site: Path) -> None:
    *change, family = FAULTS[which]
    engine = installed(site, f"of_{which}", (change[0], change[1]))
    assert count_faults(engine, Writer(tmp_path), family, HOSTILE[family])


CATALOG = """
[budget]
epsilon = 100
[table.visits]
source = {0}
privacy_unit = {{ column = "who", max_rows = 5 }}
[table.visits.column]
ward = {{ type = "text", domain = ["A", "B", "C"], other = true, null = true }}
cost = {{ type = "number", bounds = [0, 100] }}
day = {{ type = "date", domain = ["2024-01-01", "2024-03-31"], by = "month" }}
[table.wards]
source = {1}
public = true
[table.wards.column]
opened = {{ type = "date" }}
"""
VISITS = pa.table(
    {
        "who": [f"p{i % 40}" for i in range(200)],
        "ward": [("A", "B", "C", None, "x")[i % 5] for i in range(200)],
        "cost": [float(i % 120) for i in range(200)],
        "day": [dt.date(2024, 1 + i % 4, 1 + i % 28) for i in range(200)],
    }
)
WARDS = pa.table(
    {
        "ward": ["A", "B", "C"],
        "floor": pa.array([1, 2, None], pa.int64()),
        "beds": [10.5, 20.0, 7.0],
        "open": [True, False, None],
        "opened": [dt.date(1999, 5, 1), None, dt.date(2010, 1, 2)],
        "at": [dt.datetime(2020, 1, 1, 8), None, None],
        "until": [dt.time(18), dt.time(20, 30), None],
    }
)
STATEMENTS = (
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits GROUP BY ward",
    "SELECT day, COUNT(DISTINCT who) AS n FROM visits WHERE ward <> 'B' GROUP BY day",
    "SELECT floor, COUNT(*) AS n FROM visits JOIN wards USING (ward) GROUP BY floor",
    "SELECT open, COUNT(*) AS n FROM visits JOIN wards USING (ward) "
    "WHERE opened < DATE '2005-01-01' OR beds < 10 GROUP BY open",
)


@pytest.fixture
def stored(tmp_path: Path, site: Path) -> Path:
    """The same tables in a database, and in files, and the package that reads the first."""
    installed(site)
    for name, table in (("visits", VISITS), ("wards", WARDS)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
        with duckdb.connect(str(tmp_path / f"{name}.db")) as database:
            database.register("r", table)
            database.execute(f"CREATE TABLE {name} AS FROM r")
    return tmp_path


def catalog(folder: Path, *sources: str) -> Path:
    path = folder / f"{abs(hash(sources))}" / "c.toml"
    path.parent.mkdir()
    path.write_text(CATALOG.format(*sources), "utf-8")
    return path


def duck(folder: Path, table: str, read: str = "") -> str:
    more = f', read = "{read}"' if read else ""
    return f'{{ engine = "duck", table = "{folder}/{table}.db#{table}"{more} }}'


def answers(path: Path) -> list[Any]:
    with zero_noise(), dpsql.connect(path, epsilon=5) as connection:
        return [sorted(connection.execute(s).result.rows, key=str) for s in STATEMENTS]


def test_answers_are_those_of_files(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    load = PushedCodes.load

    def noted(codes: PushedCodes) -> None:
        asked.append(codes)
        load(codes)

    monkeypatch.setattr(PushedCodes, "load", noted)
    files = answers(catalog(stored, '"../visits.parquet"', '"../wards.parquet"'))
    assert not asked
    assert answers(catalog(stored, duck(stored, "visits", "push"), duck(stored, "wards"))) == files
    assert asked


def test_what_is_counted_there_is_forecast_checked_and_free_again(stored: Path) -> None:
    path = catalog(stored, duck(stored, "visits", "push"), f'"duck://{stored}/wards.db#wards"')
    with dpsql.connect(path, epsilon=1) as connection:
        told = str(connection.explain(STATEMENTS[0]))
        assert "counted in duck" in told
        assert "CASE WHEN" in told
        first = connection.execute(STATEMENTS[0]).result
        again = connection.execute(STATEMENTS[0]).result
        assert again.cost is not None
        assert again.cost.free
        assert again.rows == first.rows
    (found,) = examine(chosen_tables(path, "visits"))
    assert isinstance(found, Figures)
    assert (found.kind, found.files, found.rows) == ("duck", 1, 200)


def test_an_engine_that_does_not_count_is_not_asked_to(stored: Path, site: Path) -> None:
    name = "only_batches"
    installed(site, name, ("def open_counter", "def no_counter"))
    source = duck(stored, "visits", "push").replace('"duck"', f'"{name}"')
    with dpsql.connect(catalog(stored, source, duck(stored, "wards")), epsilon=1) as connection:
        with pytest.raises(Error) as caught:
            connection.execute(STATEMENTS[0])
        assert (caught.value.code, "counts no rows" in f"{caught.value}") == ("E_DATA", True)
        assert connection.budget.entries == 0


def test_counts_that_are_no_integers_are_refused_before_any_charge(
    stored: Path, site: Path
) -> None:
    name = "in_halves"
    installed(site, name, ("yield from self._connection.execute(select).fetchall()", HALVES))
    source = duck(stored, "visits", "push").replace('"duck"', f'"{name}"')
    with dpsql.connect(catalog(stored, source, duck(stored, "wards")), epsilon=1) as connection:
        with pytest.raises(Error) as caught:
            connection.execute(STATEMENTS[0])
        assert caught.value.code == "E_INTERNAL"
        assert "Ann" not in str(caught.value)


HALVES = "yield from [('Ann', *row) for row in self._connection.execute(select).fetchall()]"
