"""Faults of the vault, the shell and the charge, planted to be found from the front door."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from dpsql.answer.assemble import assemble_results
from dpsql.answer.result import Result
from dpsql.catalog.catalog import Column
from dpsql.catalog.delimited import Delimited
from dpsql.engine import matrix
from dpsql.plan.plan import Part
from dpsql.privacy.doors import exact_products, measure
from dpsql.privacy.noise.samplers import SAMPLERS, discrete_laplace
from dpsql.privacy.vault.codes import encode, node_weights
from dpsql.privacy.vault.codes import tally as tally_module
from dpsql.privacy.vault.codes.tally import Chunk
from dpsql.privacy.vault.data_engine import Codes, Flags, Floats, RequestedColumn, Values64
from dpsql.privacy.vault.files import duckdb, fetched_columns, lines, source
from dpsql.privacy.vault.files.fetched_columns import Fetch
from dpsql.privacy.vault.files.source import RowQuery, Source
from dpsql.privacy.vault.files.text_files import open_text
from dpsql.privacy.vault.unit import rows as rows_module
from dpsql.privacy.vault.unit.unit_numbers import Digest, Queue
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import Nodes
from tests.audit import tables
from tests.privacy import additivity
from tests.privacy.evenness import even_choice


def caught(check: Callable[[], None], *also: type[Exception]) -> None:
    """Assert that an audit finds something."""
    with pytest.raises((AssertionError, *also)):
        check()


def caught_from_outside(place: Path, runs: int = 300, by_unit: bool = False) -> None:
    """Assert that an audit of random answers finds something, at the tenth time at the latest.

    With the faults planted here one time misses it less than once in six.
    """
    for attempt in range(10):
        try:
            tables.statement(place / str(attempt), tables.GROUPS, by_unit, runs, attempts=1)
        except AssertionError:
            return
    pytest.fail("not found")


def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all rows of every unit."""
    monkeypatch.setattr(Queue, "bound", lambda self, inside: inside)


def test_rows_of_a_unit_chosen_by_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_place(self: Digest, keys: Codes, content: Sequence[Codes], _: object = ()) -> Codes:
        return np.arange(len(keys), dtype=np.uint64)

    monkeypatch.setattr(Digest, "of_rows", by_place)
    caught(lambda: tables.units(tmp_path))


def test_rows_of_a_unit_clipped_after_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbounded(monkeypatch)
    tally = TableVault._tally

    def clipped(self: TableVault, *asked: Any) -> NDArray[np.int64]:
        return np.minimum(tally(self, *asked), tables.LIMIT * 100)

    monkeypatch.setattr(TableVault, "_tally", clipped)
    caught(lambda: tables.units(tmp_path))


