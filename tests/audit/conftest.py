"""Folders in memory and short runs, for audits that ask thousands of times."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dpsql.learn import whole_marginals
from dpsql.learn.rap import run_rap


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of debits wait for no disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        yield Path(folder) / "audit"


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rounds and steps: models fit worse, accounting is the same."""
    monkeypatch.setattr(whole_marginals, "FIRST_ROUNDS", 2)
    monkeypatch.setattr(whole_marginals, "Graphical", partial(whole_marginals.Graphical, work=1e7))
    monkeypatch.setattr(
        whole_marginals, "Mixture", partial(whole_marginals.Mixture, steps=20, components=20)
    )
    assert run_rap.__kwdefaults__ is not None
    monkeypatch.setitem(run_rap.__kwdefaults__, "steps", 30)
