"""What a mail order asks of its customers: answers are right, and refusals are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites.suite import check_suite

STYLES = ("steps", "sets", "beside", "exists", "gifts", "numbers", "several", "windows", "counts")


@pytest.mark.parametrize("style", STYLES)
def test_answers_are_right_and_refusals_are_known(tmp_path: Path, style: str) -> None:
    found = check_suite(tmp_path, "mailorder", style)
    assert found["equal"] >= found.total() // 2
