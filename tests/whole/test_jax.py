"""What needs JAX runs in a process of its own: its threads do not survive a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
JAX = "@pytest.mark." + "jax"
PLACES = (
    "tests/answer/test_postprocess.py",
    "tests/learn/test_targets.py",
    "tests/pgm/test_pgm.py",
)
"""Modules with a test that is marked so: others are not even read."""


@pytest.mark.skipif(find_spec("mbi") is None, reason="mbi is not installed")
def test_jax_and_mbi_agree_with_numpy() -> None:
    command = [sys.executable, "-m", "pytest", "-m", "jax", "-p", "no:cacheprovider", *PLACES]
    # What XLA makes of a function is run a few times; to improve it takes longer than to run it.
    place = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    found = subprocess.run(
        command, cwd=ROOT, env=place, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout[-4000:]
    assert "skipped" not in found.stdout.splitlines()[-1]


def test_all_that_is_marked_is_run() -> None:
    marked = {str(p.relative_to(ROOT)) for p in ROOT.glob("tests/*/*.py") if JAX in p.read_text()}
    assert marked == set(PLACES)
