"""The tutorial works as it is written, step by step, in an empty folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.shown import assert_shown

Run = Callable[..., Any]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
FILES = {"toml": "clinic.toml", "sql": "tour.sql"}
"""Where the reader is told to put blocks of a language."""


def blocks() -> list[tuple[str, str]]:
    """The fenced blocks as (language, text), in order."""
    text = PAGE.read_text("utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def follow(dpsql: Run, console: str) -> str:
    """Run every command of a block, look for the lines under it; return the last one's output."""
    printed = ""
    for part in console.split("$ ")[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        name, *arguments = shlex.split(command)
        assert name == "dpsql"
        ran = dpsql(*arguments, *(("--format", "box") if "-c" in arguments else ()))
        refused = shown[:1] == ["error"]
        assert ran.status == (1 if refused else 0), (command, ran.err)
        for line in shown:
            assert line in ran.out + ran.err, (command, line)
        printed = ran.out + ran.err
    return printed


@pytest.mark.slow
def test_every_step(dpsql: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    printed = ""
    for language, text in blocks():
        if language == "console":
            printed = follow(dpsql, text)
        elif language == "":
            assert_shown(text, printed)
        elif language == "python":
            exec(text, {})
        else:
            Path(FILES[language]).write_text(text)
    assert len(list(Path("tables").glob("*.csv"))) == 5
    assert "<svg" in Path("tour.html").read_text("utf-8")
    ledger = dpsql("ledger", "clinic.toml", "--format", "csv").out
    assert ledger.count("debit") == 2
