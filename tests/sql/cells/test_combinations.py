"""Expressions on all combinations of values: as if every row of them were written out."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.errors import ProgrammingError, Span
from dpsql.sealed import SealedConnection
from dpsql.sql.cells.cell_classes import grid_of
from dpsql.sql.cells.combinations import Combinations, Given
from dpsql.sql.query import Expression

SPAN = Span("x", 0, 1)


@pytest.mark.parametrize("seed", range(6))
def test_grids_have_all_combinations_in_order(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcde"[: rng.randint(2, 5)]
    cells = {name: [rng.randint(0, 3) for _ in range(rng.randint(1, 6))] for name in names}
    parts = {Expression(name, "v", SPAN): ("BIGINT", tuple(each)) for name, each in cells.items()}
    grid = grid_of(parts, names, SPAN)
    axes = grid.axes((f"x{k}", part) for k, part in enumerate(parts))
    written = "100 * x0" + "".join(f" + {10**k} * x{k}" for k in range(1, len(names)))
    combined = Combinations(SealedConnection())
    found = combined.values(written, axes, {}, SPAN)
    different = [list(dict.fromkeys(each)) for each in cells.values()]
    want = [
        100 * row[0] + sum(10**k * v for k, v in enumerate(row) if k)
        for row in itertools.product(*different)
    ]
    assert found == want
    assert grid.shape == tuple(map(len, different))
    truth = combined.truth(f"{written} > y", axes, {"y": ("BIGINT", [150])}, SPAN)
    assert truth.tolist() == [each > 150 for each in want]
    count, values = combined.different(written, axes, 10_000, SPAN)
    assert values == list(dict.fromkeys(want))
    assert count == len(values)


def test_different_values_are_the_first_of_each_and_no_list_of_many() -> None:
    combined = Combinations(SealedConnection())
    axes: list[Given] = [
        {"x0": ("DOUBLE", [-0.0, 0.0, 1.0])},
        {"x1": ("DOUBLE", [1.0, -1.0]), "x2": ("VARCHAR", ["p", None])},
    ]
    count, values = combined.different("x0 * x1", axes, 10, SPAN)
    assert (count, values) == (3, [0.0, 1.0, -1.0])
    assert math.copysign(1, values[0]) == -1
    assert combined.different("x2", axes, 10, SPAN) == (2, ["p", None])
    assert combined.different("x1", [{"x1": ("BIGINT", range(100))}], 10, SPAN) == (100, [])


def test_what_fails_on_some_combination_says_where_it_was_written() -> None:
    axes = [{"x0": ("VARCHAR", ["1", "2"])}, {"x1": ("VARCHAR", ["3", "p"])}]
    with pytest.raises(ProgrammingError) as refused:
        Combinations(SealedConnection()).values("(x0 || x1)::INT", axes, {}, SPAN)
    assert refused.value.code == "E_DOMAIN_EVAL"
    assert refused.value.span == SPAN


def test_a_list_meets_the_combinations_that_each_of_its_rows_meets() -> None:
    axes: list[Given] = [
        {"x0": ("VARCHAR", ["p", "q", None])},
        {"x1": ("VARCHAR", ["r", None, "p", "q"])},
    ]
    listed = ["pr", None, "qq", "none of these"]
    combined = Combinations(SealedConnection())
    for sql in ("x0 || x1 IS NOT DISTINCT FROM y", "x0 < y", "x0 = x1 AND y IS NULL"):
        rows, places = combined.met(sql, axes, {"y": ("VARCHAR", listed)}, SPAN)
        found = np.zeros((4, 12), dtype=np.bool_)
        found[rows, places] = True
        for row, value in enumerate(listed):
            truth = combined.truth(sql, axes, {"y": ("VARCHAR", [value])}, SPAN)
            assert found[row].tolist() == truth.tolist()
        assert rows.tolist() == sorted(rows)


def test_values_of_a_key_over_several_columns_are_compared_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, as many queries as values were each as long as there are combinations."""
    asked: list[str] = []
    executed = SealedConnection._executed

    def noted(self: SealedConnection, sql: str, *more: Any) -> Any:
        asked.append(sql)
        return executed(self, sql, *more)

    monkeypatch.setattr(SealedConnection, "_executed", noted)
    counts = []
    with duckdb.connect() as scribe:
        columns = ", ".join(f"'x' AS c{j}" for j in range(6))
        scribe.execute(f"COPY (SELECT {columns}) TO '{tmp_path}/t.parquet'")
    declared = "".join(f'c{j} = {{ type = "text", domain = ["x", "y"] }}\n' for j in range(6))
    (tmp_path / "c.toml").write_text(
        '[budget]\nepsilon = 10\n[table.t]\nsource = "t.parquet"\nprivacy_unit = "row"\n'
        f"[table.t.column]\n{declared}"
    )
    with dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        for columns in ("c0 || c1 || c2", "c0 || c1 || c2 || c3 || c4 || c5"):
            asked.clear()
            cursor = connection.execute(f"SELECT {columns} AS k, COUNT(*) FROM t GROUP BY k")
            counts.append((len(cursor.fetchall()), len(asked)))
    (few, queries), (many, as_many) = counts
    assert (few, many) == (8, 64)
    assert as_many <= queries + 6
