"""Statements of other systems' documentation and tests: what is answered is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites.suite import HERE, check_suite, read_suite

STYLES = ("Tumult", "PipelineDP", "Uber", "ZetaSQL")


@pytest.mark.parametrize("style", STYLES)
def test_answers_are_right_and_refusals_are_known(tmp_path: Path, style: str) -> None:
    """Of what a system with differential privacy can answer, nine in ten are answered."""
    suite = [each for each in read_suite(HERE / "systems.sql") if each.name.startswith(style)]
    possible = sum(each.beyond is None for each in suite)
    found = check_suite(tmp_path, "systems", style)
    assert len(suite) >= 50
    assert found["equal"] >= 0.9 * possible