def test_units_not_bounded_seen_from_outside(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unbounded(monkeypatch)
    caught_from_outside(quick, runs=250, by_unit=True)


def test_any_number_passes_the_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(numbers: Floats, edges: Sequence[float]) -> NDArray[np.int64]:
        return np.searchsorted(np.array(edges[1:-1]), numbers, side="right")

    monkeypatch.setattr(encode, "find_bins", trusting)
    caught(lambda: tables.records(tmp_path))


def test_nan_passes_the_clip_of_a_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = encode.clip

    def trusting(column: Column, values: Values64) -> Floats:
        return clip(column, replace(values, missing=np.zeros(len(values.missing), dtype=bool)))

    monkeypatch.setattr(rows_module, "clip", trusting)
    caught(lambda: tables.sums(tmp_path))


def test_sums_clipped_after_adding_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(column: Column, values: Values64) -> Floats:
        return np.where(values.missing, np.nan, values.numbers)

    def axis(numbers: NDArray[np.float64], found: Nodes, column: Column) -> Any:
        low, high = tally_module.clip_bounds(found, column)

        def part(rows: Chunk) -> NDArray[np.float64]:
            with np.errstate(all="ignore"):
                place = (np.nan_to_num(numbers[rows]) - low) / (high - low)
            return np.asarray(np.clip(place, -(2.0**20), 2.0**20))

        return tally_module._axis(
            found, lambda rows: np.isnan(numbers[rows]).astype(np.uint32), part
        )

    def split(total: int, part: NDArray[np.float64], degree: int) -> list[NDArray[np.int64]]:
        first, second = (np.rint(total * each).astype(np.int64) for each in (part, part * part))
        if degree == 1:
            return [total - first, first]
        return [total - 2 * first + second, 2 * first - 2 * second, second]

    count = TableVault._tally

    def clipped(self: TableVault, *asked: Any) -> NDArray[np.int64]:
        return np.asarray(np.clip(count(self, *asked), 0, 60 * tables.GRID**2))

    monkeypatch.setattr(rows_module, "clip", unclipped)
    monkeypatch.setattr(rows_module, "axis_of_measure", axis)
    monkeypatch.setattr(node_weights, "split_weight", split)
    monkeypatch.setattr(TableVault, "_tally", clipped)
    caught(lambda: tables.sums(tmp_path))


def test_infinity_is_moved_to_the_nearest_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_bins = encode.find_bins

    def clamping(numbers: Floats, edges: Sequence[float]) -> NDArray[np.int64]:
        return find_bins(np.clip(numbers, edges[0], edges[-1]), edges)

    monkeypatch.setattr(encode, "find_bins", clamping)
    caught(lambda: tables.records(tmp_path))


def optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave DuckDB its optimiser, and statistics their word."""
    monkeypatch.setattr(source, "switch_off", lambda _: None)
    monkeypatch.setattr(source, "is_switched_off", lambda _: True)
    monkeypatch.setattr(source, "PARQUET", "hive_partitioning = false")


def fetched(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    """Change the SQL that fetches doubles."""
    fetch_column = fetched_columns.fetch_column

    def changed(asked: RequestedColumn, raw: str, stored: str) -> Fetch:
        found = fetch_column(asked, raw, stored)
        return replace(found, value=sql.format(raw)) if stored == "DOUBLE" else found

    monkeypatch.setattr(duckdb, "fetch_column", changed)


def test_ranges_decided_in_sql_with_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimised(monkeypatch)
    fetched(monkeypatch, "CASE WHEN {0} BETWEEN -1 AND 10 THEN 5.0 ELSE 1e300 END")
    caught(lambda: additivity.check_some(tmp_path, range(200), ["polars", "pyarrow"]))


def test_missing_values_decided_in_sql_with_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimised(monkeypatch)
    fetched(monkeypatch, "CASE WHEN isnan({0}) THEN 5.0 ELSE 1e300 END")
    caught(lambda: additivity.check_some(tmp_path, range(200), ["polars", "pyarrow"]))


def test_rows_dropped_by_a_condition_in_sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimised(monkeypatch)

    def select(
        self: Source, connection: Any, listed: Sequence[str], wanted: Sequence[int], *_: Any
    ) -> Iterator[Any]:
        doubles = [name for name, stored in self.columns if stored == "DOUBLE"]
        kept = " AND ".join(f"NOT isnan({name})" for name in doubles) or "TRUE"
        rows = self._parquet_rows(connection, wanted, self.paths, (), None)
        chosen = f"SELECT {', '.join(listed)} FROM {rows}"
        yield RowQuery(connection, f"{chosen} WHERE {kept}", (list(self.paths),))

    monkeypatch.setattr(Source, "select", select)
    rows = [seed for seed in range(200) if seed % 3]
    caught(lambda: additivity.check_some(tmp_path, rows, ["polars", "pyarrow"]))


def test_lines_that_reach_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str, columns: int, written: Delimited) -> Iterator[dict[str, Any]]:
        with open_text(path, written.encoding) as file:
            text = file.read().decode(errors="replace")
        cut, above = written.cut(path), written.skip + (not written.header)
        found = list(csv.reader(io.StringIO(text, newline=""), delimiter=cut))[above:]
        kept = ["\r".join(row) for row in found if len(row) == columns]
        yield {"line": np.array(kept, dtype=object)}

    monkeypatch.setattr(lines, "read_rows", read)
    caught(lambda: additivity.check_some(tmp_path, range(60), ["csv"]))


def test_rows_of_a_unit_chosen_among_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bound(self: Queue, inside: Flags) -> Flags:
        kept = inside.copy()
        kept[self.rows[1::2]] = False
        return kept

    monkeypatch.setattr(Queue, "bound", bound)
    caught(lambda: additivity.check_some(tmp_path, range(0, 180, 3)))


def test_the_hash_of_duckdb_chooses_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = source.connect()

    def hashed(self: Digest, keys: Codes, content: Sequence[Codes], _: object = ()) -> Codes:
        columns = {"key": keys} | {f"c{i}": each for i, each in enumerate(content)}
        connection.register("content", pd.DataFrame(columns))
        sql = f"SELECT hash($1, {', '.join(columns)}) AS digest FROM content"
        found = connection.execute(sql, [self.salt]).fetchnumpy()["digest"]
        return np.asarray(found, dtype=np.uint64)

    monkeypatch.setattr(Digest, "of_rows", hashed)
    with connection:
        caught(even_choice)


def test_rows_of_a_result_that_depend_on_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble = assemble_results

    def kept(result: Result) -> list[int]:
        return [place for place, row in enumerate(result.rows) if row[-1] > 0.5]

    def dropping(*arguments: Any) -> tuple[Result, ...]:
        return tuple(
            replace(result, vectors=tuple(each.take(kept(result)) for each in result.vectors))
            for result in assemble(*arguments)
        )

    monkeypatch.setattr(matrix, "assemble_results", dropping)
    caught(lambda: tables.shapes(tmp_path))


def test_large_integers_through_floating_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_products, "EXACT_FLOAT", 2**100)
    caught(tables.exact_integers)


def test_half_the_noise_in_a_statement(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(bits: Any, scale: Fraction, size: int) -> NDArray[Any]:
        return discrete_laplace(bits, scale / 2, size)

    monkeypatch.setitem(SAMPLERS, "laplace", half)
    caught_from_outside(quick)


def test_the_number_of_rows_of_a_unit_forgotten_in_the_noise(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def narrow(self: Part) -> tuple[Fraction, ...]:
        return self.strategy.scales(self.amount, 1)

    monkeypatch.setattr(Part, "scales", property(narrow))
    monkeypatch.setattr(measure, "check_cost", lambda *_: None)
    caught_from_outside(quick, runs=130, by_unit=True)
