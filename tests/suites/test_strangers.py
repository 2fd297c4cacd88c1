"""Statements as strangers write them: what is answered is right, what is refused is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites.suite import check_suite

STYLES = {
    "SmartNoise": 17,
    "Qrlew": 16,
    "Chorus": 18,
    "ZetaSQL": 13,
    "Snowflake": 15,
    "Tumult": 15,
    "PipelineDP": 6,
    "analyst": 50,
}
"""How many statements of each style are answered, at least."""


@pytest.mark.parametrize("style", STYLES)
def test_answers_are_right_and_refusals_are_known(tmp_path: Path, style: str) -> None:
    assert check_suite(tmp_path, "strangers", style)["equal"] >= STYLES[style]
