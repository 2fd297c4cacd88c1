"""Amounts of memory: read as DuckDB reads them, and never more than this process may have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.settings import machine
from dpsql.settings.machine import UNITS, memory, read_bytes, request_memory, show_bytes


def test_amounts_are_those_of_duckdb() -> None:
    with duckdb.connect() as engine:
        for text in ("8GB", "8 gb", "1.5GiB", "512MiB", "100KB", "3TB", "2000000B"):
            engine.execute(f"SET memory_limit = '{text}'")
            ((shown,),) = engine.execute("SELECT current_setting('memory_limit')").fetchall()
            count, unit = shown.split()
            size = UNITS["b" if unit == "bytes" else unit.lower()]
            assert abs(float(count) * size - (read_bytes(text) or 0)) <= 0.1 * size


@pytest.mark.parametrize("text", ["", "8", "-1GB", "GB", "1e9B", "0GB", "80%", "8GBs", "8.GB"])
def test_what_is_no_amount(text: str) -> None:
    assert read_bytes(text) is None


def test_what_is_shown_is_read_back() -> None:
    rng = np.random.default_rng(5)
    units = [*UNITS.values()]
    for _ in range(500):
        count = int(rng.integers(1, 5000)) * int(rng.choice(units[:7]))
        assert read_bytes(show_bytes(count)) == count
        exact = int(rng.integers(1, 10**9))
        assert read_bytes(show_bytes(exact)) == exact


def test_the_least_of_all_limits_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = memory()
    group = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "GROUPS", (str(group),))
    group.write_text("max\n")
    assert memory() == whole
    group.write_text("3000000000\n")
    assert memory() == 3 * 10**9
    assert request_memory() == 15 * 10**8
    group.write_text("300000000\n")
    assert request_memory() == 150 * 10**6


def test_a_limit_of_the_process_counts() -> None:
    told = "from dpsql.settings.machine import memory; print(memory())"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)); "
    found = subprocess.run(
        [sys.executable, "-c", limit + told], capture_output=True, text=True, check=True
    )
    assert int(found.stdout) <= 2**31
