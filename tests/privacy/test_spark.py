"""The same rows in Spark and in a file: every vector that leaves the vault is the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import Bins, Labels, Values
from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import DataUnavailable, Error
from dpsql.privacy.doors.check_figures import Figures
from dpsql.privacy.vault.vault import TableVault
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import AnyResolution, Cells, cells_of
from tests.privacy.additivity import DATES, KINDS, TIMES, arrow
from tests.privacy.covering import draw_sets, draw_table
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.spark import MASTER, require_spark

SALT = b"0123456789abcdef"
pytestmark = pytest.mark.usefixtures("spark")
TABLES = effort(2)
SETS = 3
"""Covering sets of a table: what a statement costs is planning it, half a second of a core."""


def in_spark(path: Path, unit: Unit, columns: dict[str, Column], read: str = "push") -> Table:
    options = {"engine": "spark", "master": MASTER, "path": str(path), "version": "1", "read": read}
    return Table("t", f"spark://{path}", unit, columns, options=tuple(sorted(options.items())))


@pytest.mark.parametrize("seed", range(TABLES))
def test_vectors_are_those_of_the_same_rows_in_a_file(seed: int, tmp_path: Path) -> None:
    drawn = draw_table(seed, without="time")
    path = tmp_path / "t.parquet"
    file = TableVault(drawn.write(path), SALT)
    reads = ("push", "stream") if seed % 8 == 0 else ("push",)
    others = {
        read: TableVault(in_spark(path, drawn.unit, drawn.columns, read), SALT) for read in reads
    }
    for view, resolutions, units in draw_sets(seed, drawn, SETS):
        expected = file.within(view).tally(resolutions, units)
        for read, other in others.items():
            found = other.within(view).tally(resolutions, units)
            what = (read, drawn, view, resolutions, units)
            np.testing.assert_array_equal(found, expected, err_msg=str(what))
    for vault in (file, *others.values()):
        vault.close()


HOSTILE = (
    *("double", "float", "big", "unsigned", "decimal", "cents", "text", "date", "micros"),
    *("zoned", "boolean"),
)


def agree(path: Path, unit: Unit, columns: dict[str, Column], sets: list[AnyResolution]) -> None:
    """Assert that Spark counts every set of a view of all columns as it is counted of the file."""
    file = TableVault(Table("t", str(path), unit, columns), SALT)
    other = TableVault(in_spark(path, unit, columns), SALT)
    for each in sets:
        expected, found = (vault.tally([each]) for vault in (file, other))
        np.testing.assert_array_equal(found, expected, err_msg=str(each))
        assert expected.sum() > 0
    file.close()
    other.close()


def test_hostile_values_are_read_one_by_one(tmp_path: Path) -> None:
    chosen = random.Random(0)
    arrays, columns = {}, {}
    for i, name in enumerate(HOSTILE):
        kind = KINDS[name]
        values = [each for each in kind.values if each != -(2**63) or name == "big"]
        arrays[f"c{i}"] = arrow(kind, [*values, *chosen.choices(values, k=80 - len(values))], False)
        declared = [each for each in kind.columns.values() if each.size]
        columns[f"c{i}"] = replace(chosen.choice(declared), name=f"c{i}")
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(arrays), path)
    file = TableVault(Table("t", str(path), Unit(), columns), SALT).within(RowView(()))
    other = TableVault(in_spark(path, Unit(), columns), SALT).within(RowView(()))
    for name, column in columns.items():
        one = cells_of(name, np.arange(column.size))
        np.testing.assert_array_equal(other.tally([one]), file.tally([one]), err_msg=name)
    other.close()
    file.close()


def test_times_of_day_are_refused_and_hinder_nobody(tmp_path: Path) -> None:
    """Nor do times in nanoseconds; the first day that there is, is one, and not an infinity."""
    rows = {
        "t": pa.array([5, 2**62, 0, 0], pa.int64()).view(pa.time64("us")),
        "n": pa.array([1, 2**62, None, -1], pa.timestamp("ns")),
        "d": pa.array([-(2**31), 2**31 - 1, 1 - 2**31, 2**31 - 2], pa.int32()).view(pa.date32()),
        "w": ["A", "B", "B", "B"],
    }
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    columns = {"w": Column("w", "text", Values(("A", "B")))}
    agree(tmp_path / "t.parquet", Unit("d", 1), columns, [cells_of("w", np.arange(2))])
    time = {"t": replace(next(iter(TIMES.values())), name="t")}
    with pytest.raises(DataUnavailable, match="declared time but stored as"):
        TableVault(in_spark(tmp_path / "t.parquet", Unit(), time), SALT)


def test_long_lists_are_searched(tmp_path: Path) -> None:
    texts = [f"{chr(33 + i % 90)}{i}'" for i in range(60)]
    numbers = [i * i - 7 for i in range(60)]
    edges = tuple(Fraction(i * i, 7) for i in range(80))
    columns = {
        "w": Column("w", "text", Values(tuple(texts)), other="rest"),
        "n": Column("n", "integer", Values(tuple(reversed(numbers))), None, True),
        "x": Column("x", "number", Bins(edges), None, True),
        "code": Column("code", "text", Labels(tuple(texts), tuple(numbers)), None, True),
    }
    rows = pa.table(
        {
            "w": [*texts, "else"] * 3,
            "n": pa.array([*numbers, None] * 3, pa.int64()),
            "x": [i * 5.1 for i in range(183)],
            "code": [*numbers[1:], None, 0.5] * 3,
        }
    )
    pq.write_table(rows, tmp_path / "t.parquet")
    order = np.random.default_rng(0).permutation(61)
    sets: list[AnyResolution] = [cells_of(name, np.arange(61)) for name in "wn"]
    sets += [cells_of("x", np.arange(80)), cells_of("code", np.arange(61))]
    labels = np.random.default_rng(1).integers(-1, 5, (61, 61))
    sets.append(Cells(("w", "n"), (order, np.arange(61)), labels))
    agree(tmp_path / "t.parquet", Unit(), columns, sets)


CATALOG = """
[budget]
epsilon = 100

