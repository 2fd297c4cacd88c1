"""Forecasts of memory beside what the kernel says is held, and ends that are always typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.effort import effort

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells peaks"),
]

STATEMENTS = effort(2)
FEW, SOME, MANY = 30_000, 999_999, 1_000_000
"""Cells of all columns together, at most: in every run, and in a long one."""

BESIDES = 40.0
"""MiB that are held whatever is asked: libraries, the engine, a store; searches of few cells."""

TIMES = 3.0
LIMIT = 160
"""MiB of a small memory_limit."""


def ask(seed: int, most: int, *limit: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.support.held_memory"]
    command += [str(each) for each in (seed, STATEMENTS, most, *limit)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_what_is_held_was_forecast() -> None:
    """What planning holds in matrices has a limit of its own, and is let go of by then."""
    found = ask(17, FEW if STATEMENTS < 10 else MANY)
    assert [each for each in found if "failed" in each] == []
    answered = [each for each in found if "refused" not in each]
    assert len(answered) >= 0.5 * STATEMENTS
    for each in answered:
        assert each["peak"] <= max(each["forecast"], each["planned"]) + BESIDES, each
        assert each["forecast"] <= TIMES * each["peak"] + BESIDES, each


@pytest.mark.slow
def test_small_limits_end_in_answers_or_refusals_before_a_charge() -> None:
    """Under a limit of the kernel on addresses no statement is killed, or fails once it is paid."""
    found = ask(23, SOME if STATEMENTS < 10 else MANY, LIMIT)
    assert [each for each in found if "failed" in each] == []
    for each in found:
        if "refused" in each:
            assert each["charged"] == 0, each
            assert each["refused"] == "E_TOO_LARGE", each
        else:
            assert each["charged"] == 1, each
            assert each["forecast"] <= LIMIT, each
