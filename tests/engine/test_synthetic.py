"""Synthetic tables from CREATE to MATERIALIZE: every clause, every mechanism, every refusal."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import partialmethod
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import dpsql
from dpsql.dbapi.connection import Connection, verify_ledger
from dpsql.engine import learn
from dpsql.learn import task
from dpsql.learn.rap import run_rap
from dpsql.learn.whole_marginals import Graphical
from dpsql.pgm.model import model_of
from dpsql.privacy.budget.accounting import rho_for
from dpsql.privacy.doors.look import TableHandle
from dpsql.settings.table import MODELS
from dpsql.strategy.noise_law import Noise
from tests.support.people import ROWS, people
from tests.support.people import row as line_of

pytestmark = pytest.mark.slow

PAIRS = (
    "FOR (SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age;"
    " SELECT ward, pay, COUNT(*) FROM people GROUP BY ward, pay)"
)
CREATE = "CREATE SYNTHETIC TABLE s FROM people OPTIONS (epsilon = 1{more}) {workload}"


def create(
    connection: Connection, more: str = "", workload: str = PAIRS
) -> dpsql.dbapi.connection.Result:
    """Make the synthetic table s for epsilon 1."""
    sql = CREATE.format(more=more and ", " + more, workload=workload)
    return connection.execute(sql).result


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descend less far than by default: these tests are about everything else."""
    assert run_rap.__kwdefaults__ is not None
    monkeypatch.setitem(run_rap.__kwdefaults__, "steps", 100)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder whose files SQL may name."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def world(tmp_path: Path, out: Path) -> Iterator[Connection]:
    """A connection to the people, nothing charged yet."""
    with dpsql.connect(people(tmp_path / "w"), files=out) as connection:
        yield connection


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalog of a world in which s exists."""
    folder = tmp_path_factory.mktemp("made")
    catalog = people(folder / "w")
    catalog.write_text(catalog.read_text() + '\n[ledger]\nanchor = "anchors"\n')
    workload = (
        "FOR (SELECT sex, age, ward, pay, hired, fixed, COUNT(*) FROM people"
        " GROUP BY CUBE (sex, age, ward, pay, hired, fixed))"
    )
    with dpsql.connect(catalog) as connection:
        create(connection, workload=workload)
    return catalog


@pytest.fixture
def made(home: Path, out: Path) -> Iterator[Connection]:
    """A connection to the world in which s exists, opened again."""
    with dpsql.connect(home, files=out) as connection:
        yield connection


def debits(connection: Connection) -> list[Any]:
    """Every charge so far."""
    return [entry for entry in connection.entries() if entry.kind == "debit"]


def refused(connection: Connection, sql: str) -> dpsql.Error:
    """The error of a statement that must change nothing."""
    folder = connection.catalog.path.parent
    before = connection.entries(), connection.budget, sorted(folder.iterdir())
    with pytest.raises(dpsql.Error) as caught:
        connection.execute(sql)
    assert (connection.entries(), connection.budget, sorted(folder.iterdir())) == before
    assert caught.value.__cause__ is None
    return caught.value


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("model", MODELS)
def test_one_debit_of_the_whole_budget(world: Connection, model: str, noise: Noise) -> None:
    more = f"model = '{model}', noise = '{noise}'"
    if noise == "gaussian":
        more += ", delta = 1e-8"
    result = create(world, more)
    (entry,) = debits(world)
    assert (entry.state, Fraction(entry.epsilon), entry.noise) == ("released", Fraction(1), noise)
    if noise == "gaussian":
        assert Fraction(entry.rho) == rho_for(Fraction(1), Fraction(1, 10**8))
    assert result.cost is not None
    assert (result.cost.epsilon, result.cost.noise, result.cost.free) == (Fraction(1), noise, False)
    assert result.receipt is not None
    assert result.receipt.seq == entry.seq
    facts = dict(result.rows)
    assert facts["rule"]
    assert "numbers, stddev" in facts["measured"]
    assert 0 < float(facts["total"]) < 3000
    assert not any("[" in text or "measured" in text for text in facts.values())
    ((n,),) = world.execute("SELECT COUNT(*) FROM s").fetchall()
    assert 0 < n < 3000
    assert len(debits(world)) == 1


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "workload",
    [
        "SELECT fixed, COUNT(*) FROM people GROUP BY fixed",
        "SELECT COUNT(*) FROM people WHERE age < 5",
        "SELECT AVG(pay), COUNT(*) FROM people GROUP BY hired",
    ],
)
def test_workloads_of_one_query_and_one_value(world: Connection, model: str, workload: str) -> None:
    create(world, f"model = '{model}'", f"FOR ({workload})")
    ((n,),) = world.execute("SELECT COUNT(*) FROM s").fetchall()
    assert n > 0


@pytest.mark.parametrize("model", MODELS)
def test_an_empty_private_table(tmp_path: Path, out: Path, model: str) -> None:
    with dpsql.connect(people(tmp_path / "w", "empty"), files=out) as connection:
        create(connection, f"model = '{model}'")
        ((n,),) = connection.execute("SELECT COUNT(*) FROM s").fetchall()
        assert 0 < n < 3000
        connection.execute(f"MATERIALIZE SYNTHETIC TABLE s INTO '{out / 's.csv'}'")


def test_a_tiny_budget_gives_finite_numbers(world: Connection) -> None:
    for model in MODELS:
        sql = f"CREATE SYNTHETIC TABLE {model}_ FROM people OPTIONS (epsilon = 0.000001, "
        world.execute(f"{sql} model = '{model}') {PAIRS}")
        found = world.execute(f"SELECT sex, COUNT(*) FROM {model}_ GROUP BY sex").fetchall()
        assert all(0 <= n < 1e9 for _, n in found)


def test_clauses(world: Connection, out: Path) -> None:
    (out / "w.sql").write_text(
        "-- two\nSELECT sex, COUNT(*) FROM people GROUP BY sex;\n"
        "SELECT ward, COUNT(*) FROM people GROUP BY ward;\n"
    )
    world.execute("SET epsilon = 0.5")
    for i, sql in enumerate(
        [
            "CREATE SYNTHETIC TABLE s{} FROM people FOR WORKLOAD 'w.sql'",
            "create synthetic table s{} from PEOPLE for workload 'w.sql' spend (epsilon = 0.5)",
            'CREATE SYNTHETIC TABLE "s{}" FROM "people" FOR (SELECT sex, COUNT(*) AS n FROM people'
            " WHERE age IN (1, 2) GROUP BY sex;;) OPTIONS (metric = 'max', model = 'MARGINALS')",
            "CREATE SYNTHETIC TABLE s{} FROM people FOR (SELECT sex, COUNT(*) FROM people GROUP BY"
            " sex UNION ALL SELECT ward, COUNT(*) FROM people GROUP BY ward) -- end",
        ]
    ):
        world.execute(sql.format(i))
    assert [(Fraction(e.epsilon), e.state) for e in debits(world)] == [
        (Fraction(1, 2), "released")
    ] * 4
    columns = [row[0] for row in world.execute("DESCRIBE s0").fetchall()]
    assert columns == ["sex", "ward"]


def test_explain_is_free_and_public(world: Connection) -> None:
    sql = CREATE.format(more=", model = 'mwem'", workload=PAIRS)
    text = "\n".join(row[0] for row in world.execute("EXPLAIN " + sql).fetchall())
    assert "mwem" in text
    assert "epsilon 1; at most 50 can" in text
    rows = world.execute(f"EXPLAIN CREATE SYNTHETIC TABLE s FROM people {PAIRS}").fetchall()
    assert any(row[0].startswith("cost") and "(assumed)" in row[0] for row in rows)
    assert any("rows: select marginals adaptively; above: measure all" in row[0] for row in rows)
    assert "noise       laplace" in [row[0] for row in rows]
    assert debits(world) == []
    assert not world.catalog.path.with_suffix(".synthetic").exists()


def test_explain_of_an_answer_does_not_say_exact(made: Connection) -> None:
    text = str(made.explain("SELECT sex, COUNT(*) FROM s GROUP BY sex"))
    assert "biased" in text
    assert "exact" not in text


def test_the_row_count_hint_and_auto(tmp_path: Path) -> None:
    catalog = people(tmp_path / "w", extra="row_count_hint = 300")
    with dpsql.connect(catalog) as connection:
        rows = connection.execute("EXPLAIN " + CREATE.format(more="", workload=PAIRS)).fetchall()
        assert not any("no number of rows" in row[0] for row in rows)
        create(connection)
        small = CREATE.format(more="", workload=PAIRS).replace("= 1", "= 0.00001")
        rows = connection.execute("EXPLAIN " + small.replace(" s ", " z ")).fetchall()
        assert any("too small to be useful" in row[0] for row in rows)


def test_a_fixed_strategy_learns_the_number_of_rows_too(tmp_path: Path) -> None:
    with dpsql.connect(people(tmp_path / "w", extra="row_count_hint = 300")) as connection:
        sql = "CREATE SYNTHETIC TABLE s FROM people OPTIONS (epsilon = 40) FOR ({})"
        query = "SELECT COUNT(*) FROM people WHERE age > 3 OR sex = 'F'"
        connection.execute(sql.format(query))
        ((n,),) = connection.execute("SELECT COUNT(*) FROM s").fetchall()
        assert abs(n - ROWS) < 15
        (entry,) = debits(connection)
        assert Fraction(entry.epsilon) == 40


def test_budgets_of_tables_and_analysts(tmp_path: Path) -> None:
    catalog = people(
        tmp_path / "w",
        extra="budget = { epsilon = 3 }",
        analyst="[analyst.ana]\nepsilon = 1.5\n",
    )
    with dpsql.connect(catalog, analyst="ana") as connection:
        forecast = connection.execute("EXPLAIN " + CREATE.format(more="", workload=PAIRS))
        assert any("at most 1.5 can still be asked for" in line for (line,) in forecast.fetchall())
        create(connection)
        nested = connection.budget.nested
        assert nested["table:people"].remaining_epsilon == 2
        assert nested["analyst:ana"].remaining_epsilon == Fraction(1, 2)
        error = refused(connection, CREATE.format(more="", workload=PAIRS).replace(" s ", " z "))
        assert error.code == "E_BUDGET"
    with dpsql.connect(catalog, analyst="ana") as connection:
        assert connection.execute("SELECT COUNT(*) FROM s").result.cost.free  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("FROM nope OPTIONS (epsilon = 1) " + PAIRS, "E_UNKNOWN_TABLE"),
        ("FROM wards OPTIONS (epsilon = 1) FOR (SELECT ward, COUNT(*) FROM wards GROUP BY 1)",
         "E_UNKNOWN_TABLE"),
        ("FROM people OPTIONS (epsilon = 1) FOR (SELECT SUM(cost) FROM people)", "E_EXPR_IN_AGG"),
        ("FROM people OPTIONS (epsilon = 1) FOR (SELECT COUNT(DISTINCT age) FROM people)",
         "E_AGGREGATE"),
        ("FROM people OPTIONS (epsilon = 1) FOR (SELECT x, COUNT(*) FROM other GROUP BY x)",
         "E_WORKLOAD"),
        ("FROM people OPTIONS (epsilon = 1) FOR (SELECT COUNT(*) FROM people)", "E_WORKLOAD"),
        ("FROM people OPTIONS (epsilon = 1) FOR (SELECT ward, COUNT(*) FROM wards GROUP BY 1)",
         "E_WORKLOAD"),
        ("FROM people OPTIONS (epsilon = 1) FOR ()", "E_PARSE"),
        ("FROM people OPTIONS (epsilon = 1) FOR (;)", "E_PARSE"),
        ("FROM people OPTIONS (epsilon = 1) FOR (SELECT 1)", "E_STATEMENT"),
        ("FROM people OPTIONS (epsilon = 1) FOR (EXPLAIN SELECT COUNT(*) FROM people)",
         "E_STATEMENT"),
        ("FROM people OPTIONS (epsilon = 1) FOR (SHOW budget)", "E_STATEMENT"),
        ("FROM people OPTIONS (epsilon = 1) FOR (SELECT COUNT(*) FROM people", "E_PARSE"),
        ("FROM people OPTIONS (epsilon = 1)", "E_PARSE"),
        ("FROM people " + PAIRS, "E_EPSILON"),
        ("FROM people OPTIONS (epsilon = 51) " + PAIRS, "E_BUDGET"),
        ("FROM people OPTIONS (epsilon = 0) " + PAIRS, "E_EPSILON"),
        ("FROM people OPTIONS (epsilon = 1, noise = 'gaussian') " + PAIRS, "E_DELTA"),
        ("FROM people OPTIONS (epsilon = 1, model = 'gan') " + PAIRS, "E_SETTING"),
        ("FROM people OPTIONS (epsilon = 1, metric = 'best') " + PAIRS, "E_SETTING"),
        ("FROM people OPTIONS (epsilon = 1, seed = 3) " + PAIRS, "E_SETTING"),
        ("FROM people OPTIONS (epsilon = 1, rounds = 0) " + PAIRS, "E_SETTING"),
        ("FROM people OPTIONS (epsilon = 1, model = 'rap', per_round = -3) " + PAIRS, "E_SETTING"),
        ("FROM people OPTIONS (epsilon = 1, model = 'mwem', per_round = 3) " + PAIRS, "E_SETTING"),
        ("FROM people OPTIONS (epsilon = 1, model = 'rap', rounds = auto, metric = max) " + PAIRS,
         "E_SETTING"),
        ("FROM people OPTIONS (epsilon = 1, model = pgm, rounds = doubling) " + PAIRS, "E_SETTING"),
        ("FROM people OPTIONS (epsilon = 1) FOR WORKLOAD 'no.sql'", "E_INPUT"),
        ("FROM people OPTIONS (epsilon = 1) FOR WORKLOAD 'people.csv'", "E_INPUT"),
        ("FROM people OPTIONS (epsilon = 1) FOR WORKLOAD", "E_PARSE"),
        ("FROM people OPTIONS (epsilon = 1) FOR WORKLOAD 'a.sql' " + PAIRS, "E_PARSE"),
    ],
)  # fmt: skip
def test_refusals_charge_nothing(world: Connection, sql: str, code: str) -> None:
    assert refused(world, "CREATE SYNTHETIC TABLE s " + sql).code == code


@pytest.mark.parametrize("name", ["people", "PEOPLE", "wards", "s", "S", '"a b"', '""'])
def test_names(made: Connection, name: str) -> None:
    sql = f"CREATE SYNTHETIC TABLE {name} FROM people OPTIONS (epsilon = 1) {PAIRS}"
    assert refused(made, sql).code in ("E_STATEMENT", "E_PARSE")


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("DROP SYNTHETIC TABLE s", "a released synthetic table is final"),
        ("DROP TABLE s", "a synthetic table is final"),
        ("INSERT INTO s VALUES ('F')", "a synthetic table is final"),
        ("UPDATE s SET sex = 'F'", "a synthetic table is final"),
        ("DELETE FROM s", "a synthetic table is final"),
        (
            "CREATE SYNTHETIC TABLE z FROM s OPTIONS (epsilon = 1) FOR (SELECT COUNT(*) FROM s)",
            "tables: people, other",
        ),
        ("MATERIALIZE SYNTHETIC TABLE people INTO 'x.csv'", "no synthetic table 'people'"),
        ("MATERIALIZE SYNTHETIC TABLE s INTO x", "near 'x'"),
        ("MATERIALIZE SYNTHETIC TABLE s INTO 'x.csv' ROWS = 0", "ROWS"),
        ("MATERIALIZE SYNTHETIC TABLE s INTO 'x.csv' ROWS = -5", "ROWS"),
        ("MATERIALIZE SYNTHETIC TABLE s INTO 'x.csv' ROWS = 9999999999", "ROWS"),
        ("MATERIALIZE SYNTHETIC TABLE s INTO 'x.txt'", "x.txt"),
        ("MATERIALIZE SYNTHETIC TABLE s INTO ''", "''"),
        ("MATERIALIZE SYNTHETIC TABLE s INTO '/nowhere/x.csv'", "x.csv"),
        ("SELECT cost FROM s", "cost"),
        ("SELECT SUM(cost) FROM s", "no column 'cost' in table s"),
        ("SELECT * FROM s", "rows cannot be returned"),
    ],
)
def test_what_cannot_be_done_with_it(made: Connection, sql: str, says: str) -> None:
    assert says in str(refused(made, sql))


def test_a_domain_too_large_for_the_mechanism(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,1\n")
    (tmp_path / "t.toml").write_text(
        '[budget]\nepsilon = 5\n[table.t]\nsource = "t.csv"\nprivacy_unit = "row"\n'
        '[table.t.column]\na = { type = "integer", domain = [0, 1999] }\n'
        'b = { type = "integer", domain = [0, 1999] }\n'
    )
    workload = "FOR (SELECT COUNT(*) FROM t WHERE a < 7 AND b > 9)"
    sql = "CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 1, model = '{}') "
    with dpsql.connect(tmp_path / "t.toml") as connection:
        for model in ("mwem", "pgm"):
            assert refused(connection, sql.format(model) + workload).code == "E_TOO_LARGE"
        rows = connection.execute("EXPLAIN " + sql.format("auto") + workload).fetchall()
        assert any("rap" in row[0] for row in rows)


SELECTS = [
    "SELECT sex, ward, COUNT(*) AS n FROM s GROUP BY GROUPING SETS ((sex), (ward), ())",
    "SELECT age, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY age) AS c FROM s GROUP BY age",
    "SELECT MEDIAN(age), QUANTILE_CONT(pay, 0.25), AVG(pay), STDDEV(age) FROM s",
    "WITH a AS (SELECT sex, COUNT(*) AS n FROM s GROUP BY sex) SELECT * FROM a"
    " UNION ALL SELECT ward, COUNT(*) FROM s GROUP BY ward",
    "SELECT w.beds, COUNT(*) FROM s JOIN wards w ON s.ward = w.ward GROUP BY w.beds",
    "SELECT sex, COUNT(*) AS n FROM s WHERE hired >= DATE '2020-04-01' AND (age < 3 OR pay >= 20)"
    " GROUP BY sex HAVING COUNT(*) > -1 ORDER BY n DESC LIMIT 1",
    "SELECT sex, COUNT(*) FILTER (WHERE ward IS NULL) / COUNT(*) AS share FROM s GROUP BY sex",
    "SELECT CASE WHEN age < 3 THEN 'low' ELSE 'high' END AS band, SUM(age) FROM s GROUP BY 1",
    "SELECT date_trunc('year', hired) AS y, COUNT(*) FROM s GROUP BY y",
]


@pytest.mark.parametrize("sql", SELECTS)
def test_selects_are_free_biased_and_without_errors(made: Connection, sql: str) -> None:
    before = made.entries()
    result = made.execute(sql).result
    assert result.rows
    assert any("biased" in note for note in result.notes)
    assert all(each is None or set(each) == {None} for each in result.stddev)
    assert result.cost is not None
    assert result.cost.free
    assert made.execute(sql).result.rows == result.rows
    assert made.entries() == before


def test_no_intervals(made: Connection) -> None:
    rows = made.execute(
        "SELECT sex, COUNT(*) AS n, DP_STDDEV(n), DP_INTERVAL_LOW(n), DP_INTERVAL_HIGH(n) FROM s"
        " GROUP BY sex"
    ).fetchall()
    assert all(row[1] > 0 and row[2:] == (None, None, None) for row in rows)


def test_a_synthetic_and_a_private_table_in_one_statement(world: Connection) -> None:
    create(world)
    sql = (
        "SELECT a.sex, a.n, b.n FROM (SELECT sex, COUNT(*) AS n FROM s GROUP BY sex) a"
        " JOIN (SELECT sex, COUNT(*) AS n FROM people GROUP BY sex) b ON a.sex = b.sex"
    )
    result = world.execute(sql, epsilon=1).result
    assert result.cost is not None
    assert not result.cost.free
    assert len(debits(world)) == 2
    model, noisy = result.stddev[1:]
    assert model == (None, None)
    assert noisy is not None
    assert all(each is not None and each > 0 for each in noisy)
    assert any("biased" in note for note in result.notes)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_materialize(made: Connection, out: Path, kind: str) -> None:
    path = out / f"s.{kind}"
    sql = f"MATERIALIZE SYNTHETIC TABLE s INTO '{path}' ROWS = 20000"
    before = made.entries()
    made.execute(sql)
    counts = dict(made.execute("SELECT ward, COUNT(*) FROM s GROUP BY ward").fetchall())
    for ward, drawn in drawn_wards(path).items():
        expected = 20000 * counts[ward] / sum(counts.values())
        assert abs(drawn - expected) <= 8 * expected**0.5 + 1
    assert "exists already" in str(refused(made, sql))
    assert made.entries() == before
    assert [p.name for p in out.iterdir()] == [path.name]


def drawn_wards(path: Path) -> dict[str | None, int]:
    """Count the rows of every ward, and check the rest of the columns."""
    if path.suffix == ".csv":
        with path.open() as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
        assert all(0 <= float(row["pay"]) <= 50 for row in rows)
        assert {int(row["age"]) for row in rows} <= set(range(10))
        assert {row["fixed"] for row in rows} == {"x"}
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = parquet.read_table(path).to_pylist()
        assert all("2020-01-01" <= str(row["hired"]) <= "2020-12-31" for row in rows)
    assert len(rows) == 20000
    assert set(rows[0]) == {"sex", "age", "ward", "pay", "hired", "fixed"}
    found: dict[str | None, int] = {}
    for row in rows:
        ward = row["ward"] or None
        found[ward] = found.get(ward, 0) + 1
    return found


def test_the_default_number_of_rows(made: Connection, out: Path) -> None:
    path = out / "s.csv"
    made.execute(f"MATERIALIZE SYNTHETIC TABLE s INTO '{path}'")
    ((n,),) = made.execute("SELECT COUNT(*) FROM s").fetchall()
    assert len(path.read_text().splitlines()) == round(n) + 1


def test_a_stored_model_needs_no_data(world: Connection) -> None:
    create(world)
    rows = world.execute("SELECT sex, age, COUNT(*) FROM s GROUP BY sex, age").fetchall()
    catalog = world.catalog.path
    world.close()
    (catalog.parent / "people.csv").unlink()
    code = (
        "import dpsql, sys\nwith dpsql.connect(sys.argv[1]) as c:\n"
        "    print(c.execute('SELECT sex, age, COUNT(*) FROM s GROUP BY sex, age').fetchall())"
    )
    root = str(Path(__file__).parents[2])
    found = subprocess.run(
        [sys.executable, "-c", code, str(catalog)],
        capture_output=True, text=True, check=True, cwd=root,
    )  # fmt: skip
    assert found.stdout.strip() == repr(rows)


def test_another_process_may_have_taken_the_name(world: Connection) -> None:
    with dpsql.connect(world.catalog.path) as other:
        create(other)
    error = refused(world, CREATE.format(more="", workload=PAIRS))
    assert (error.code, len(debits(world))) == ("E_STATEMENT", 1)


def test_a_name_that_is_taken_during_a_run_gets_a_number(world: Connection) -> None:
    def slow(*given: Any) -> Any:
        with mock.patch.object(learn, "run_task", task.run_task):
            for name in (" s ", " s_2 "):
                with dpsql.connect(world.catalog.path) as other:
                    other.execute(CREATE.format(more="", workload=PAIRS).replace(" s ", name))
        return task.run_task(*given)

    with mock.patch.object(learn, "run_task", slow):
        result = create(world)
    assert result.columns == ("synthetic", "s_3")
    assert any("s_3" in note for note in result.notes)
    assert world.execute("SELECT COUNT(*) FROM s_3").result.cost.free  # type: ignore[union-attr]
    assert [entry.state for entry in debits(world)] == ["released"] * 3


def settled(connection: Connection, state: str) -> None:
    """The one entry has a state, the budget is spent, and the ledger is sound."""
    (entry,) = debits(connection)
    assert (entry.state, Fraction(entry.epsilon)) == (state, Fraction(1))
    assert connection.budget.remaining_epsilon == 49
    catalog = connection.catalog.path
    connection.close()
    verify_ledger(catalog)
    with dpsql.connect(catalog) as again:
        tables = [row[0] for row in again.execute("SHOW tables").fetchall()]
        assert ("s" in tables) == (state == "released")
        again.execute("SELECT COUNT(*) FROM people", epsilon=1)


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_a_run_that_dies_stores_nothing(world: Connection, fault: type[BaseException]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault("row 17")

    with (
        mock.patch.object(TableHandle, "measure", fail),
        pytest.raises((dpsql.Error, KeyboardInterrupt)) as caught,
    ):
        create(world, "model = 'marginals'")
    assert "row 17" not in str(caught.value)
    settled(world, "failed")


@pytest.mark.parametrize("model", MODELS)
def test_an_interrupt_leaves_a_usable_model(world: Connection, model: str) -> None:
    told = []

    def interrupt(line: str) -> None:
        told.append(line)
        raise KeyboardInterrupt

    world.report = interrupt
    workload = (
        "FOR (SELECT sex, age, ward, pay, COUNT(*) FROM people GROUP BY CUBE (sex, age, ward, pay);"
        + "".join(f"SELECT COUNT(*) FROM people WHERE age <= {i};" for i in range(9))
        + ")"
    )
    result = create(world, f"model = '{model}'", workload)
    assert len(told) == 1
    assert any("interrupted" in note for note in result.notes)
    answer = world.execute("SELECT sex, COUNT(*) FROM s GROUP BY sex").result
    assert sum("interrupted" in note for note in answer.notes) == 1
    settled(world, "released")


def test_a_full_disk(world: Connection) -> None:
    import sqlite3

    from dpsql.answer import store

    class Full(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if sql.startswith("INSERT"):
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *rest)

    class Module:
        Error, Connection = sqlite3.Error, sqlite3.Connection
        IntegrityError = sqlite3.IntegrityError

        @staticmethod
        def connect(*given: Any, **options: Any) -> sqlite3.Connection:
            found: sqlite3.Connection = sqlite3.connect(*given, **{**options, "factory": Full})
            return found

    with (
        mock.patch.object(store, "sqlite3", Module),
        pytest.raises(dpsql.OperationalError) as caught,
    ):
        create(world)
    assert caught.value.code == "E_LEDGER_IO"
    with pytest.raises(dpsql.ProgrammingError):
        world.execute("SELECT COUNT(*) FROM s")
    settled(world, "failed")


@pytest.mark.parametrize("damage", ["cut", "flip", "garbage", "swap"])
def test_a_damaged_store_is_refused(world: Connection, damage: str) -> None:
    import sqlite3
    from contextlib import closing

    create(world)
    catalog = world.catalog.path
    world.close()
    path = catalog.with_suffix(".synthetic")
    body = path.read_bytes()
    if damage == "cut":
        path.write_bytes(body[: len(body) // 2])
    elif damage == "garbage":
        path.write_bytes(b"nothing" * 1000)
    else:
        sql = "UPDATE synthetic SET name = 'z'" if damage == "swap" else (
            "UPDATE synthetic SET body = substr(body, 1, 200) || x'00' || substr(body, 202)"
        )  # fmt: skip
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(sql)
    with pytest.raises(dpsql.OperationalError) as caught:
        dpsql.connect(catalog)
    assert caught.value.code == "E_LEDGER_TAMPERED"


def test_scripts_are_checked_before_they_run(world: Connection, out: Path) -> None:
    good = CREATE.format(more="", workload=PAIRS)
    for bad in (
        good,
        "MATERIALIZE SYNTHETIC TABLE z INTO 'z.csv'",
        "MATERIALIZE SYNTHETIC TABLE s INTO 'z.txt'",
        "CREATE SYNTHETIC TABLE z FROM nope " + PAIRS,
        "SELECT COUNT(*) FROM nope",
    ):
        with pytest.raises(dpsql.Error):
            world.executescript(f"{good}; {bad}")
        assert debits(world) == []
    cursor = world.executescript(
        f"{good}; SELECT sex, COUNT(*) FROM s GROUP BY sex; "
        f"MATERIALIZE SYNTHETIC TABLE s INTO 's.csv' ROWS = 7"
    )
    assert cursor.nextset()
    assert len(cursor.fetchall()) == 2
    assert len((out / "s.csv").read_text().splitlines()) == 8
    assert len(debits(world)) == 1


def shown(folder: Path, which: str) -> list[object]:
    """What can be seen of a session besides the numbers of models."""
    answers = ["SELECT sex, ward, COUNT(*) AS n FROM s_{} GROUP BY sex, ward", "DESCRIBE s_{}"]
    found: list[object] = []
    with dpsql.connect(people(folder / which, which)) as connection:
        for model in MODELS:
            sql = CREATE.format(more=f", model = '{model}'", workload=PAIRS)
            sql = sql.replace(" s ", f" s_{model} ")
            for each in ("EXPLAIN " + sql, sql, sql, *answers):
                found.append(outcome(connection, each.format(model)))
        found.append(outcome(connection, CREATE.format(more="", workload=PAIRS) * 2))
        found.append(outcome(connection, CREATE.format(more="", workload="FOR (SELECT 1)")))
        found.append(outcome(connection, "SHOW tables"))
        found.append([(e.epsilon, e.rho, e.plan_hash, e.state) for e in debits(connection)])
        found.append(connection.budget.remaining_epsilon)
    return found


LOOKS = ("chosen", "error", "warning")
"""What is told of some runs only: a released number of rows decides how they go on."""


def outcome(connection: Connection, sql: str) -> object:
    try:
        result = connection.execute(sql).result
    except dpsql.Error as error:
        return type(error), str(error), error.args
    rows: list[object] = list(result.rows)
    if "biased" in str(result.notes):
        rows = [row[:-1] for row in result.rows]
    elif sql.startswith("CREATE"):
        keys = dict.fromkeys(row[0] for row in result.rows if row[0] not in LOOKS)
        rows = [*keys, *(row for row in result.rows if row[0] == "rule")]
    return result.columns, result.types, result.notes, result.message, result.stddev, rows


def test_the_static_rule(tmp_path: Path) -> None:
    first, *others = (shown(tmp_path, which) for which in ("table", "more", "empty"))
    for other in others:
        for one, two in zip(first, other, strict=True):
            assert one == two


def test_no_true_answer_is_within_reach(world: Connection) -> None:
    import numpy as np

    from dpsql.privacy.doors.exact_counts import TrueAnswers
    from tests.support.reach import reachable

    pairs = [tuple(line_of(i).split(",")[1:3]) for i in range(ROWS)]
    true = [pairs.count((sex, str(age))) for sex in "FM" for age in range(10)]
    for model in MODELS[1:]:
        sql = CREATE.format(more=f", model = '{model}'", workload=PAIRS).replace(
            " s ", f" {model}_ "
        )
        world.execute(sql)
        found = list(reachable(world.engine.models[f"{model}_"]))
        assert not any(isinstance(each, TableHandle | TrueAnswers) for each in found)
        names = {type(each).__module__ for each in found}
        assert not any(name.startswith(("dpsql.privacy", "duckdb", "_duckdb")) for name in names)
        arrays = [np.asarray(each) for each in found if isinstance(each, np.ndarray)]
        assert all(np.isfinite(each).all() for each in arrays if each.dtype.kind == "f")
        assert not any(np.array_equal(np.sort(each.ravel()), np.sort(true)) for each in arrays)


def test_a_fit_that_ended_early_is_told_and_fitted_on_for_free(
    world: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Graphical, "fit", partialmethod(_cut_short, Graphical.fit))
    loop = "FOR (SELECT sex, age, ward, COUNT(*) FROM people GROUP BY sex, age, ward)"
    create(world, "model = 'pgm'", loop)
    told = [str(row) for row in world.execute("DESCRIBE SYNTHETIC TABLE s").fetchall()]
    assert sum("a further fit is free" in line for line in told) == 1
    charged = len(world.entries())
    again = world.refit("s", 1e9)
    assert again.name == "s_2"
    assert len(world.entries()) == charged
    told = [str(row) for row in world.execute("DESCRIBE SYNTHETIC TABLE s_2").fetchall()]
    assert not any("a further fit is free" in line for line in told)
    [[n]] = world.execute("SELECT COUNT(*) FROM s_2").fetchall()
    [[first]] = world.execute("SELECT COUNT(*) FROM s").fetchall()
    assert n == pytest.approx(first)


def _cut_short(self: Graphical, fit: Any, *facts: Any, **named: Any) -> Any:
    """A fit with potentials that are all zero, as if no sweep had been done."""
    found = fit(self, *facts, **named)
    nothing = {clique: 0 * table for clique, table in found.potentials.items()}
    known = (found.domain, found.total, nothing, found.cap)
    return model_of(*known, loss=1e9, explained=1.0)
