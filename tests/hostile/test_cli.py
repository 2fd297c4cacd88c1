"""Hostile command lines: the right exit status, and nothing charged or half written."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.ui.cli import run_command_line
from tests.support.world import Case, cases, watching

pytestmark = pytest.mark.usefixtures("one_reader")

COUNT = "SELECT COUNT(*) FROM adult"
OPTIONS = [c for c in cases("cli") if c.input.startswith("--") and "out" not in c.input]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command line left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run a command line in this process, with an empty stdin."""

    def call(*arguments: Any) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        capsys.readouterr()
        status = run_command_line([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return call


def charged(world: Path) -> int:
    with dpsql.connect(world) as connection:
        return connection.budget.entries


def words(case: Case) -> list[str]:
    """The options of a case: ``--name value``, without the remark in brackets."""
    text = case.input.split(" (")[0].replace(" with ", " ")
    parts = text.split(" ")
    return [f"{name}={value}" for name, value in zip(parts[::2], parts[1::2], strict=True)]


@pytest.mark.parametrize("case", OPTIONS, ids=lambda case: case.id)
def test_malformed_amounts(run: Callable[..., Ran], world: Path, case: Case) -> None:
    """B097, B099, B100, B102, B103, B105, B109, B111, B112, B114, B115, B117, B118, B172."""
    epsilon = [] if case.input.startswith("--epsilon") else ["--epsilon=1"]
    with watching() as watch:
        done = run(world, *epsilon, *words(case), "-c", COUNT)
        assert not watch.opened
    assert done.status in (1, 2)
    assert f"[{case.expected.partition(':')[2]}]" in done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert charged(world) == 0


def test_output_is_checked_before_the_charge(
    run: Callable[..., Ran], world: Path, tmp_path: Path
) -> None:
    """B169, B170."""
    script = tmp_path / "batch.sql"
    script.write_text(COUNT)
    taken, file = tmp_path / "taken", tmp_path / "file"
    taken.mkdir()
    (taken / "01.csv").write_text("mine")
    file.write_text("mine")
    for target in (taken, file / "below", Path("/proc/none/here")):
        done = run("run", script, "--catalog", world, "-e", "1", "--out", target)
        assert done.status == 2, done
        assert "Traceback" not in done.err
    assert (taken / "01.csv").read_text() == file.read_text() == "mine"
    assert [path.name for path in taken.iterdir()] == ["01.csv"]
    assert charged(world) == 0
    assert run("run", script, "--catalog", world, "-e", "1", "--out", taken, "--force").status == 0


def test_echoed_text_is_escaped(run: Callable[..., Ran], world: Path) -> None:
    """B173."""
    for sql in (
        "SELECT \x1b]0;owned\x07 FROM adult",
        "SELECT COUNT(*)\n\nFROM adult WHERE \x1b[2J = 1",
        'SELECT COUNT(*) FROM "\u202eadult"',
        "SELECT COUNT(*) FROM adult WHERE sex = '\u2028\u202e'",
        "SHOW \x9b31m",
    ):
        done = run(world, "-e", "1", "-c", sql)
        assert done.status == 1
        assert not any(c in done.out + done.err for c in "\x1b\x07\x9b\u202e\u2028")
    assert charged(world) == 0


def test_budget_and_ledger_are_free(run: Callable[..., Ran], world: Path) -> None:
    """B175."""
    with watching() as watch:
        assert run(world, "-c", "SHOW budget").status == 0
        assert run("ledger", world).status == 0
        assert not watch.opened
    assert charged(world) == 0


def test_a_predicate_does_not_change_the_work(world: Path) -> None:
    """B176: matching and non-matching predicates take the same path over the data."""
    with dpsql.connect(world, epsilon=1) as connection:
        seen = []
        for age in (17, 89):
            with watching() as watch:
                connection.execute(f"{COUNT} WHERE age > {age}")
            seen.append((watch.counted, watch.loaded))
    assert [counted for counted, _ in seen] == [[("age",)], [("age",)]]
    assert seen[0][1] == seen[1][1]
