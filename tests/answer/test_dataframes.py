"""Results as data frames, beside DuckDB's own for the same rows."""

from __future__ import annotations

import datetime as dt
import importlib
import json
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpsql
from dpsql.answer.result import CostInfo, ReceiptInfo, Result
from dpsql.dbapi.connection import Connection

DAY, TIME = dt.date(9999, 12, 31), dt.datetime(2024, 2, 1, 10, 30)
KINDS = ("text", "integer", "number", "date", "timestamp", "boolean", "list")
SQL = ("VARCHAR", "BIGINT", "DOUBLE", "DATE", "TIMESTAMP", "BOOLEAN", "BIGINT[]")
ROWS = (("a", 1, 0.5, DAY, TIME, True, [1, 2]), ("b", -2, -1.0, DAY, TIME, False, [3]))
EMPTY: tuple[tuple[Any, ...], ...] = ()
NULLS = (*ROWS, (None,) * 7)


def result_of(rows: tuple[tuple[Any, ...], ...]) -> Result:
    return Result.of_rows(KINDS, KINDS, rows, (None,) * len(KINDS), "SELECT")


def duckdb_frame(rows: tuple[tuple[Any, ...], ...]) -> Any:
    with duckdb.connect() as database:
        columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(KINDS, SQL, strict=True))
        database.execute(f"CREATE TABLE t ({columns})")
        for row in rows:
            database.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", list(row))
        return database.execute("FROM t").df()


@pytest.mark.parametrize("rows", [ROWS, NULLS])
def test_frames_of_pandas_are_those_of_duckdb(rows: tuple[tuple[Any, ...], ...]) -> None:
    ours, theirs = result_of(rows).df(), duckdb_frame(rows)
    assert list(ours.dtypes.astype(str)) == list(theirs.dtypes.astype(str))
    pd.testing.assert_frame_equal(ours.drop(columns="list"), theirs.drop(columns="list"))


@pytest.mark.parametrize("rows", [ROWS, NULLS, EMPTY])
def test_every_kind_of_frame_has_the_rows(rows: tuple[tuple[Any, ...], ...]) -> None:
    result = result_of(rows)
    assert result.pl().rows() == list(rows)
    assert [tuple(row.values()) for row in result.arrow().to_pylist()] == list(rows)
    assert len(result.df()) == len(rows)
    arrays = result.numpy()
    assert [len(arrays[name]) for name in KINDS] == [len(rows)] * len(KINDS)
    kinds = ("U", "i", "f", "M", "M", "b", "O")
    assert [arrays[n].dtype.kind for n in KINDS[1:]] == list(kinds[1:])
    assert [np.ma.is_masked(arrays[n]) for n in KINDS] == [rows is NULLS] * len(KINDS)


def test_an_empty_frame_keeps_its_types() -> None:
    ours = result_of(()).df()
    filled = result_of(ROWS).df()
    assert list(ours.dtypes) == list(filled.dtypes)
    assert result_of(()).pl().schema["date"] == pl.Date


def test_errors_stand_beside_numbers_and_names_are_told_apart() -> None:
    stddev = (None, (1.5, None), (2.5, 2.5))
    rows = (("a", 1, 2), ("b", None, 4))
    result = Result.of_rows(("n", "N", "n"), ("text", "number", "number"), rows, stddev, "SELECT")
    assert list(result.df().columns) == ["n", "N_1", "n_2"]
    for frame in (result.df(stddev=True), result.pl(stddev=True)):
        assert list(frame.columns) == ["n", "N_1", "N_1_stddev", "n_2", "n_2_stddev"]
    assert result.arrow(stddev=True).to_pydict()["N_1_stddev"] == [1.5, None]
    assert result.numpy(stddev=True)["n_2_stddev"].tolist() == [2.5, 2.5]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_integers_beyond_64_bits_are_doubles(value: int) -> None:
    result = Result.of_rows(("n",), ("integer",), ((value,), (None,)), (None,), "SELECT")
    assert result.df().n.dtype == result.pl().to_pandas().n.dtype == np.float64
    assert result.arrow().to_pydict()["n"] == [float(value), None]
    assert float(result.numpy()["n"][0]) == float(value)


def test_decimals_are_doubles() -> None:
    result = Result.of_rows(("n",), ("number",), ((Decimal("0.25"),), (None,)), (None,), "SELECT")
    assert result.df().n.tolist()[0] == result.pl()["n"][0] == 0.25
    assert result.arrow().to_pydict()["n"] == [0.25, None]


def test_notes_and_cost_travel_with_the_frame() -> None:
    cost = CostInfo(Fraction(1, 2), Fraction(0), "laplace", False)
    proof = ReceiptInfo("ledger", 7, "head")
    result = Result.of_rows(
        ("n",), ("number",), ((1,),), (None,), "SELECT", notes=("so",), cost=cost, receipt=proof
    )
    facts = result.df().attrs
    assert facts["cost"] == "epsilon 0.5 (laplace)"
    assert (facts["epsilon"], facts["free"], facts["ledger_entry"]) == ("0.5", False, 7)
    assert facts["notes"] == ["so"]
    assert json.loads(result.arrow().schema.metadata[b"dpsql"]) == facts


def test_a_cursor_has_the_names_of_duckdb(adult: Connection) -> None:
    cursor = adult.execute("SELECT race, COUNT(*) AS n FROM adult GROUP BY race")
    assert len(cursor.fetchall()) == 5
    frames = [cursor.df(), cursor.fetchdf(), cursor.fetch_df(), cursor.result.to_df()]
    assert all(frame.equals(frames[0]) for frame in frames)
    assert frames[0].n.dtype == np.int64
    assert frames[0].attrs["notes"] == list(cursor.result.notes)
    assert cursor.pl().schema["n"] == pl.Int64
    assert str(cursor.arrow().schema.field("n").type) == "int64"
    assert cursor.fetch_arrow_table().equals(cursor.to_arrow_table())
    assert cursor.fetchnumpy(stddev=True)["n_stddev"].dtype == np.float64
    with pytest.raises(dpsql.InterfaceError, match="E_NO_RESULT"):
        adult.cursor().df()


@pytest.mark.parametrize("package", ["polars", "pyarrow", "matplotlib.pyplot"])
def test_what_is_not_installed_is_named(package: str) -> None:
    imported = importlib.import_module

    def missing(name: str) -> Any:
        if name == package:
            raise ModuleNotFoundError(name)
        return imported(name)

    rows = (("a", 1.5),)
    result = Result.of_rows(("k", "n"), ("text", "number"), rows, (None, (1.0,)), "SELECT")
    call = {"polars": result.pl, "pyarrow": result.arrow}.get(package, result.plot)
    with (
        mock.patch("importlib.import_module", missing),
        pytest.raises(dpsql.NotSupportedError, match=r"E_PACKAGE(.|\n)*pip install 'dpsql\["),
    ):
        call()
