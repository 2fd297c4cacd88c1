"""Budgets of tables inside the catalog's: a request must be admitted by both."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import inspect, migrate_ledger, raise_budget
from dpsql.ui.cli import run_command_line

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_reader")]

COUNT = "SELECT COUNT(*) AS n FROM {}"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A catalog of two tables, a total of 3, and a budget of 1 for one of them."""
    rows = "".join(f"{i % 5}\n" for i in range(100))
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x\n" + rows)
    tables = "".join(
        f'[table.{name}]\nsource = "{name.lower()}.csv"\nprivacy_unit = "row"\n{budget}'
        f'[table.{name}.column]\nx = {{ type = "integer", domain = [0, 4] }}\n'
        for name, budget in (("A", "budget = { epsilon = 1.0 }\n"), ("b", ""))
    )
    catalog = tmp_path / "two.toml"
    catalog.write_text(f"[budget]\nepsilon = 3.0\ndelta = 1e-9\n{tables}")
    return catalog


def test_a_request_is_admitted_by_both(two: Path) -> None:
    with dpsql.connect(two) as connection:
        connection.execute(COUNT.format("a"), epsilon=0.75)
        with pytest.raises(dpsql.BudgetExceeded) as caught:
            connection.execute("SELECT x, COUNT(*) FROM a GROUP BY x", epsilon=0.5)
        assert caught.value.remaining == Fraction(1, 4)
        connection.execute(COUNT.format("b"), epsilon=2)
        with pytest.raises(dpsql.BudgetExceeded) as caught:
            connection.execute("SELECT x, COUNT(*) FROM b GROUP BY x", epsilon=0.5)
        assert caught.value.remaining == Fraction(1, 4)
        assert connection.budget.entries == 2


def test_what_can_still_be_asked_is_for_the_analyst_and_the_best_table(two: Path) -> None:
    two.write_text(two.read_text() + "[analyst.ana]\nepsilon = 2.5\n")
    with dpsql.connect(two, analyst="ana") as connection:
        assert connection.askable == (Fraction(5, 2), Fraction(5, 2))
        connection.execute(COUNT.format("b"), epsilon=2)
        assert connection.askable == (Fraction(1, 2), Fraction(5, 2))
        assert connection.budget.remaining_epsilon == 1
    with inspect(two) as connection:
        assert connection.askable == (Fraction(1), Fraction(3))


def test_a_workload_over_both_tables_is_charged_to_the_nested_budget_in_full(two: Path) -> None:
    with dpsql.connect(two, epsilon=0.75) as connection:
        connection.executescript(f"{COUNT.format('a')}; {COUNT.format('b')}")
        assert connection.budget.nested["table:a"].remaining_epsilon == Fraction(1, 4)
        assert connection.budget.remaining_epsilon == Fraction(9, 4)
        (entry,) = [e for e in connection.entries() if e.kind == "debit"]
        assert entry.within == "table:a"


def test_show_budget_and_explain_know_it(two: Path) -> None:
    with dpsql.connect(two, epsilon=0.75) as connection:
        connection.execute(COUNT.format("a"))
        shown = dict(connection.execute("SHOW budget").fetchall())
        assert shown["total epsilon of A"] == "1"
        assert shown["largest epsilon of one more request on A"] == "0.25"
        assert "largest epsilon of one more Gaussian request on A" in shown
        assert connection.explain(COUNT.format("a")).remaining == Fraction(1, 4)
        assert connection.explain(COUNT.format("b")).remaining == Fraction(9, 4)


def test_gaussian_requests_are_charged_at_the_nested_order(two: Path) -> None:
    with dpsql.connect(two, delta=1e-9, noise="gaussian") as connection:
        left = connection.budget.nested["table:a"].remaining_gaussian_epsilon
        assert left == 1
        connection.execute(COUNT.format("a"), epsilon=1)
        with pytest.raises(dpsql.BudgetExceeded):
            connection.execute("SELECT x, COUNT(*) FROM a GROUP BY x", epsilon=0.01)
        connection.execute(COUNT.format("b"), epsilon=1)


def test_a_section_says_the_same(two: Path) -> None:
    inline = read_catalog(two)
    text = two.read_text().replace("budget = { epsilon = 1.0 }\n", "")
    two.write_text(
        text.replace("[table.A.column]", "[table.A.budget]\nepsilon = 1\n[table.A.column]")
    )
    assert read_catalog(two) == inline
    assert inline.tables["a"].budget == 1


def test_another_budget_of_a_table_is_another_catalog(two: Path) -> None:
    with dpsql.connect(two, epsilon=0.1) as connection:
        connection.execute(COUNT.format("b"))
    two.write_text(
        two.read_text().replace("budget = { epsilon = 1.0 }", "budget = { epsilon = 2 }")
    )
    with pytest.raises(dpsql.OperationalError, match="E_POLICY_CHANGED"):
        dpsql.connect(two)


