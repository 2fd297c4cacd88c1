"""TPC-H with the customer as privacy unit."""

from __future__ import annotations

from pathlib import Path

from tests.suites.suite import check_suite


def test_all_answers_are_right(tmp_path: Path) -> None:
    assert check_suite(tmp_path, "tpch")["equal"] == 18
