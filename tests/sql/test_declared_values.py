"""The values of a column by itself are those that DuckDB would give back, of the same types."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dpsql.catalog.read import read_catalog
from dpsql.errors import Span
from dpsql.sql.cells.evaluate import Evaluator, Operand
from dpsql.sql.query import Expression

HERE = Span.whole("v")
PIECES = (
    *("", "a", "A", " ", "'", '\\"', "%", "é", "e\u0301", "\U0001f600", "NULL", "1"),
    *("\\n", "\u200b"),
)


def domains(chance: random.Random) -> dict[str, str]:
    """Columns of every type, written as in a catalog."""
    texts = [f"{i}{''.join(chance.choices(PIECES, k=4))}." for i in range(9)]
    listed = ", ".join(f'"{text}"' for text in texts)
    low = chance.choice((-(2**52), -3, 0, 2**40))
    return {
        "text": f'type = "text", domain = [{listed}]',
        "other": f'type = "text", domain = [{listed}], other = "rest of them"',
        "whole": f'type = "integer", domain = [{low}, {low + chance.randint(0, 30)}]',
        "some": 'type = "integer", domain = [9007199254740991, -5, 0]',
        "bins": 'type = "integer", bins = [0, 10, 90]',
        "number": 'type = "number", bins = [-1.5, 0, 2, 10]',
        "decimal": 'type = "decimal", domain = [0, 1.5], step = 0.25',
        "yes": 'type = "boolean", domain = [false, true]',
        "day": 'type = "date", domain = ["2024-02-27", "2024-03-02"]',
    }


@pytest.mark.parametrize("seed", range(8))
def test_values_are_those_that_duckdb_gives_back(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    columns = "".join(
        f"{name} = {{ {facts}{chance.choice(('', ', null = true'))} }}\n"
        for name, facts in domains(chance).items()
    )
    path = tmp_path / "x.toml"
    path.write_text(
        '[budget]\nepsilon = 1\n[table.t]\nsource = "t.parquet"\nprivacy_unit = "row"\n'
        f"[table.t.column]\n{columns}",
        encoding="utf-8",
    )
    evaluator, table = Evaluator(), read_catalog(path).tables["t"]
    for name, column in table.columns.items():
        source = Operand("t", column)
        kind, values = evaluator.values(source, Expression(name, "v", HERE))
        asked, expected = evaluator.values(source, Expression(name, "(v)", HERE))
        assert (kind, values) == (asked, expected), name
        assert [type(each) for each in values] == [type(each) for each in expected], name
        assert len(values) == column.size
    evaluator.close()