@pytest.mark.parametrize(
    "budget",
    ["{ epsilon = 3.5 }", "{ epsilon = 0 }", "{ epsilon = -1 }", "{ epsilon = inf }", "{}", "1.0",
     "{ epsilon = true }", '{ epsilon = "1" }', "{ epsilon = 1, delta = 0 }", "{ epsilon = nan }"],
)  # fmt: skip
def test_budgets_that_make_no_sense(two: Path, budget: str) -> None:
    two.write_text(two.read_text().replace("{ epsilon = 1.0 }", budget))
    with pytest.raises(dpsql.CatalogError, match=r"table 'A'|\[budget\]"):
        read_catalog(two)


def declare(catalog: Path, text: str) -> Path:
    catalog.write_text(catalog.read_text() + text)
    return catalog


@pytest.fixture
def shared(two: Path) -> Path:
    """The catalog with two analysts: a total of 3, of 1 on table a, of 1 for Ana, 2.5 for Bo."""
    return declare(two, "[analyst.Ana]\nepsilon = 1.0\n[analyst.bo]\nepsilon = 2.5\n")


def test_a_request_is_charged_to_catalog_table_and_analyst(shared: Path) -> None:
    with dpsql.connect(shared, analyst="ANA", epsilon=0.5) as connection:
        connection.execute(COUNT.format("a"))
        (entry,) = [e for e in connection.entries() if e.kind == "debit"]
        assert entry.within.split("\n") == ["table:a", "analyst:ana"]
        budget = connection.budget
        assert budget.remaining_epsilon == Fraction(5, 2)
        assert budget.nested["table:a"].remaining_epsilon == Fraction(1, 2)
        assert budget.nested["analyst:ana"].remaining_epsilon == Fraction(1, 2)
        assert budget.nested["analyst:bo"].remaining_epsilon == Fraction(5, 2)
        with pytest.raises(dpsql.BudgetExceeded) as caught:
            connection.execute(COUNT.format("b"), epsilon=0.75)
        assert caught.value.remaining == Fraction(1, 2)
        assert connection.budget == budget
    with dpsql.connect(shared, analyst="bo") as connection:
        with pytest.raises(dpsql.BudgetExceeded) as caught:
            connection.execute("SELECT x, COUNT(*) FROM a GROUP BY x", epsilon=0.75)
        assert caught.value.remaining == Fraction(1, 2)
        connection.execute(COUNT.format("b"), epsilon=0.75)
        assert connection.budget.nested["analyst:ana"].remaining_epsilon == Fraction(1, 2)


def test_the_whole_bounds_what_analysts_may_spend_together(shared: Path) -> None:
    with dpsql.connect(shared, analyst="bo") as connection:
        connection.execute(COUNT.format("b"), epsilon=2.5)
        assert connection.budget.nested["analyst:ana"].remaining_epsilon == Fraction(1, 2)
    with dpsql.connect(shared, analyst="ana") as connection:
        with pytest.raises(dpsql.BudgetExceeded) as caught:
            connection.execute("SELECT x, COUNT(*) FROM b GROUP BY x", epsilon=0.75)
        assert caught.value.remaining == Fraction(1, 2)


def test_gaussian_requests_of_an_analyst(shared: Path) -> None:
    with dpsql.connect(shared, delta=1e-9, noise="gaussian", analyst="ana") as connection:
        assert connection.budget.nested["analyst:ana"].remaining_gaussian_epsilon == 1
        connection.execute(COUNT.format("b"), epsilon=1)
        with pytest.raises(dpsql.BudgetExceeded) as caught:
            connection.execute("SELECT x, COUNT(*) FROM b GROUP BY x", epsilon=0.01)
        assert caught.value.remaining < Fraction(1, 100)
        assert connection.budget.entries == 1


def test_a_repetition_is_free_for_every_analyst(shared: Path) -> None:
    with dpsql.connect(shared, analyst="ana", epsilon=0.5) as connection:
        first = connection.execute(COUNT.format("b")).fetchall()
    with dpsql.connect(shared, analyst="bo", epsilon=0.5) as connection:
        assert connection.execute(COUNT.format("b")).fetchall() == first
        assert connection.budget.nested["analyst:bo"].remaining_epsilon == Fraction(5, 2)


def test_show_budget_explain_and_ledger_know_the_analyst(shared: Path) -> None:
    with dpsql.connect(shared, analyst="ana", epsilon=0.75) as connection:
        connection.execute(COUNT.format("b"))
        shown = dict(connection.execute("SHOW budget").fetchall())
        assert shown["total epsilon of analyst ana"] == "1"
        assert shown["largest epsilon of one more request on analyst ana"] == "0.25"
        assert "total epsilon of analyst bo" not in shown
        assert connection.explain("SELECT x, COUNT(*) FROM b GROUP BY x").remaining == Fraction(
            1, 4
        )


