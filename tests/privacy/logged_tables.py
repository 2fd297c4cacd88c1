"""Tables with logs, of any form: declared, and compared with the same rows in one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import IntegerRange, Values
from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.errors import Error
from dpsql.privacy.doors.check_figures import Figures
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import cells_of
from tests.privacy.delta_tables import Row

SALT = b"0123456789abcdef"
COLUMNS = {
    "ward": Column("ward", "text", Values(("A", "B")), other="other"),
    "age": Column("age", "integer", IntegerRange(0, 9)),
}
ROWS: list[Row] = [(f"p{i % 7}", "ABC"[i % 3], i % 10) for i in range(30)]
CATALOG = """
[budget]
epsilon = 100
[table.visits]
source = {source}
privacy_unit = {{ column = "who", max_rows = 50 }}
[table.visits.column]
ward = {{ type = "text", domain = ["A", "B"], other = true }}
"""
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


def catalog(folder: Path, said: str) -> Path:
    """Write a catalog over a source."""
    folder.mkdir(exist_ok=True)
    path = folder / "visits.toml"
    path.write_text(CATALOG.format(source=said), encoding="utf-8")
    return path


def refused(work: Callable[[], object]) -> Error:
    """Return the error of what is refused."""
    with pytest.raises(Error) as caught:
        work()
    assert caught.value.__cause__ is None
    return caught.value


def refuse(folder: Path, said: str, why: str) -> None:
    """Make sure that a statement is forecast, and refused by a source, and free."""
    with dpsql.connect(catalog(folder, said), epsilon=1) as connection:
        assert connection.explain(COUNT).statements
        error = refused(lambda: connection.execute(COUNT))
        assert (error.code, why in f"{error}") == ("E_DATA", True), f"{error}"
        assert "Alice" not in f"{error} {error.hint}"
        assert connection.budget.entries == 0


def check_facts(path: Path, kind: str) -> None:
    """Make sure that a check tells the facts of 20 rows of 7 units in one file."""
    (found,) = examine(chosen_tables(path, None))
    assert isinstance(found, Figures)
    assert (found.kind, found.rows, found.units, found.files) == (kind, 20, 7, 1)


def same_as_plain(
    folder: Path, form: str, number: int, rows: pa.Table, columns: dict[str, Column] = COLUMNS
) -> None:
    """Make sure that all vectors of a version are those of its rows in one file."""
    plain = folder.parent / f"plain-{number}.parquet"
    pq.write_table(rows, plain)
    options = (("format", form), ("version", str(number)))
    asked: list[Any] = [[]]
    asked += [[cells_of(name, np.arange(each.size))] for name, each in columns.items()]
    for unit in (Unit(), Unit("who", 2)):
        one, two = (
            TableVault(each, SALT)
            for each in (
                Table("t", str(folder), unit, columns, options=options),
                Table("t", str(plain), unit, columns),
            )
        )
        for each in asked:
            told = one.tally(each, bool(unit.column)), two.tally(each, bool(unit.column))
            np.testing.assert_array_equal(*told, err_msg=f"{number} {unit} {each}")
        one.close()
        two.close()
