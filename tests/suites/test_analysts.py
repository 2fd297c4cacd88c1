"""Reports as analysts write them: a part of the statements; `benchmarks.statements` runs all."""

from __future__ import annotations

from pathlib import Path

from tests.suites.suite import check_suite
from tests.support.effort import one_in

REPORTS = one_in(10)
WEEKLY = one_in(12)
EVERY = one_in(16)


def test_answers_are_right_and_refusals_are_known(tmp_path: Path) -> None:
    found = check_suite(tmp_path, "analysts", every=EVERY)
    assert found["equal"] >= found.total() * 9 // 10


def test_more_reports_are_answered(tmp_path: Path) -> None:
    found = check_suite(tmp_path, "reports", every=REPORTS)
    assert found["equal"] >= found.total() * 9 // 10


def test_what_is_asked_in_a_week_is_answered(tmp_path: Path) -> None:
    found = check_suite(tmp_path, "weekly", every=WEEKLY)
    assert found["equal"] >= found.total() * 4 // 5
