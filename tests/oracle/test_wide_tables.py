"""Tables of many columns: any few are answered, and what needs too many cells is refused."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import dpsql
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.stored_rows import StoredRows
from dpsql.privacy.vault.unit.rows import Rows
from dpsql.privacy.vault.vault import TableVault
from dpsql.records import replace
from dpsql.relation.row_view import RowView
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

COLUMNS = 130
ROWS = 3000
STATEMENTS = effort(12)
CELLS = np.arange(2)
NAMES = [f"q{i}" for i in range(COLUMNS)]
DECLARED = "\n".join(f'{name} = {{ type = "boolean", domain = [false, true] }}' for name in NAMES)
HEAD = '[budget]\nepsilon = 100000\ndelta = 1e-6\n[table.t]\nsource = "{}"\n{}\n'
CATALOG = HEAD.format("t.parquet", 'privacy_unit = "row"\n[table.t.column]') + DECLARED
DATA: Tables = {
    "t": "SELECT "
    + ", ".join(f"hash(i, {k}) % 97 < {k % 90 + 5} AS {name}" for k, name in enumerate(NAMES))
    + f" FROM range({ROWS}) r(i)"
}
TOO_LARGE = {
    "many keys": f"SELECT {', '.join(NAMES[:63])}, COUNT(*) FROM t GROUP BY ALL",
    "all keys": f"SELECT {', '.join(NAMES)}, COUNT(*) FROM t GROUP BY ALL",
    "a condition": f"SELECT COUNT(*) FROM t WHERE {' OR '.join(NAMES[:70])}",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened(tmp_path_factory.mktemp("wide")) as world:
        yield world


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    with open_tables(folder, CATALOG, DATA) as (connection, database):
        connection.set("fresh", "on")
        yield connection, database


def statement(rng: random.Random) -> str:
    few = rng.sample(NAMES, rng.choice([1, 2, 3, 5]))
    tests = " AND ".join(f"{'' if rng.random() < 0.5 else 'NOT '}{name}" for name in few)
    ways: list[Callable[[], str]] = [
        lambda: f"SELECT {', '.join(few)}, COUNT(*) FROM t GROUP BY ALL",
        lambda: f"SELECT COUNT(*) FROM t WHERE {tests}",
        lambda: f"SELECT COUNT(*) FROM t WHERE {' OR '.join(few)}",
        lambda: f"SELECT {', '.join(f'COUNT(*) FILTER (WHERE {each})' for each in few)} FROM t",
        lambda: f"SELECT {few[0]}, SUM(CAST({few[-1]} AS INTEGER)) AS n FROM t GROUP BY 1",
        lambda: f"SELECT COUNT(*) FROM (SELECT * FROM t) AS x WHERE {tests}",
    ]
    return rng.choice(ways)()


def differences(world: World, seed: int, count: int) -> Iterator[str]:
    connection, database = world
    rng = random.Random(seed)
    for _ in range(count):
        sql = statement(rng)
        connection.set("noise", rng.choice(["laplace", "gaussian"]))
        connection.set("delta", "1e-9" if connection.terms.noise == "gaussian" else "0")
        connection.explain(sql)
        try:
            with zero_noise():
                found = connection.execute(sql).fetchall()
        except dpsql.Error as error:
            yield f"{sql}\n{error}"
            continue
        expected = database.execute(sql).fetchall()
        shown, right = by_key(sql, found), by_key(sql, expected)
        if any(shown[key] != pytest.approx(value, abs=1e-6) for key, value in right.items()):
            yield f"{sql}\nfound    {found[:6]}\nexpected {expected[:6]}"


def by_key(sql: str, rows: Sequence[tuple[Any, ...]]) -> dict[Any, Any]:
    """The rows of a result by their keys: the database has no groups without rows."""
    if "GROUP" not in sql:
        return dict(enumerate(rows))
    return {row[:-1]: row[-1] for row in rows}


def test_answers_are_those_of_the_database(world: World) -> None:
    found = list(differences(world, 11, STATEMENTS))
    assert not found, "\n\n".join(found[:5])


@pytest.mark.parametrize("sql", TOO_LARGE.values(), ids=TOO_LARGE)
def test_too_many_cells_are_refused_at_once(world: World, sql: str) -> None:
    """Before data and budget, whatever the statement; B141."""
    connection, _ = world
    before = connection.budget
    started = time.process_time()
    with (
        mock.patch.object(TableVault, "load", side_effect=AssertionError),
        pytest.raises(dpsql.ProgrammingError) as caught,
    ):
        connection.execute(sql)
    assert caught.value.code in ("E_TOO_LARGE", "E_PREDICATE")
    assert caught.value.hint
    assert time.process_time() - started < 1
    assert connection.budget == before


@pytest.mark.parametrize("names", [NAMES, ["q3", "q5", "q77"]], ids=["many", "few"])
def test_only_what_is_mentioned_is_read(tmp_path: Path, names: Sequence[str]) -> None:
    declared = (line for line in DECLARED.splitlines() if line.split()[0] in names)
    catalog = HEAD.format("t.parquet", 'privacy_unit = "row"\n[table.t.column]')
    with open_tables(tmp_path, catalog + "\n".join(declared), DATA) as (connection, _):
        connection.set("fresh", "on")
        read: list[set[str]] = []
        real = StoredRows.read

        def noted(reader: StoredRows, columns: frozenset[str]) -> Rows:
            read.append(set(columns))
            return real(reader, columns)

        with mock.patch.object(StoredRows, "read", noted):
            connection.execute("SELECT COUNT(*) FROM t WHERE q3 AND q77")
            connection.execute("SELECT q3, COUNT(*) FROM t GROUP BY q3")
            connection.execute("SELECT q77, q5, COUNT(*) FROM t GROUP BY ALL")
        assert read == [{"q3", "q77"}, {"q5"}]


@pytest.mark.parametrize(
    ("source", "unit"),
    [
        ("t.csv", 'privacy_unit = "row"'),
        ("t.parquet", 'privacy_unit = { column = "id", max_rows = 2 }'),
    ],
    ids=["text", "units"],
)
def test_other_tables_are_read_at_once(tmp_path: Path, source: str, unit: str) -> None:
    """Lines have all columns; and all of them decide which rows of a unit are kept."""
    catalog = HEAD.format(source, unit + "\n[table.t.column]") + DECLARED
    listed = ", ".join(f"i % {k + 2} = 0 AS {name}" for k, name in enumerate(NAMES))
    tables: Tables = {"t": f"SELECT i // 2 AS id, {listed} FROM range(600) r(i)"}
    with open_tables(tmp_path, catalog, tables) as (connection, database):
        database.execute(f"COPY t TO '{tmp_path / 't.csv'}'")
        with zero_noise():
            for sql in ("SELECT COUNT(*) FROM t WHERE q1", "SELECT COUNT(*) FROM t WHERE q7 OR q9"):
                exact = database.execute(sql).fetchone()
                assert connection.execute(sql).fetchone() == pytest.approx(exact)
        kept = connection.engine.vaults["t"]
        assert isinstance(kept, TableVault)
        assert kept._held.rows is not None
        assert kept._held.rows.codes.keys() | kept._held.rows.numbers.keys() == set(NAMES)


def test_a_sequence_of_columns_and_of_all(tmp_path: Path) -> None:
    """What is read later belongs to the same rows; a file that changes meanwhile is noticed."""
    with opened(tmp_path) as (connection, database):
        held = connection.engine.vaults["t"]
        for columns in (["q1"], ["q2", "q1"], ["q100", "q1", "q2"]):
            counts = held.within(RowView(tuple(columns))).count(columns, [CELLS] * len(columns))
            listed = " AND ".join(columns)
            (exact,) = database.execute(f"SELECT COUNT(*) FROM t WHERE {listed}").fetchall()
            assert counts[(1,) * len(columns)] == exact[0]
        assert held.count(["q5"], [CELLS]).sum() == ROWS
        assert isinstance(held, TableVault)
        assert held._held.rows is not None
        assert held._held.rows.codes.keys() | held._held.rows.numbers.keys() == set(NAMES)


def test_a_file_that_changes_between_columns(tmp_path: Path) -> None:
    with opened(tmp_path) as (connection, database):
        held = connection.engine.vaults["t"]
        held.load(["q1"])
        database.execute(f"COPY (FROM t LIMIT 7) TO '{tmp_path / 't.parquet'}' (FORMAT parquet)")
        with pytest.raises(DataUnavailable):
            held.load(["q2"])
        with pytest.raises(DataUnavailable):
            connection.execute("SELECT COUNT(*) FROM t WHERE q2")


def _unaligned(self: Rows, more: Rows) -> Rows:
    return replace(
        self, codes=self.codes | {name: codes[::-1] for name, codes in more.codes.items()}
    )


def _fewer(self: TableVault, columns: Collection[str] | None) -> frozenset[str]:
    return frozenset() if self._held.rows is not None else frozenset({"q0"})


FAULTS = {
    "columns of other rows": ("dpsql.privacy.vault.unit.rows.Rows.with_columns", _unaligned),
    "columns that are not read": ("dpsql.privacy.vault.vault.TableVault._missing", _fewer),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, fault: str) -> None:
    target, instead = FAULTS[fault]
    with mock.patch(target, instead), opened(tmp_path) as world:
        assert any(differences(world, 11, 10))
