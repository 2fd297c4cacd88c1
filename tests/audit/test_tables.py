"""The vault and the front door pass their audits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit import tables


def test_records(tmp_path: Path) -> None:
    tables.records(tmp_path)


def test_sums(tmp_path: Path) -> None:
    tables.sums(tmp_path)


def test_units(tmp_path: Path) -> None:
    tables.units(tmp_path)


def test_shapes(tmp_path: Path) -> None:
    tables.shapes(tmp_path)


def test_exact_integers() -> None:
    tables.exact_integers()


@pytest.mark.parametrize(("sql", "runs"), [(tables.COUNT, 150), (tables.GROUPS, 300)])
def test_epsilon_of_a_statement_from_below(sql: str, runs: int, quick: Path) -> None:
    tables.statement(quick, sql, runs=runs)


def test_epsilon_of_a_unit_from_below(quick: Path) -> None:
    tables.statement(quick, tables.GROUPS, by_unit=True, runs=250)
