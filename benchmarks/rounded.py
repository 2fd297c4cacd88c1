"""Bias of counts that are rounded where they are told: ``python -m benchmarks.rounded``.

A sparse table, asked in two ways: as it is estimated, where noise goes either way, and with
``reconstruct = 'nonnegative'``, where many cells lie between zero and one half.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np

import dpsql

CELLS, ROWS, RELEASES = 1_000, 300, 40
CATALOG = f"""
[budget]
epsilon = 1e4
delta = 1e-6
[table.t]
source = "t.csv"
privacy_unit = "row"
[table.t.column]
g = {{ type = "integer", domain = [0, {CELLS - 1}] }}
x = {{ type = "integer", domain = [0, 3] }}
"""
SQL = "SELECT {} COUNT(*), COUNT(*)::DOUBLE, SUM(x) FROM t GROUP BY g"
OPTION = "WITH DIFFERENTIAL_PRIVACY OPTIONS(reconstruct = 'nonnegative')"


def main() -> None:
    """Print what all groups add up to, told and estimated, beside the rows that there are."""
    draw = random.Random(1)
    lines = [f"{draw.randrange(CELLS)},{draw.randrange(4)}" for _ in range(ROWS)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "t.csv").write_text("\n".join(["g,x", *lines, ""]))
        (Path(folder) / "c.toml").write_text(CATALOG)
        for epsilon in (0.5, 2.0, 8.0):
            for name, option in (("gls", ""), ("nonnegative", OPTION)):
                told, estimated = totals(Path(folder) / "c.toml", epsilon, SQL.format(option))
                spread = (told - estimated).std() / RELEASES**0.5
                print(
                    f"epsilon {epsilon:g}, {name}: {ROWS} rows in {CELLS:,} groups; estimates add "
                    f"up to {estimated.mean():.1f}, integers to {(told - estimated).mean():+.1f} "
                    f"of that (\u00b1 {spread:.1f})"
                )


def totals(catalog: Path, epsilon: float, sql: str) -> np.ndarray:
    """Sums of the groups of many releases, (2, releases): integers and estimates."""
    found = []
    with dpsql.connect(catalog, epsilon=epsilon) as connection:
        connection.execute("SET reuse = never")
        for _ in range(RELEASES):
            vectors = connection.execute(sql).result.vectors
            found.append([each.numbers().sum() for each in vectors[:2]])
    return np.array(found).T


if __name__ == "__main__":
    main()
