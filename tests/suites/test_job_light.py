"""JOB-light's counts of joined tables with the movie as privacy unit."""

from __future__ import annotations

from pathlib import Path

from tests.suites.suite import check_suite


def test_all_statements_are_right(tmp_path: Path) -> None:
    assert check_suite(tmp_path, "job_light")["equal"] == 70
