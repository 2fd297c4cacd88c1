"""Workloads answered by a learned model: one run, one charge, the same numbers ever after."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.answer.result import Result
from dpsql.answer.store import Store
from dpsql.dbapi.connection import Connection
from dpsql.engine import learn as learn_module
from dpsql.errors import LedgerError
from dpsql.interrupts import Cancellation
from dpsql.learn import mwem as mwem_module
from dpsql.privacy.budget.accounting import rho_for

pytestmark = pytest.mark.slow

CATALOG = """
[budget]
epsilon = 100
delta = 1e-6
[ledger]
anchor = "anchors"
[table.people]
source = "people.csv"
privacy_unit = { column = "person", max_rows = 2 }
row_count_hint = 400
[table.people.column]
person = { type = "integer" }
sex = { type = "text", domain = ["f", "m"] }
town = { type = "text", domain = ["x", "y", "z"] }
age = { type = "integer", domain = [0, 19] }
pay = { type = "number", bounds = [0, 10] }
size = { type = "number", domain = [0, 10], bins = 5 }
[table.homes]
source = "homes.csv"
privacy_unit = "row"
[table.homes.column]
town = { type = "text", domain = ["x", "y", "z"] }
"""

MECHANISMS = ("mwem", "rap", "marginals", "adaptive")
CUBE = "sex, town, COUNT(*) AS n FROM people GROUP BY CUBE (sex, town)"
RUNNING = "age, SUM(COUNT(*)) OVER (ORDER BY age) AS n FROM people GROUP BY age"
AMOUNT = "sex, SUM(size) AS s, COUNT(*) AS n FROM people GROUP BY sex"


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    rows = ["person,sex,town,age,pay,size"]
    for i in range(400):
        rows.append(f"{i // 2},{'fm'[i % 3 > 0]},{'xyz'[i % 7 % 3]},{i % 11},{i % 9},{i % 10}")
    for name in ("people.csv", "homes.csv"):
        (tmp_path / name).write_text("\n".join(rows) + "\n")
    (tmp_path / "people.toml").write_text(CATALOG)
    return tmp_path / "people.toml"


@pytest.fixture
def people(catalog: Path) -> Iterator[Connection]:
    with dpsql.connect(catalog, epsilon=20) as connection:
        yield connection


def clause(mechanism: str, more: str = "") -> str:
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism = '{mechanism}'{more}) "


def ask(connection: Connection, mechanism: str, body: str) -> Result:
    return connection.execute(clause(mechanism) + body).result


def numbers(result: Result) -> np.ndarray[Any, Any]:
    return np.array([row[-1] for row in result.rows], dtype=float)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("body", [CUBE, RUNNING, AMOUNT])
def test_answers_are_biased_and_cost_once(people: Connection, mechanism: str, body: str) -> None:
    before = people.budget.remaining_epsilon
    first = ask(people, mechanism, body)
    assert first.cost is not None
    assert first.cost.epsilon == 20
    assert not first.cost.free
    assert before - people.budget.remaining_epsilon == 20
    assert people.entries()[-1].state == "released"
    assert first.biased
    assert any("biased" in note for note in first.notes)
    assert first.stddev[-1] == (None,) * len(first.rows)
    assert first.intervals[-1] == (None,) * len(first.rows)
    assert np.isfinite(numbers(first)).all()
    again = ask(people, mechanism, body)
    assert again.rows == first.rows
    assert again.cost is not None
    assert again.cost.free
    assert again.receipt == first.receipt
    assert before - people.budget.remaining_epsilon == 20


def test_a_generous_budget_comes_near_the_truth(people: Connection) -> None:
    people.execute("SET epsilon = 50")
    for mechanism in ("mwem", "marginals"):
        found = {row[:2]: row[2] for row in ask(people, mechanism, CUBE).rows}
        assert found[None, None] == pytest.approx(400, abs=20)
        assert found["f", None] == pytest.approx(134, abs=25)


def test_a_second_process_has_the_same_numbers(catalog: Path, people: Connection) -> None:
    first = ask(people, "mwem", CUBE)
    code = (
        "import sys, dpsql\n"
        "with dpsql.connect(sys.argv[1], epsilon=20) as c:\n"
        "    r = c.execute(sys.argv[2]).result\n"
        "    print(repr(r.rows), r.cost.free)\n"
    )
    command = [sys.executable, "-c", code, str(catalog), clause("mwem") + CUBE]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.stdout.strip() == f"{first.rows!r} True", found.stderr


def test_a_fresh_run_is_paid_again_and_replaces_the_old(people: Connection) -> None:
    first = ask(people, "mwem", RUNNING)
    people.execute("SET fresh = on")
    second = ask(people, "mwem", RUNNING)
    assert people.budget.entries == 2
    assert second.rows != first.rows
    people.execute("SET fresh = off")
    assert ask(people, "mwem", RUNNING).rows == second.rows
    assert people.budget.entries == 2


def test_other_mechanisms_and_budgets_are_other_requests(people: Connection) -> None:
    ask(people, "mwem", CUBE)
    ask(people, "rap", CUBE)
    people.execute("SET epsilon = 5")
    ask(people, "mwem", CUBE)
    assert people.budget.entries == 3


def test_gaussian_noise_is_charged_as_rho(people: Connection) -> None:
    people.execute("SET delta = 1e-7")
    people.execute("SET epsilon = 1")
    found = people.execute(clause("marginals", ", noise = 'gaussian'") + CUBE).result
    assert found.cost is not None
    assert found.cost.noise == "gaussian"
    assert people.entries()[-1].state == "released"
    assert Fraction(people.entries()[-1].rho) == rho_for(Fraction(1), Fraction("1e-7"))


@pytest.mark.parametrize(
    ("mechanism", "more", "noise"),
    [
        ("marginals", "", "laplace"),
        ("adaptive", "", "laplace"),
        ("mwem", "", "gaussian"),
        ("rap", "", "gaussian"),
        ("marginals", ", rounds = 2", "gaussian"),
    ],
)
def test_what_is_measured_once_has_the_better_noise(
    people: Connection, mechanism: str, more: str, noise: str
) -> None:
    people.execute("SET delta = 1e-7")
    text = clause(mechanism, more) + CUBE
    explained = [row[0] for row in people.execute("EXPLAIN " + text).fetchall()]
    assert any(noise in line.lower() for line in explained)
    cost = people.execute(text).result.cost
    assert cost is not None
    assert cost.noise == noise


def test_the_metric_is_part_of_the_request(people: Connection) -> None:
    def rule(more: str) -> list[str]:
        text = "EXPLAIN " + clause("adaptive", more) + CUBE
        lines = [row[0] for row in people.execute(text).fetchall()]
        return [line for line in lines if line.startswith(("rule", "metric"))]

    assert "metric      mean" in rule("")
    mean, largest = rule(", metric = 'mean'"), rule(", metric = 'max'")
    assert "metric      max" in largest
    assert ("mean cell" in mean[0], "max error" in largest[0]) == (True, True)
    for mechanism in ("marginals", "adaptive"):
        first = people.execute(clause(mechanism, ", metric = 'max'") + CUBE).result
        people.execute("SET metric = 'max'")
        again = ask(people, mechanism, CUBE)
        assert again.cost is not None
        assert (again.cost.free, again.rows) == (True, first.rows)
        people.execute("SET metric = 'mean'")
        other = ask(people, mechanism, CUBE)
        assert other.cost is not None
        assert not other.cost.free
    assert people.budget.entries == 4


def test_rounds_are_part_of_the_request(people: Connection) -> None:
    def free(mechanism: str, more: str) -> bool:
        result = people.execute(clause(mechanism, more) + CUBE).result
        assert result.cost is not None
        return result.cost.free

    people.execute("SET epsilon = 1")
    wanted = ("", ", rounds = 2", ", rounds = 2, per_round = 3")
    for more in wanted:
        assert not free("rap", more)
    for more in wanted:
        assert free("rap", more)
    people.execute("SET rounds = 2")
    assert free("rap", "")
    assert free("rap", ", rounds = 2")
    assert not free("mwem", ", rounds = 'doubling'")
    assert not free("mwem", ", rounds = 'annealing'")
    assert people.budget.entries == 5
    assert people.execute("SHOW rounds").fetchall() == [("2",)]
    lines = people.execute("EXPLAIN " + clause("rap", ", per_round = 3") + CUBE).fetchall()
    assert {("rounds      2",), ("per_round   3",)} <= set(lines)
    with pytest.raises(dpsql.ProgrammingError, match="looks once"):
        people.execute("SELECT COUNT(*) FROM people")
    people.execute("SET rounds = auto")
    assert free("rap", "")
    assert people.budget.entries == 5


def test_explain_is_free_and_says_why(people: Connection) -> None:
    def lines(text: str) -> list[str]:
        return [row[0] for row in people.execute("EXPLAIN " + text).fetchall()]

    named = lines(clause("mwem") + CUBE)
    assert any(line.startswith("strategy    mwem") for line in named)
    assert any(line.startswith("rule") for line in named)
    assert any("no standard errors" in line for line in named)
    people.execute("SET epsilon = 0.001")
    assert any("budget too small" in line for line in lines(f"SELECT {CUBE}"))
    assert any("mechanism = 'adaptive'" in line for line in lines(f"SELECT {RUNNING}"))
    assert any("budget too small" in line for line in lines(clause("adaptive") + CUBE))
    people.execute("SET epsilon = 50")
    assert not any("advice" in line for line in lines(f"SELECT {CUBE}"))
    assert people.budget.entries == 0
    ask(people, "mwem", CUBE)
    assert any("free: from entry" in line for line in lines(clause("mwem") + CUBE))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (clause("mwem") + "sex, SUM(pay) FROM people GROUP BY sex", "E_EXPR_IN_AGG"),
        (clause("rap") + "sex, COUNT(DISTINCT person) FROM people GROUP BY sex", "E_AGGREGATE"),
        (clause("mwem") + "COUNT(*) FROM people", "E_WORKLOAD"),
        (
            clause("mwem") + "a.n + b.n AS d FROM (SELECT COUNT(*) n FROM people WHERE age > 3) a, "
            "(SELECT COUNT(*) n FROM homes WHERE town = 'x') b",
            "E_WORKLOAD",
        ),
        (clause("mwem", ", reconstruct = 'pgm'") + CUBE, "E_SETTING"),
        (clause("mwem", ", max_stddev = 3") + CUBE, "E_SETTING"),
        (clause("mwem", ", weight = 3") + CUBE, "E_SETTING"),
        (clause("mwem", ", noise = 'gaussian'") + CUBE, "E_DELTA"),
        (clause("magic") + CUBE, "E_SETTING"),
        (clause("mwem", ", metric = 'median'") + CUBE, "E_SETTING"),
        (clause("mwem", ", rounds = 0") + CUBE, "E_SETTING"),
        (clause("mwem", ", rounds = 'many'") + CUBE, "E_SETTING"),
        (clause("mwem", ", per_round = 2") + CUBE, "E_SETTING"),
        (clause("rap", ", rounds = 1, per_round = 2") + CUBE, "E_SETTING"),
        (clause("marginals", ", rounds = 'doubling'") + CUBE, "E_SETTING"),
        (clause("auto", ", rounds = 3") + CUBE, "E_SETTING"),
        (clause("mwem", ", metric = 'max'") + CUBE, "E_SETTING"),
        (clause("rap", ", metric = 'max'") + CUBE, "E_SETTING"),
        (clause("mwem", ", clip = 'svt'") + "SUM(pay) FROM people", "E_SETTING"),
    ],
)
def test_refusals_cost_nothing(people: Connection, text: str, code: str) -> None:
    with pytest.raises(dpsql.Error) as error:
        people.execute(text)
    assert error.value.code == code
    assert error.value.hint
    assert people.budget.entries == 0


def test_a_table_too_large_for_mwem_is_refused_before_the_charge(
    people: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.learn.task.Settings", lambda hint: mwem_module.Settings(cap=4))
    with pytest.raises(dpsql.ProgrammingError) as error:
        ask(people, "mwem", "sex, town, COUNT(*) FROM people GROUP BY sex, town")
    assert error.value.code == "E_TOO_LARGE"
    assert people.budget.entries == 0


def test_too_little_budget_is_refused(people: Connection) -> None:
    for _ in range(5):
        people.execute("SET fresh = on")
        ask(people, "mwem", CUBE)
    with pytest.raises(dpsql.BudgetExceeded):
        ask(people, "mwem", CUBE)
    assert people.budget.entries == 5


def test_a_killed_run_stays_charged_and_leaves_nothing(
    people: Connection, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret 42")

    with monkeypatch.context() as patched:
        patched.setattr(learn_module, "run_task", fail)
        with pytest.raises(dpsql.Error) as error:
            ask(people, "mwem", CUBE)
    assert "42" not in str(error.value)
    assert people.entries()[-1].state == "failed"
    assert people.budget.remaining_epsilon == 80
    assert stored(catalog) == 0
    assert not ask(people, "mwem", CUBE).cost.free  # type: ignore[union-attr]
    assert people.budget.remaining_epsilon == 60
    assert stored(catalog) == 1


def test_a_full_disk_stores_nothing_half(
    people: Connection, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if sql.startswith("INSERT") and "learned" in sql:
                super().execute(sql, *rest)
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *rest)

    with monkeypatch.context() as patched:
        full = SimpleNamespace(
            connect=lambda *given, **said: sqlite3.connect(*given, **{**said, "factory": Full}),
            Error=sqlite3.Error,
            IntegrityError=sqlite3.IntegrityError,
        )
        patched.setattr("dpsql.answer.store.sqlite3", full)
        with pytest.raises(dpsql.Error) as error:
            ask(people, "mwem", CUBE)
    assert error.value.code == "E_LEDGER_IO"
    assert people.entries()[-1].state == "failed"
    assert stored(catalog) == 0
    assert Store(catalog).tables.all() == {}


@pytest.mark.parametrize("is_asked", [False, True])
def test_an_interrupt_leaves_a_usable_partial_model(
    people: Connection, monkeypatch: pytest.MonkeyPatch, is_asked: bool
) -> None:
    """Ctrl-C, and a cancellation of another thread, as the server has it."""
    looks = []
    wish = Cancellation()
    real = mwem_module._MwemLoop.learn

    def learn(self: Any, *given: Any) -> Any:
        looks.append(1)
        if len(looks) == 2 and not is_asked:
            raise KeyboardInterrupt
        if len(looks) == 2:
            wish.ask()
        return real(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(mwem_module._MwemLoop, "learn", learn)
        with wish if is_asked else nullcontext():
            found = ask(people, "mwem", CUBE)
    assert any("interrupted" in note for note in found.notes)
    assert (numbers(found) >= 0).all()
    assert people.entries()[-1].state == "released"
    assert people.budget.remaining_epsilon == 80
    assert ask(people, "mwem", CUBE).rows == found.rows


def test_an_interrupt_before_anything_is_known_is_raised(
    people: Connection, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(mwem_module._MwemLoop, "choose", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ask(people, "mwem", RUNNING)
    assert people.entries()[-1].state == "failed"
    assert stored(catalog) == 0


def test_a_damaged_store_is_named(people: Connection, catalog: Path) -> None:
    ask(people, "mwem", CUBE)
    with sqlite3.connect(catalog.with_suffix(".synthetic")) as db:
        db.execute("UPDATE learned SET body = x'00'")
    db.close()
    with pytest.raises(LedgerError) as error:
        ask(people, "mwem", CUBE)
    assert error.value.code == "E_LEDGER_TAMPERED"
    assert people.budget.entries == 1


def test_a_script_is_one_run(people: Connection) -> None:
    cursor = people.executescript(f"SET mechanism = 'marginals'; SELECT {CUBE}; SELECT {RUNNING};")
    shown = []
    while True:
        if cursor.result.kind == "answer":
            shown.append(cursor.result)
        if not cursor.nextset():
            break
    assert len(shown) == 2
    assert people.budget.entries == 1
    assert shown[0].receipt == shown[1].receipt


def test_an_empty_table_can_be_learned(catalog: Path) -> None:
    (catalog.parent / "people.csv").write_text("person,sex,town,age,pay,size\n")
    with dpsql.connect(catalog, epsilon=1) as connection:
        for mechanism in MECHANISMS:
            assert np.isfinite(numbers(ask(connection, mechanism, CUBE))).all()


def stored(catalog: Path) -> int:
    """How many models of workloads are stored."""
    path = catalog.with_suffix(".synthetic")
    if not path.exists():
        return 0
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE IF NOT EXISTS learned (request)")
        (count,) = db.execute("SELECT COUNT(*) FROM learned").fetchone()
    db.close()
    return int(count)
