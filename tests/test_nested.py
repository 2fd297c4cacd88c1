"""Budgets of tables inside the catalog's: a request must be admitted by both."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from dpsql.catalog import Catalog

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
    inline = Catalog.load(two)
    text = two.read_text().replace("budget = { epsilon = 1.0 }\n", "")
    two.write_text(
        text.replace("[table.A.column]", "[table.A.budget]\nepsilon = 1\n[table.A.column]")
    )
    assert Catalog.load(two) == inline
    assert inline.tables["a"].budget == 1


def test_another_budget_of_a_table_is_another_catalog(two: Path) -> None:
    dpsql.connect(two).close()
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
        Catalog.load(two)
