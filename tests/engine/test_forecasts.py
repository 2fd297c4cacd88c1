"""Forecasts: what plain noise on each number would give, privacy units among them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import dpsql

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
