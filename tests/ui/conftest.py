"""The command line on a private copy of the demonstration data."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dpsql.ui.cli import run_command_line

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command line left behind."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def adult(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog of Adult with a total epsilon of 3, its data, and nothing charged yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = (ROOT / "demo_data" / "adult.toml").read_text(encoding="utf-8")
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(ROOT / "demo_data" / "adult.parquet", folder)
    (folder / "adult.toml").write_text(text.replace("epsilon = 100.0", "epsilon = 3.0"))
    monkeypatch.chdir(folder)
    return folder / "adult.toml"


@pytest.fixture
def dpsql(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process."""

    def run(*arguments: str | Path, stdin: str = "") -> Ran:
        source = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", source)
        capsys.readouterr()
        status = run_command_line([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run