[table.visits]
source = {{ engine = "spark", master = "{master}", {more} }}
privacy_unit = {{ column = "who", max_rows = 50 }}

[table.visits.column]
ward = {{ type = "text", domain = ["A", "B"], other = true }}
age = {{ type = "integer", domain = [0, 99] }}
"""
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
UNITS = "SELECT ward, COUNT(DISTINCT who) AS n FROM visits WHERE age >= 40 GROUP BY ward"
SECRET = "Ann Example"
ROWS = [(f"p{i % 30}", "ABC"[i % 3], i * 7 % 99) for i in range(300)]


def catalog(folder: Path, more: str = 'table = "clinic.visits"', master: str = MASTER) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "clinic.toml"
    if "version" not in more:
        more += ', version = "1"'
    path.write_text(CATALOG.format(master=master, more=more), encoding="utf-8")
    return path


def run(*statements: str) -> Any:
    """Run statements of Spark, and return the rows of the last."""
    from dpsql.privacy.vault.servers.spark_session import session_for

    session = session_for(Table("t", "spark://t", Unit(), {}, options=(("master", MASTER),)))
    return [session.sql(each).collect() for each in statements][-1]


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Path]:
    """A table of Spark, and its rows in a folder."""
    listed = ", ".join(f"('{who}', '{ward}', {age})" for who, ward, age in ROWS)
    one = f"SELECT * FROM VALUES {listed}, ('{SECRET}', '{SECRET}', 1) AS t(who, ward, age)"
    run(
        "CREATE DATABASE IF NOT EXISTS clinic",
        f"CREATE TABLE clinic.visits USING parquet LOCATION '{tmp_path}/visits' AS {one}",
    )
    yield tmp_path / "visits"
    run("DROP TABLE IF EXISTS clinic.visits", "DROP VIEW IF EXISTS clinic.visits")


def refused(work: Callable[[], object]) -> Error:
    with pytest.raises(Error) as caught:
        work()
    error = caught.value
    assert SECRET not in f"{error}{error.hint}"
    assert error.__cause__ is None
    assert error.__context__ is None
    return error


def kept() -> int:
    """How many tables are cached on the cluster."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    return 0 if context is None else int(context._jsc.getPersistentRDDs().size())


