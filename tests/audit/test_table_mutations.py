"""Faults of the vault, the shell and the charge, planted to be found from the front door."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql import engine
from dpsql.answer.assemble import assemble_results
from dpsql.answer.result import Result
from dpsql.catalog.catalog import Column
from dpsql.plan.cells import Nodes
from dpsql.plan.plan import Part
from dpsql.privacy import exact, measure
from dpsql.privacy.noise import discrete_laplace
from dpsql.privacy.vault import encode, load, nodes, units
from dpsql.privacy.vault import rows as rows_of
from dpsql.privacy.vault.base import Codes
from dpsql.privacy.vault.cells import Chunk
from dpsql.privacy.vault.duckdb import DuckDBVault
from dpsql.privacy.vault.encode import Floats, Values64
from dpsql.privacy.vault.units import Queue
from tests.audit import tables


def caught(check: Callable[[], None], *also: type[Exception]) -> None:
    """Assert that an audit finds something."""
    with pytest.raises((AssertionError, *also)):
        check()


def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all rows of every unit."""
    monkeypatch.setattr(Queue, "bound", lambda self, inside: inside)


def test_rows_of_a_unit_chosen_by_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_place(salt: str, keys: Codes, content: Sequence[Codes]) -> Codes:
        return np.arange(len(keys), dtype=np.uint64)

    monkeypatch.setattr(units, "_digests", by_place)
    caught(lambda: tables.units(tmp_path))


def test_rows_of_a_unit_clipped_after_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbounded(monkeypatch)
    tally = DuckDBVault._tally

    def clipped(self: DuckDBVault, resolutions: Sequence[Any], units: bool) -> NDArray[np.int64]:
        return np.minimum(tally(self, resolutions, units), tables.LIMIT * 100)

    monkeypatch.setattr(DuckDBVault, "_tally", clipped)
    caught(lambda: tables.units(tmp_path))


def test_units_not_bounded_seen_from_outside(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unbounded(monkeypatch)
    caught(lambda: tables.statement(quick, tables.GROUPS, by_unit=True))


def test_any_number_passes_the_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(numbers: Floats, edges: Sequence[float]) -> NDArray[np.int64]:
        return np.searchsorted(np.array(edges[1:-1]), numbers, side="right")

    monkeypatch.setattr(encode, "find_bins", trusting)
    caught(lambda: tables.records(tmp_path))


def test_nan_passes_the_clip_of_a_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = encode.clip

    def trusting(column: Column, values: Values64) -> Floats:
        return clip(column, replace(values, missing=np.zeros(len(values.missing), dtype=bool)))

    monkeypatch.setattr(load, "clip", trusting)
    caught(lambda: tables.sums(tmp_path))


def test_sums_clipped_after_adding_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(column: Column, values: Values64) -> Floats:
        return np.where(values.missing, np.nan, values.numbers)

    def axis(numbers: NDArray[np.float64], found: Nodes, column: Column) -> Any:
        low, high = nodes.clip_bounds(found, column)

        def steps(rows: Chunk) -> NDArray[np.int64]:
            with np.errstate(all="ignore"):
                place = np.rint((np.nan_to_num(numbers[rows]) - low) / (high - low) * found.grid)
            return np.asarray(np.clip(place, -(2**20), 2**20), dtype=np.int64)

        return nodes._axis(found, lambda rows: np.isnan(numbers[rows]).astype(np.uint32), steps)

    count = DuckDBVault._tally

    def clipped(self: DuckDBVault, *asked: Any) -> NDArray[np.int64]:
        return np.asarray(np.clip(count(self, *asked), 0, 60 * tables.GRID**2))

    monkeypatch.setattr(load, "clip", unclipped)
    monkeypatch.setattr(rows_of, "axis_of_measure", axis)
    monkeypatch.setattr(DuckDBVault, "_tally", clipped)
    caught(lambda: tables.sums(tmp_path))


def test_infinity_is_moved_to_the_nearest_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_bins = encode.find_bins

    def clamping(numbers: Floats, edges: Sequence[float]) -> NDArray[np.int64]:
        return find_bins(np.clip(numbers, edges[0], edges[-1]), edges)

    monkeypatch.setattr(encode, "find_bins", clamping)
    caught(lambda: tables.records(tmp_path))


def test_rows_of_a_result_that_depend_on_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble = assemble_results

    def dropping(*arguments: Any) -> tuple[Result, ...]:
        return tuple(
            replace(result, rows=tuple(row for row in result.rows if row[-1] > 0.5))
            for result in assemble(*arguments)
        )

    monkeypatch.setattr(engine, "assemble_results", dropping)
    caught(lambda: tables.shapes(tmp_path))


def test_large_integers_through_floating_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "EXACT_FLOAT", 2**100)
    caught(tables.exact_integers)


@pytest.mark.parametrize("sql", [tables.COUNT, tables.GROUPS])
def test_half_the_noise_in_a_statement(
    sql: str, quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(bits: Any, scale: Fraction, size: int) -> NDArray[Any]:
        return discrete_laplace(bits, scale / 2, size)

    monkeypatch.setattr(measure, "discrete_laplace", half)
    caught(lambda: tables.statement(quick, sql, runs=600))


def test_the_number_of_rows_of_a_unit_forgotten_in_the_noise(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def narrow(self: Part) -> tuple[Fraction, ...]:
        return self.strategy.scales(self.amount, 1)

    monkeypatch.setattr(Part, "scales", property(narrow))
    monkeypatch.setattr(measure, "check_cost", lambda *_: None)
    caught(lambda: tables.statement(quick, tables.GROUPS, by_unit=True, runs=600))
