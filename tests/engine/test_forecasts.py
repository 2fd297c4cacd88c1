"""Forecasts: what plain noise on each number would give, privacy units among them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.plan.limits import FAIR
from dpsql.settings.table import PUBLISHED
from dpsql.ui.report import ALONE, ERRORS, errors_grid

CATALOG = """
[budget]
epsilon = 10
delta = 1e-6
[table.t]
source = "t.csv"
privacy_unit = {{ column = "who", max_rows = {} }}
[table.t.column]
g = {{ type = "text", domain = ["a", "b", "c"] }}
"""
SQL = "SELECT g, COUNT(*) AS n, COUNT(DISTINCT who) AS people FROM t GROUP BY g"


@pytest.mark.parametrize("rows", [2, 8])
def test_plain_noise_pays_for_rows_and_for_units(tmp_path: Path, rows: int) -> None:
    (tmp_path / "t.csv").write_text("who,g\n")
    (tmp_path / "c.toml").write_text(CATALOG.format(rows))
    groups = min(rows, 3)
    with dpsql.connect(tmp_path / "c.toml", epsilon=1, delta=1e-9) as connection:
        for noise in ("laplace", "gaussian"):
            connection.set("noise", noise)
            found = connection.explain(SQL)
            plain = {each.name: each.plain for each in found.statements[0].errors}
            if noise == "laplace":
                assert plain == pytest.approx(dict.fromkeys(plain, math.sqrt(2) * (rows + groups)))
                continue
            alone = connection.explain(SQL.replace(", COUNT(DISTINCT who) AS people", ""))
            unit = alone.statements[0].errors[0].rmse / rows
            assert plain == pytest.approx(dict.fromkeys(plain, unit * math.sqrt(rows**2 + groups)))


STATEMENTS = (
    "SELECT COUNT(*) AS n FROM t",
    "SELECT g, COUNT(*) AS n, COUNT(*) FILTER (WHERE g <> 'a') AS m FROM t GROUP BY g",
    "SELECT g, COUNT(DISTINCT who) AS people FROM t GROUP BY g",
)


PART = "SELECT g, COUNT(*) / SUM(COUNT(*)) OVER () AS p FROM t GROUP BY g"


def test_columns_are_told_beside_what_they_have_alone(tmp_path: Path) -> None:
    """With a third of the budget each: plain noise on all numbers is what nobody would use."""
    (tmp_path / "t.csv").write_text("who,g\n")
    (tmp_path / "c.toml").write_text(CATALOG.format(2))
    with dpsql.connect(tmp_path / "c.toml", epsilon=3) as connection:
        found = connection.explain(";".join(STATEMENTS))
        connection.set("epsilon", "1")
        for statement, text in zip(found.statements, STATEMENTS, strict=True):
            own = connection.explain(text).statements[0].errors
            for together, alone in zip(statement.errors, own, strict=True):
                assert together.alone == pytest.approx(alone.rmse, rel=1e-5)
                assert together.rmse <= FAIR * alone.rmse * (1 + 1e-5)
                assert together.plain is None
                assert any(
                    f"alone with its share: {together.alone:.4g}" in x for x in found.lines()
                )
        assert errors_grid(found).columns[4] == ALONE
        connection.set("epsilon", "3")
        (line,) = (
            each
            for each in connection.explain(f"{STATEMENTS[0]}; {PART}").lines()
            if "n \u00b1" in each
        )
        assert "alone with its share" in line  # it was not where one column has a unit
        connection.set("metric", "mean")
        usual = connection.explain(";".join(STATEMENTS))
        columns = [each for statement in usual.statements for each in statement.errors]
        assert all(each.alone is None and each.plain is not None for each in columns)
        assert errors_grid(usual).columns == ERRORS


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_papers_algorithms_are_told_beside_auto(tmp_path: Path, name: str) -> None:
    """By SET and in the statement, free, and as the answers turn out."""
    (tmp_path / "t.csv").write_text("who,g\n")
    (tmp_path / "c.toml").write_text(CATALOG.format(2))
    sql = "g, COUNT(*) AS n FROM t GROUP BY CUBE (g)"
    with dpsql.connect(tmp_path / "c.toml", epsilon=1, delta=1e-9) as connection:
        auto = connection.explain(f"SELECT {sql}")
        connection.execute(f"SET mechanism = {name}")
        if name == "coa":
            connection.set("noise", "gaussian")
            auto = connection.explain(f"SELECT {sql}".replace("SELECT", OPTIONS))
        found = connection.explain(f"SELECT {sql}")
        rows = dict(found.details)
        assert found.method in (name, "separate")
        assert rows["auto"] == f"mechanism = 'auto' has {auto.method}, {auto.noise} noise"
        beside = next(text for _, text in found.details if " expected, " in text)
        ratio = found.rmse / auto.rmse
        times = "as here" if ratio < 1.0005 else f"{ratio:.3g} times as much here"
        assert beside == f"{auto.rmse:.4g} expected, {times}"
        (column,) = found.statements[0].errors
        result: Any = connection.execute(f"SELECT {sql}").result
        errors = [each for each in result.stddev[1] if each is not None]
        assert math.sqrt(sum(e * e for e in errors) / len(errors)) == pytest.approx(column.rmse)


@pytest.mark.parametrize("name", ["opt_plus", "coa"])
def test_algorithms_that_do_not_fit_name_those_that_do(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.csv").write_text("who,g\n")
    (tmp_path / "c.toml").write_text(CATALOG.format(2))
    sql = "SELECT COUNT(*) AS n FROM t WHERE g = 'a'"
    with dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        connection.execute(f"SET mechanism = {name}")
        with pytest.raises(dpsql.ProgrammingError, match="does not fit this workload") as caught:
            connection.execute(sql)
        assert caught.value.code == "E_SETTING"
        assert connection.budget.entries == 0
        for other in re.findall("'([a-z_0]+)'", caught.value.hint or ""):
            connection.execute(f"SET mechanism = {other}")
            assert connection.explain(sql).rmse > 0


OPTIONS = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism = 'auto')"
