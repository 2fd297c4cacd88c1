"""Commands of the prompt."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

from dpsql.errors import ProgrammingError, UsageError, printable
from dpsql.ui import output, public_facts
from dpsql.ui.command import command, find_command, on_or_off, paths, read_switch, split_words
from dpsql.ui.grid import Grid
from dpsql.ui.narration import speaks_unicode, tell
from dpsql.ui.session import Quit, Session
from dpsql.ui.streams import read_text

OTHERS = (public_facts, output)
"""Modules with more commands, which register themselves when they are imported."""


def run_command(session: Session, line: str) -> None:
    """Run one command line."""
    word, _, argument = line.strip().rstrip(";").partition(" ")
    find_command(word).action(session, argument.strip())


def _last_columns(session: Session, typed: str) -> Iterable[str]:
    return session.last.columns if session.last else ()


@command(".edit", "[FILE]", ("\\e",), paths)
def edit(session: Session, argument: str) -> None:
    """Edit the last statement, or a file, in VISUAL or EDITOR; Enter then runs it."""
    words = split_words(argument)
    if len(words) > 1:
        raise UsageError("E_COMMAND", ".edit takes one file")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("E_COMMAND", ".edit needs a terminal")
    text = read_text(os.path.expanduser(words[0])) if words else session.typed
    from dpsql.ui.editor import edit_text  # with it comes subprocess

    session.draft = edit_text(text)


@command(".timer", "[on|off]", ("\\timing",), on_or_off)
def set_timer(session: Session, argument: str) -> None:
    """Show how long every request takes."""
    session.timer = read_switch(argument, session.timer)
    tell(f"timer {'on' if session.timer else 'off'}")


@command(".bail", "[on|off]", (), on_or_off)
def set_bail(session: Session, argument: str) -> None:
    """Stop at the first error."""
    session.bail = read_switch(argument, session.bail)
    tell(f"bail {'on' if session.bail else 'off'}")


@command(".explain", "SQL")
def explain(session: Session, argument: str) -> None:
    """Show the plan, forecast error and cost of SQL; free."""
    if not argument:
        raise UsageError("E_COMMAND", ".explain needs a statement")
    for line in session.connection.explain(argument).lines():
        tell(line)


@command(".confirm", "[on|off]", (), on_or_off)
def set_confirm(session: Session, argument: str) -> None:
    """Show the forecast and ask before anything is charged."""
    session.confirm = read_switch(argument, session.confirm)
    tell(f"confirm {'on' if session.confirm else 'off'}")


@command(".plot", "[COLUMN]", (), _last_columns)
def plot(session: Session, argument: str) -> None:
    """Draw the last result as bars with error whiskers."""
    from dpsql.ui.chart import bars_of, draw_bars  # few results are drawn

    if session.last is None:
        raise ProgrammingError("E_PLOT", "there is no result yet to plot")
    grid = Grid.of(session.last)
    name, bars = bars_of(grid, argument.strip('"') or None, session.last.intervals)
    width = shutil.get_terminal_size().columns
    print(draw_bars(name, bars, width, speaks_unicode(sys.stdout)), end="", flush=True)


@command(".workload", "[begin|run|cancel]", (), lambda session, typed: ("begin", "run", "cancel"))
def workload(session: Session, argument: str) -> None:
    """Collect statements and answer them together: begin, run, cancel, or show how many."""
    if argument.lower() in ("begin", "run", "cancel"):
        return session.run_statement(f"{argument.upper()} WORKLOAD")
    if argument:
        raise UsageError("E_COMMAND", f"{printable(argument)!r} is not begin, run or cancel")
    count = session.connection.workload
    if count is None:
        return tell("no workload is being collected; BEGIN WORKLOAD; starts one")
    return tell(f"{count} statements collected; RUN WORKLOAD; answers them together")


@command(".quit", "", ("\\q", ".exit"))
def leave(session: Session, argument: str) -> None:
    """Leave."""
    raise Quit