@pytest.mark.parametrize("name", [None, "", "eve", 7, "analyst:ana", b"ana"])
def test_unknown_analysts_are_refused(shared: Path, name: object) -> None:
    with pytest.raises(dpsql.DataError, match="E_ANALYST") as caught:
        dpsql.connect(shared, analyst=name)  # type: ignore[arg-type]
    assert caught.value.hint == "analysts: ana, bo"


def test_an_analyst_where_none_is_declared_is_refused(two: Path) -> None:
    with pytest.raises(dpsql.DataError, match="E_ANALYST"):
        dpsql.connect(two, analyst="ana")


def test_the_curator_sees_everything_and_charges_nothing(shared: Path) -> None:
    with inspect(shared) as connection:
        shown = dict(connection.execute("SHOW budget").fetchall())
        assert {"total epsilon of analyst ana", "total epsilon of analyst bo"} <= set(shown)
        with pytest.raises(dpsql.DataError, match="E_ANALYST"):
            connection.execute(COUNT.format("b"), epsilon=1)
        assert connection.budget.entries == 0


def test_the_command_line(shared: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ask = [str(shared), "-c", COUNT.format("a"), "--epsilon", "0.5"]
    assert run_command_line(ask) == 2
    assert "no analyst is named" in capfd.readouterr().err
    assert run_command_line([*ask, "--analyst", "eve"]) == 2
    assert run_command_line([*ask, "--analyst", "Ana"]) == 0
    file = shared.with_name("w.sql")
    file.write_text(COUNT.format("b"))
    order = ["run", str(file), "--catalog", str(shared), "-e", "0.5", "--analyst", "ana"]
    assert run_command_line(order) == 0
    capfd.readouterr()
    assert run_command_line(["ledger", str(shared)]) == 0
    found = capfd.readouterr()
    assert "table a, analyst ana" in found.out
    assert "0 of 1 for analyst ana" in found.err


@pytest.mark.parametrize(
    "text",
    ["[analyst.ana]\n", "[analyst.ana]\nepsilon = 9\n", "[analyst.ana]\nepsilon = true\n",
     "[analyst.ana]\nepsilon = nan\n", "[analyst]\nana = 1\n", "[analyst.ana]\nbudget = 1\n",
     "[analyst.'']\nepsilon = 1\n", "[analyst.a]\nepsilon = 1\n[analyst.A]\nepsilon = 1\n",
     '[analyst."a\\nb"]\nepsilon = 1\n', "[[analyst]]\nepsilon = 1\n"],
)  # fmt: skip
def test_analysts_that_make_no_sense(two: Path, text: str) -> None:
    with pytest.raises(dpsql.CatalogError):
        read_catalog(declare(two, text))


def test_declaring_an_analyst_is_a_migration(two: Path) -> None:
    with dpsql.connect(two, epsilon=1) as connection:
        connection.execute(COUNT.format("b"))
    declare(two, "[analyst.ana]\nepsilon = 1\n")
    with pytest.raises(dpsql.OperationalError, match="E_POLICY_CHANGED"):
        dpsql.connect(two, analyst="ana")
    migrate_ledger(two, "Ana joins")
    with dpsql.connect(two, analyst="ana") as connection:
        assert connection.budget.nested["analyst:ana"].remaining_epsilon == 1
    raise_budget(two, Fraction(4))
    with dpsql.connect(two, analyst="ana", epsilon=1) as connection:
        connection.execute(COUNT.format("b"))  # paid for before she came
        assert connection.budget.nested["analyst:ana"].remaining_epsilon == 1


@pytest.mark.parametrize("gone", ["analyst", "table"])
def test_a_budget_that_comes_back_goes_on_where_it_stopped(shared: Path, gone: str) -> None:
    before = shared.read_text()
    with dpsql.connect(shared, analyst="ana", epsilon=0.75) as connection:
        connection.execute(COUNT.format("a"))
    start = before.index("[analyst.Ana]" if gone == "analyst" else "[table.A]")
    end = before.index("[analyst.bo]" if gone == "analyst" else "[table.b]")
    shared.write_text(before[:start] + before[end:])
    migrate_ledger(shared)
    with dpsql.connect(shared, analyst="bo", epsilon=0.5) as connection:
        connection.execute(COUNT.format("b"))
    shared.write_text(before)
    migrate_ledger(shared)
    with dpsql.connect(shared, analyst="ana") as connection:
        nested = connection.budget.nested
        assert nested["analyst:ana"].remaining_epsilon == Fraction(1, 4)
        assert nested["table:a"].remaining_epsilon == Fraction(1, 4)


def test_the_budget_of_a_table_that_stays_is_not_lifted_by_leaving_it_out(shared: Path) -> None:
    dpsql.connect(shared, analyst="ana").close()
    text = shared.read_text()
    shared.write_text(text.replace("budget = { epsilon = 1.0 }\n", ""))
    with pytest.raises(dpsql.OperationalError, match="E_POLICY_CHANGED"):
        migrate_ledger(shared)
    shared.write_text(text.replace("budget = { epsilon = 1.0 }", "budget = { epsilon = 3.0 }"))
    assert migrate_ledger(shared) is not None
