"""Statements as strangers write them: what is answered is right, what is refused is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites.suite import check_suite

STYLES = (
    *("SmartNoise", "Qrlew", "Chorus", "ZetaSQL", "Snowflake", "Tumult", "PipelineDP"),
    "analyst",
)
"""What the names of statements begin with: one test each, so that they run beside each other."""


@pytest.mark.parametrize("style", STYLES)
def test_answers_are_right_and_refusals_are_known(tmp_path: Path, style: str) -> None:
    found = check_suite(tmp_path, "strangers", style)
    assert found["equal"] >= found.total() // 2