def test_a_table_is_counted_where_it_is(clinic: Path, tmp_path: Path) -> None:
    one, other = catalog(tmp_path / "one"), catalog(tmp_path / "two", f'path = "{clinic}"')
    with zero_noise(), dpsql.connect(one, epsilon=1) as connection:
        told = "\n".join(connection.explain(COUNT).lines())
        assert "counted in spark, clinic.visits" in told
        assert "GROUP BY id" in told
        assert "CASE WHEN (t.`ward` COLLATE UTF8_BINARY) = 'A' THEN 0L" in told
        assert dict(connection.execute(COUNT).result.rows) == {"A": 100, "B": 100, "other": 101}
        distinct = dict(connection.execute(UNITS).result.rows)
        asked = "SELECT count(DISTINCT who) FROM clinic.visits WHERE age >= 40 AND ward = 'A'"
        assert distinct["A"] == run(asked)[0][0]
        run("INSERT INTO clinic.visits VALUES ('new', 'A', 3)")
        again = connection.execute(COUNT).result
        assert again.cost is not None
        assert again.cost.free
        assert connection.budget.entries == 2
        assert kept() > 0
    assert kept() == 0
    with dpsql.connect(other, epsilon=1) as connection:
        assert refused(lambda: connection.execute(COUNT)).code == "E_LEDGER_MISMATCH"
        assert connection.budget.entries == 0


@pytest.mark.parametrize("named", ["{a,b}", "a*", "a?[bc]", "a\\*", "a%7Bb#"])
def test_a_path_is_what_it_says_and_no_pattern(named: str, tmp_path: Path) -> None:
    columns = {"w": Column("w", "text", Values(("A", "B")))}
    for name in ("a", "b", "axb", "a?b", "a*", "a\\x", "a{b#", named):
        rows = 3 if name == named else 9
        (tmp_path / name).mkdir(exist_ok=True)
        pq.write_table(pa.table({"w": ["A"] * rows}), tmp_path / name / "{p,q}.parquet")
    for path in (tmp_path / named, tmp_path / named / "{p,q}.parquet"):
        vault = TableVault(in_spark(path, Unit(), columns), SALT)
        assert vault.tally([cells_of("w", np.arange(2))]).tolist() == [3, 0]
        vault.close()


def test_a_table_whose_folder_is_a_pattern_is_refused(tmp_path: Path) -> None:
    columns = {"w": Column("w", "text", Values(("A", "B")))}
    for name in ("a*", "ab"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"w": ["A"]}), tmp_path / name / "p.parquet")
    run(f"CREATE TABLE starred (w string) USING parquet LOCATION '{tmp_path}/a*'")
    assert len(run("SELECT * FROM starred")) == 2, "Spark reads another folder as well"
    options = (("engine", "spark"), ("master", MASTER), ("table", "default.starred"))
    with pytest.raises(DataUnavailable, match="is a pattern"):
        TableVault(Table("t", "spark://default.starred", Unit(), columns, options=options), SALT)
    run("DROP TABLE starred")


FAILURES = {
    "no table": ('table = "clinic.none"', "", "E_DATA", "no such table"),
    "no schema": ('table = "none.visits"', "", "E_DATA", "no such table"),
    "no name": ('table = "clinic..visits"', "", "E_DATA", "source"),
    "no file": ('path = "/nowhere/at/all"', "", "E_DATA", "no such file"),
    "no pattern": ('path = "/tmp/*"', "", "E_DATA", "no such file"),
    "delta pattern": ('path = "/tmp/{a,a}", format = "delta"', "", "E_DATA", "may be a pattern"),
    "near file": ('path = "at/all"', "", "E_DATA", "working directory"),
    "other format": ('path = "/tmp/x", format = "csv"', "", "E_DATA", "no schema"),
    "no column": ('table = "clinic.visits"', "who, ward", "E_DATA", "no such column"),
    "other type": (
        'table = "clinic.visits"',
        "who, ward, 'x' AS age",
        "E_POLICY",
        "stored as text",
    ),
}


