"""Vectors stand for the lists of their values, whatever these are and however they are kept."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.answer.numbers import Numbers
from dpsql.answer.result import Result
from dpsql.server.copy_rows import copied
from dpsql.server.result_stream import ResultTable
from dpsql.ui.formats import encode
from dpsql.ui.grid import Grid
from dpsql.ui.style import Style
from dpsql.vectors import BATCH, Vector, batches_of, rows_of

KINDS: tuple[Callable[[random.Random], Any], ...] = (
    lambda draw: draw.uniform(-9, 9),
    lambda draw: draw.randrange(-9, 9),
    lambda draw: draw.choice((2**70, 1, -(2**63))),
    lambda draw: draw.choice(("", "a", 'b"')),
    lambda draw: draw.random() < 0.5,
    lambda draw: dt.date(2020, 1, draw.randrange(1, 20)),
    lambda draw: draw.choice((Decimal("1.5"), 2, 0.25)),
    lambda draw: draw.choice(([1], [2, None])),
)


def drawn(draw: random.Random, size: int) -> tuple[Vector, list[Any]]:
    """A vector and the list that it stands for."""
    kind, nulls = draw.choice(KINDS), draw.random() < 0.5
    listed = [None if nulls and draw.random() < 0.3 else kind(draw) for _ in range(size)]
    if draw.random() < 0.5:
        return Vector.of(listed), listed
    places = np.array([draw.randrange(size) for _ in range(draw.randrange(40))], dtype=np.int32)
    return Vector.of(listed, places), [listed[place] for place in places.tolist()]


def same(one: list[Any], two: list[Any]) -> bool:
    return one == two and list(map(type, one)) == list(map(type, two))


@pytest.mark.parametrize("seed", range(60))
def test_a_vector_is_the_list_of_its_values(seed: int) -> None:
    draw = random.Random(seed)
    vector, listed = drawn(draw, draw.randrange(1, 12))
    assert same([*vector], listed)
    assert same([vector[i] for i in range(len(vector))], listed)
    assert vector.nulls().tolist() == [each is None for each in listed]
    assert same([*vector[1:5]], listed[1:5])
    rows = [draw.randrange(len(listed)) for _ in listed]
    assert same([*vector.take(rows)], [listed[row] for row in rows])
    assert same([*vector.objects()], listed)
    assert [*vector.mapped(repr)] == [*map(repr, listed)]
    assert [each for part in vector.batches(repr) for each in part] == [*map(repr, listed)]
    other, others = drawn(draw, draw.randrange(1, 12))
    assert same([*Vector.joined([vector, other])], [*listed, *others])
    if all(isinstance(each, int | float | Decimal | None) for each in listed):
        numbers = [math.nan if each is None else float(each) for each in listed]
        np.testing.assert_array_equal(vector.numbers(), np.array(numbers, dtype=np.float64))
    pairs = list(zip(listed, reversed(listed), strict=True))
    assert [*rows_of([vector, vector.take(range(len(listed))[::-1])])] == pairs


def test_batches_are_of_a_bounded_number_of_rows() -> None:
    vector = Vector.of(list(range(2 * BATCH + 5)))
    assert [len(list(part)) for part in batches_of([vector, vector])] == [BATCH, BATCH, 5]


@pytest.mark.parametrize("name", ["csv", "tsv", "json", "jsonl", "parquet", "arrow"])
def test_no_rows_are_made_for_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result.of_rows(("k", "n"), ("text", "number"), [("a", 1.5)], (None, (1.0,)), "")
    monkeypatch.setattr(Numbers, "rows", property(lambda _: pytest.fail("rows were made")))
    assert encode(Grid.of(result), name, Style(stddev=True))
    result.df(stddev=True)
    result.arrow()
    assert list(copied(ResultTable(result, errors=True), "csv", True))


def test_what_is_fetched_is_made_a_batch_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    (tmp_path / "c.toml").write_text(
        "[budget]\nepsilon = 10\n[table.t]\nsource = 't.csv'\nprivacy_unit = 'row'\n"
        f"[table.t.column]\na = {{ type = 'integer', domain = [0, {3 * BATCH - 1}] }}\n"
    )
    with dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        cursor = connection.execute("SELECT a, COUNT(*) AS n FROM t GROUP BY a")
        first = cursor.fetchone()
        assert first is not None
        assert first[0] == 0
        assert len(cursor._held[1]) == BATCH
        assert [row[0] for row in cursor.fetchmany(BATCH)] == list(range(1, BATCH + 1))
        cursor.scroll(5, "absolute")
        assert [row[0] for row in cursor] == list(range(5, 3 * BATCH))
        assert "rows" not in vars(cursor.result)


def test_five_columns_of_sixteen_values_are_answered(tmp_path: Path) -> None:
    names = [f"c{j}" for j in range(5)]
    (tmp_path / "t.csv").write_text(",".join(names) + "\n1,2,3,4,5\n")
    (tmp_path / "c.toml").write_text(
        "[budget]\nepsilon = 10\n[table.t]\nsource = 't.csv'\nprivacy_unit = 'row'\n"
        "row_count_hint = 100\n[table.t.column]\n"
        + "".join(f"{name} = {{ type = 'integer', domain = [0, 15] }}\n" for name in names)
    )
    sql = f"SELECT {', '.join(names)}, COUNT(*) AS n FROM t{{}} GROUP BY ALL"
    with dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        assert connection.execute(sql.format("")).result.count == 16**5
        connection.execute("SET memory_limit = '100MB'")
        with pytest.raises(dpsql.ProgrammingError, match="rows fit"):
            connection.execute(sql.format(" WHERE c0 < 15"))
