"""The prompt, driven through a pseudo-terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

pexpect = pytest.importorskip("pexpect")

COUNT = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex;"


class Terminal:
    """A pseudo-terminal with dpsql in it; escape sequences are ignored when matching."""

    def __init__(
        self, catalog: Path, kind: str, *arguments: str, size: tuple[int, int] = (40, 120)
    ) -> None:
        environment = {**os.environ, "TERM": kind, "PROMPT_TOOLKIT_NO_CPR": "1"}
        environment.pop("PYTEST_CURRENT_TEST", None)
        self.process: Any = pexpect.spawn(
            sys.executable,
            ["-m", "dpsql", str(catalog), *arguments],
            env=environment,
            encoding="utf-8",
            dimensions=size,
            timeout=30,
        )
        self.process.delaybeforesend = 0.02

    def type(self, text: str) -> None:
        self.process.send(text)

    def enter(self, text: str) -> None:
        self.process.send(text + "\r")

    def see(self, *texts: str) -> str:
        """Wait for texts in order and return what was printed before the last of them."""
        for text in texts:
            gap = r"(?:\x1b\[[0-9;?]*[A-Za-z])*"
            self.process.expect(gap.join(re.escape(character) for character in text))
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", str(self.process.before))

    def leave_by(self, word: str) -> int:
        """Type a word to leave; return the status."""
        self.enter(word)
        self.process.expect(pexpect.EOF)
        self.process.close()
        return int(self.process.exitstatus)

    def leave(self) -> int:
        for _ in range(6):  # between two prompts the end of input is lost
            self.process.sendeof()
            if self.process.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=5) == 0:
                break
        self.process.close()
        return int(self.process.exitstatus)


@pytest.fixture(params=["xterm-256color", "dumb"])
def terminal(adult: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    opened = Terminal(adult, request.param, "-e", "0.5")
    opened.see("adult ε 3>")
    yield opened
    opened.process.close(force=True)


@pytest.fixture
def dumb(adult: Path) -> Iterator[Terminal]:
    opened = Terminal(adult, "dumb", "-e", "0.5")
    opened.see("adult ε 3>")
    yield opened
    opened.process.close(force=True)


@pytest.fixture
def fancy(adult: Path) -> Iterator[Terminal]:
    opened = Terminal(adult, "xterm-256color", "-e", "0.5")
    opened.see("adult ε 3>")
    yield opened
    opened.process.close(force=True)


def test_a_statement_runs_at_its_semicolon_and_the_prompt_shows_what_is_left(
    terminal: Terminal,
) -> None:
    terminal.enter("SELECT sex, COUNT(*) AS n")
    terminal.see("...>")
    terminal.enter("FROM adult GROUP BY sex;")
    terminal.see("│ Female │", "│ Male", "charged ε 0.5", "adult ε 2.5>")
    terminal.enter(COUNT)
    terminal.see("free: answered", "adult ε 2.5>")
    assert terminal.leave() == 0


def test_an_error_shows_a_caret_and_the_session_goes_on_until_bail(terminal: Terminal) -> None:
    terminal.enter("SELECT COUNT(*) FROM adlut;")
    terminal.see("E_UNKNOWN_TABLE", "^^^^^", "hint:", "adult ε 3>")
    terminal.enter("SHOW epsilon;")
    terminal.see("0.5", "adult ε 3>")
    terminal.enter(";")
    terminal.see("adult ε 3>")
    terminal.enter(".nonsense")
    terminal.see("unknown command .nonsense", "adult ε 3>")
    terminal.enter(".bail on")
    terminal.see("bail on", "ε 3>")
    terminal.enter("SELECT nope FROM adult;")
    terminal.see("error")
    terminal.process.expect(pexpect.EOF)
    terminal.process.close()
    assert terminal.process.exitstatus == 1


def test_interrupt_clears_the_line_and_end_of_input_quits(terminal: Terminal) -> None:
    terminal.type("SELECT rubbish")
    terminal.see("rubbish")
    terminal.process.sendintr()
    terminal.enter(".timer on")
    terminal.see("timer on", "ε 3>")
    assert terminal.leave() == 0


def test_what_would_suspend_leaves_nothing_in_the_line(fancy: Terminal) -> None:
    """Nothing waits outside of this terminal, so that dpsql goes on at once."""
    fancy.type("\x1a")
    fancy.enter(".timer on")
    fancy.see("timer on", "ε 3>")


def test_a_collected_workload_is_answered_together_and_quit_leaves(dumb: Terminal) -> None:
    dumb.enter("BEGIN WORKLOAD;")
    dumb.see("adult ε 3 [0]>")
    dumb.enter(COUNT)
    dumb.see("adult ε 3 [1]>")
    dumb.enter("SELECT COUNT(*) FROM adult;")
    dumb.see("adult ε 3 [2]>")
    dumb.enter(".workload")
    dumb.see("2 statements collected")
    dumb.enter("RUN WORKLOAD;")
    dumb.see("Female", "charged ε 0.5", "adult ε 2.5>")
    assert dumb.leave_by("quit;") == 0


def test_confirm_asks_and_charges_only_after_yes(fancy: Terminal) -> None:
    fancy.enter(".confirm on")
    fancy.see("confirm on", "ε 3>")
    fancy.enter(COUNT)
    fancy.see("±", "run this? [y/N]")
    fancy.enter("n")
    fancy.see("nothing charged", "adult ε 3>")
    fancy.enter(COUNT)
    fancy.see("run this? [y/N]")
    fancy.enter("y")
    fancy.see("charged", "adult ε 2.5>")


@pytest.mark.parametrize("word", ["help", "HELP;", "?"])
def test_help_is_given_to_whoever_asks_for_it(dumb: Terminal, word: str) -> None:
    dumb.enter(word)
    dumb.see(".read FILE", "EXPLAIN SELECT ... is free", "adult ε 3>")


def test_plot_draws_the_last_result(dumb: Terminal) -> None:
    dumb.enter(".plot")
    dumb.see("no result yet")
    dumb.enter(COUNT)
    dumb.see("charged", "2.5>")
    dumb.enter(".plot")
    dumb.see("whiskers: 95 % interval", "Female", "█", "Male", "±")


def test_completion_offers_declared_values_and_commands(fancy: Terminal) -> None:
    fancy.type("SELECT COUNT(*) FROM adult WHERE sex = 'F\t")
    fancy.see("'Female'")
    fancy.enter(";")
    fancy.see("charged", "2.5>")
    fancy.type(".tim\t")
    fancy.enter("")
    fancy.see("timer on")
    assert fancy.leave_by("\\q") == 0


def test_history_is_kept_between_sessions_and_can_be_searched(fancy: Terminal) -> None:
    fancy.enter("SHOW noise;")
    fancy.see("auto", "ε 3>")
    assert fancy.leave() == 0
    history = Path(os.environ["XDG_STATE_HOME"], "dpsql", "history")
    assert "SHOW noise;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
    again = Terminal(Path("adult.toml"), "xterm-256color")
    again.see("ε 3>")
    again.type("\x12noi")
    again.see("SHOW noise;")
    again.process.close(force=True)


def test_no_colour_is_honoured(adult: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    opened = Terminal(adult, "xterm-256color")
    opened.see("ε 3>")
    opened.enter("SHOW budget;")
    opened.process.expect("total epsilon")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", str(opened.process.before))
    opened.process.close(force=True)


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_a_long_wait_shows_progress(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from io import StringIO

    from dpsql.ui.narration import Progress

    class Screen(StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", kind)
    screen, pipe = Screen(), StringIO()
    with Progress(screen, "planning", delay=0.01), Progress(pipe, "planning", delay=0.01):
        import time

        time.sleep(0.3)
    if kind == "dumb":
        assert screen.getvalue() == ""
    else:
        first, *lines, erased, end = screen.getvalue().split("\r")
        assert 1 <= len(lines) <= 3
        assert all(re.search(r"planning \d s$", line) for line in lines)
        assert (first, erased, end) == ("", " " * len(lines[-1]), "")
    assert pipe.getvalue() == ""


def test_a_log_is_told_now_and_then_that_work_goes_on() -> None:
    import io
    import time

    from dpsql.ui.narration import Progress

    log, closed = io.StringIO(), io.StringIO()
    with Progress(log, "planning", every=0.05) as told:
        time.sleep(0.07)
        told.say("measuring\x1b")
        time.sleep(0.4)
    first, *rest = log.getvalue().splitlines()
    assert first == "planning (0 s so far)"
    assert rest[0].startswith("measuring\\x1b (0 s")
    assert 1 <= len(rest) <= 4
    with Progress(closed, "planning", every=0.05):
        closed.close()
        time.sleep(0.1)