@pytest.mark.parametrize("which", FAILURES)
def test_what_does_not_open_charges_nothing(
    which: str, clinic: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    more, listed, code, why = FAILURES[which]
    if listed:
        run(
            "DROP TABLE clinic.visits",
            f"CREATE TABLE clinic.visits USING parquet AS SELECT {listed} FROM parquet.`{clinic}`",
        )
    with dpsql.connect(catalog(tmp_path, more), epsilon=1) as connection:
        assert connection.explain(COUNT).statements
        error = refused(lambda: connection.execute(COUNT))
        assert (error.code, why in f"{error}") == (code, True), f"{error}"
        assert connection.budget.entries == 0
    assert capfd.readouterr() == ("", "")


def test_views_and_other_masters_are_refused(clinic: Path, tmp_path: Path) -> None:
    run(
        "DROP TABLE clinic.visits",
        f"CREATE VIEW clinic.visits AS SELECT * FROM parquet.`{clinic}`",
    )
    more = 'table = "clinic.visits", version = "2"'
    with dpsql.connect(catalog(tmp_path, more), epsilon=1) as connection:
        assert "view = true" in f"{refused(lambda: connection.execute(COUNT))}"
    with dpsql.connect(catalog(tmp_path, more, "local[7]"), epsilon=1) as connection:
        assert "another master" in f"{refused(lambda: connection.execute(COUNT))}"
    with (
        zero_noise(),
        dpsql.connect(catalog(tmp_path, f"{more}, view = true"), epsilon=1) as connection,
    ):
        assert dict(connection.execute(COUNT).result.rows)["A"] == 100


def test_units_are_told_apart_byte_by_byte(clinic: Path, tmp_path: Path) -> None:
    run(
        "DROP TABLE clinic.visits",
        "CREATE TABLE clinic.visits (who STRING COLLATE UTF8_LCASE, ward STRING COLLATE "
        "UTF8_LCASE, age INT) USING parquet",
        "INSERT INTO clinic.visits VALUES ('ann', 'A', 50), ('Ann', 'A', 50), ('Bob', 'a', 50)",
    )
    with zero_noise(), dpsql.connect(catalog(tmp_path), epsilon=1) as connection:
        assert dict(connection.execute(UNITS).result.rows) == {"A": 2, "B": 0, "other": 1}


def test_a_failure_after_the_debit_says_so(
    clinic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from dpsql.privacy.vault.servers.spark import SparkCounter

    def failing(self: Any, select: str) -> Any:
        return self._session.sql(f"SELECT CAST('{SECRET}' AS int)").collect()

    with zero_noise(), dpsql.connect(catalog(tmp_path), epsilon=1) as connection:
        with monkeypatch.context() as patched:
            patched.setattr(SparkCounter, "rows", failing)
            error = refused(lambda: connection.execute(COUNT))
            assert (error.code, "the charge stays" in f"{error}") == ("E_INTERNAL", True)
        assert capfd.readouterr() == ("", "")
        assert dict(connection.execute(COUNT).result.rows)["A"] == 100
        assert connection.budget.entries == 2
        shutil.rmtree(clinic)
    with dpsql.connect(catalog(tmp_path, 'table = "clinic.visits", version = "2"')) as connection:
        connection.execute("SET epsilon = 1")
        assert refused(lambda: connection.execute(COUNT)).code == "E_DATA"
        assert connection.budget.entries == 2


def test_two_versions_in_one_process_are_two(clinic: Path, tmp_path: Path) -> None:
    paths = [catalog(tmp_path / v, f'path = "{clinic}", version = "{v}"') for v in "12"]
    vaults = []
    for path in paths:
        (table,) = chosen_tables(path, None)
        vaults.append(TableVault(table, SALT))
        vaults[-1].load()
        run("INSERT INTO clinic.visits VALUES ('new', 'A', 3)")
    a, b = (int(vault.tally([]).sum()) for vault in vaults)
    assert (a, b) == (301, 302)
    vaults[0].close()
    assert int(vaults[1].tally([]).sum()) == 302
    vaults[1].close()


def test_without_java_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError

    from dpsql.privacy.vault.servers import spark_session

    def launch(*_: object) -> object:  # as PySpark's does, which leaves a pipe open
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    for name in ("_active_spark_context", "_gateway"):
        monkeypatch.setattr(SparkContext, name, None)
    monkeypatch.setattr(spark_session, "launch_gateway", launch)
    with dpsql.connect(catalog(tmp_path), epsilon=1) as connection:
        error = refused(lambda: connection.execute(COUNT))
        assert (error.code, "it needs Java" in f"{error}") == ("E_DATA", True)
        assert connection.budget.entries == 0


def test_where_spark_must_run_a_test_that_cannot_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("DPSQL_TEST_SPARK", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Java"):
        require_spark()
    monkeypatch.setenv("DPSQL_TEST_SPARK", "must")
    with pytest.raises(pytest.fail.Exception, match="Java"):
        require_spark()


def test_a_catalog_is_drafted_and_checked(clinic: Path, tmp_path: Path) -> None:
    text = draft_catalog("spark:clinic.visits", master=MASTER)
    assert f'engine = "spark", master = "{MASTER}", table = "clinic.visits"' in text
    assert "[table.visits]" in draft_catalog("spark:clinic.*", master=MASTER)
    assert SECRET not in text
    (found,) = examine(chosen_tables(catalog(tmp_path), None))
    assert isinstance(found, Figures)
    assert (found.kind, found.rows, found.units) == ("spark", 301, 31)


def test_a_context_that_stopped_between_requests_is_started_again(
    clinic: Path, tmp_path: Path
) -> None:
    from pyspark import SparkContext

    path = catalog(tmp_path, f'path = "{clinic}"')
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        connection.execute(COUNT)
        context: Any = SparkContext._active_spark_context
        context.stop()
        assert dict(connection.execute(UNITS).result.rows)["A"] > 0
        assert connection.budget.entries == 2


def test_without_delta_it_is_said_what_to_add(clinic: Path, tmp_path: Path) -> None:
    path = catalog(tmp_path, f'path = "{clinic}", format = "delta"')
    with dpsql.connect(path, epsilon=1) as connection:
        error = refused(lambda: connection.execute(COUNT))
        assert (error.code, "no reader of its format" in f"{error}") == ("E_DATA", True)
        assert "io.delta" in f"{error.hint}"
        assert connection.budget.entries == 0


def test_what_spark_cannot_read_is_refused_by_what_files_say(tmp_path: Path) -> None:
    columns = {"t": replace(next(iter(DATES.values())), name="t")}
    stored = tmp_path / "stored"
    stored.mkdir()
    pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("ms"))}), stored / "a.parquet")
    run(f"CREATE TABLE millis (t timestamp_ntz) USING parquet LOCATION '{stored}'")
    options = {"engine": "spark", "master": MASTER, "table": "default.millis", "version": "1"}
    listed = tuple(sorted(options.items()))
    with pytest.raises(DataUnavailable, match="milliseconds"):
        TableVault(Table("t", "spark://default.millis", Unit(), columns, options=listed), SALT)
    run("DROP TABLE millis")
    strange = "a type that Spark does not read"
    path = tmp_path / "t.parquet"
    for stored_as, problem in {
        pa.timestamp("ms"): "times in milliseconds",
        pa.timestamp("ns"): "times in nanoseconds",
        pa.float16(): strange,
        pa.decimal256(50, 2): strange,
    }.items():
        pq.write_table(pa.table({"t": pa.array([None], stored_as)}), path)
        with pytest.raises(DataUnavailable, match=problem):
            TableVault(in_spark(path, Unit(), columns), SALT)
    pq.write_table(pa.table({"t": pa.array([None], pa.timestamp("ns"))}), path)
    for kind in ("integer", "number"):
        numbers = Column("t", kind, None, (Fraction(0), Fraction(9)))
        with pytest.raises(DataUnavailable, match="times in nanoseconds"):
            TableVault(in_spark(path, Unit(), {"t": numbers}), SALT)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataUnavailable, match="a file of it is damaged"):
        TableVault(in_spark(path, Unit(), columns), SALT)
    pq.write_table(pa.table({"t": pa.array([1, 2], pa.timestamp("us"))}), tmp_path / "us.parquet")
    TableVault(in_spark(tmp_path / "us.parquet", Unit(), columns), SALT).close()
