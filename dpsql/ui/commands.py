"""What is typed: SQL, and the commands, one registry from which help and completion are made."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from dpsql.engine.faults import unexpected
from dpsql.errors import Error, ProgrammingError, UsageError, printable
from dpsql.files import open_output
from dpsql.ui.budget import budget_lines, ledger_grid
from dpsql.ui.chart import bars_of, draw_bars
from dpsql.ui.editor import edit_text
from dpsql.ui.formats import FORMATS, find_format
from dpsql.ui.grid import Grid
from dpsql.ui.pager import pager_command
from dpsql.ui.session import Quit, Session
from dpsql.ui.streams import OutputFile, is_command, read_text, split_input
from dpsql.ui.tell import speaks_unicode, tell

MAX_DEPTH = 8
"""Files that read files that read files: beyond this they are taken to read themselves."""

Action = Callable[[Session, str], None]
Choices = Callable[[Session], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its names, the form of its argument, one line of help, and what it does."""

    name: str
    argument: str
    help: str
    aliases: tuple[str, ...]
    choices: Choices
    action: Action


COMMANDS: dict[str, Command] = {}


def command(
    name: str,
    argument: str = "",
    aliases: tuple[str, ...] = (),
    choices: Choices = lambda session: (),
) -> Callable[[Action], Action]:
    """Register a command; the docstring of its action is its help."""

    def register(action: Action) -> Action:
        text = (action.__doc__ or "").strip().rstrip(".")
        COMMANDS[name] = Command(name, argument, text, aliases, choices, action)
        return action

    return register


def find_command(word: str) -> Command:
    """Return a command by name, alias or unambiguous prefix.

    Raises: UsageError naming the nearest command.
    """
    for entry in COMMANDS.values():
        if word == entry.name or word in entry.aliases:
            return entry
    begun = [name for name in COMMANDS if name.startswith(word)]
    if len(begun) == 1 and len(word) > 1:
        return COMMANDS[begun[0]]
    near = begun or difflib.get_close_matches(word, COMMANDS)
    hint = f"did you mean {' or '.join(near)}?" if near else ".help lists the commands"
    raise UsageError("E_COMMAND", f"unknown command {printable(word)}", hint=hint)


def _command_called(word: str) -> Command:
    """A command by its name, with or without its dot. Raises: UsageError."""
    return find_command(word if is_command(word) else f".{word}")


def run_command(session: Session, line: str) -> None:
    """Run one command line."""
    word, _, argument = line.strip().rstrip(";").partition(" ")
    find_command(word).action(session, argument.strip())


def run_text(session: Session, text: str) -> None:
    """Run a whole text: commands on lines of their own, and between them SQL.

    The statements of each stretch of SQL are answered together, as one workload.

    Raises: dpsql.Error at the first failure when ``bail`` is set.
    """
    if session.depth == MAX_DEPTH:
        raise UsageError("E_INPUT", f"files read each other more than {MAX_DEPTH} deep")
    session.depth += 1
    try:
        for piece in split_input(text):
            run_piece(session, piece, session.run_script)
    finally:
        session.depth -= 1


def run_piece(session: Session, piece: str, run: Callable[[str], None]) -> None:
    """Run one command or stretch of SQL; report its error unless ``bail`` is set."""
    try:
        if is_command(piece):
            run_command(session, piece)
        elif piece.strip():
            run(piece)
        session.end_once()
    except (Quit, OSError):
        raise
    except Error as error:
        if session.bail:
            raise
        session.report(error)
    except Exception as error:
        if session.bail:
            raise unexpected(error) from None
        session.report(unexpected(error))


def _words(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError as error:
        raise UsageError("E_COMMAND", f"cannot read the argument: {error}") from None


def _switch(argument: str, current: bool) -> bool:
    """Read on/off; without an argument, change over."""
    if not argument:
        return not current
    if argument.lower() not in ("on", "off"):
        raise UsageError("E_COMMAND", f"{printable(argument)!r} is neither on nor off")
    return argument.lower() == "on"


def _limit(argument: str, current: int | None) -> int | None:
    """Read a limit; 0 is none, and without an argument it stays."""
    if not argument:
        return current
    if not re.fullmatch("[0-9]{1,9}", argument):
        raise UsageError("E_COMMAND", f"{printable(argument)!r} is not a number", hint="0 is none")
    return int(argument) or None


def _on_off(session: Session) -> Iterable[str]:
    return ("on", "off")


def _table_names(session: Session) -> Iterable[str]:
    return [table.name for table in session.connection.known.tables.values()]


@command(".help", "[COMMAND]", ("\\?", ".h"), lambda session: COMMANDS)
def show_help(session: Session, argument: str) -> None:
    """List the commands."""
    chosen = [_command_called(argument)] if argument else list(COMMANDS.values())
    heads = [f"{entry.name} {entry.argument}".strip() for entry in chosen]
    width = max(map(len, heads))
    for head, entry in zip(heads, chosen, strict=True):
        also = f"  ({', '.join(entry.aliases)})" if entry.aliases else ""
        tell(f"{head:<{width}}  {entry.help}{also}")
    if not argument:
        tell("Anything else is SQL, up to a semicolon. EXPLAIN SELECT ... is free.")


@command(".tables", "", ("\\dt",))
def show_tables(session: Session, argument: str) -> None:
    """List the tables of the catalog."""
    session.run_statement("SHOW tables")


@command(".schema", "[TABLE]", ("\\d",), _table_names)
def show_schema(session: Session, argument: str) -> None:
    """Show the declared columns of a table, their values or bounds."""
    names = list(_table_names(session))
    if not argument and len(names) > 1:
        return show_tables(session, "")
    name = (argument or names[0]).strip('"').replace('"', '""')
    return session.run_statement(f'DESCRIBE "{name}"')


@command(".budget")
def show_budget(session: Session, argument: str) -> None:
    """Show the total and remaining budget."""
    for line in budget_lines(session.connection, speaks_unicode(sys.stderr)):
        tell(line)


@command(".ledger")
def show_ledger(session: Session, argument: str) -> None:
    """List what was charged, oldest first."""
    session.write(ledger_grid(session.connection))


@command(".mode", "[FORMAT] [stddev|plain]", ("\\pset",), lambda session: FORMATS)
def set_mode(session: Session, argument: str) -> None:
    """Choose the output format; stddev adds error columns to csv, tsv, json and files."""
    for word in _words(argument):
        if word.lower() in ("stddev", "plain"):
            session.stddev = word.lower() == "stddev"
        else:
            session.format = find_format(word).name
    tell(f"mode {session.format}{', with stddev columns' if session.stddev else ''}")


@command(".expanded", "[on|off]", ("\\x",), _on_off)
def set_expanded(session: Session, argument: str) -> None:
    """Show one line per column instead of a table."""
    session.format = "line" if _switch(argument, session.format == "line") else "box"
    tell(f"mode {session.format}")


@command(".output", "[FILE [--force]]", ("\\o",))
def set_output(session: Session, argument: str) -> None:
    """Write results to a file from now on, or to the screen again."""
    words = _words(argument)
    force = "--force" in words
    names = [word for word in words if word != "--force"]
    if len(names) > 1:
        raise UsageError("E_COMMAND", ".output takes one file")
    session.close_sink()
    session.binary_results = 0
    if names:
        path = Path(names[0]).expanduser()
        try:
            session.sink = open_output(path, force)
        except (OSError, ValueError) as error:
            problem = (getattr(error, "strerror", None) or str(error)).lower()
            hint = "add --force to replace it" if isinstance(error, FileExistsError) else None
            raise UsageError(
                "E_OUTPUT", f"cannot write {printable(names[0])}: {problem}", hint=hint
            ) from None
        session.sink_name = names[0]
    tell(f"output goes to {printable(session.sink_name or 'the screen')}")


@command(".once", "[FILE [--force]]")
def set_once(session: Session, argument: str) -> None:
    """Write the next result alone to a file."""
    words = _words(argument)
    names = [word for word in words if word != "--force"]
    if len(names) > 1:
        raise UsageError("E_COMMAND", ".once takes one file")
    session.drop_once()
    if names:
        session.once = OutputFile(Path(names[0]).expanduser(), "--force" in words)
        tell(f"the next result goes to {printable(names[0])}")
    else:
        tell("the next result goes where others go")


@command(".last")
def show_last(session: Session, argument: str) -> None:
    """Show all of the last result, however long and wide."""
    if session.shown is None:
        raise ProgrammingError("E_NO_RESULT", "there is no result yet")
    session.write(session.shown, whole=True)


@command(".maxrows", "[N]")
def set_max_rows(session: Session, argument: str) -> None:
    """Show at most N rows of a result on a terminal; 0 shows all."""
    session.max_rows = _limit(argument, session.max_rows)
    tell(f"maxrows {session.max_rows or '0: all rows'}")


@command(".maxwidth", "[N]")
def set_max_width(session: Session, argument: str) -> None:
    """Draw tables at most N characters wide; 0 is the width of the terminal."""
    session.max_width = _limit(argument, session.max_width)
    tell(f"maxwidth {session.max_width or '0: as wide as the terminal'}")


@command(".pager", "[on|off|PROGRAM]", (), _on_off)
def set_pager(session: Session, argument: str) -> None:
    """Show long and wide results in a pager (DPSQL_PAGER, PAGER, or less)."""
    if argument.lower() in ("", "on", "off"):
        on = _switch(argument, session.pager is not None)
        session.pager = pager_command() if on else None
    else:
        session.pager = argument.strip("'\"")
    tell(f"pager {printable(session.pager) if session.pager else 'off'}")


@command(".edit", "[FILE]", ("\\e",))
def edit(session: Session, argument: str) -> None:
    """Edit the last statement, or a file, in VISUAL or EDITOR; Enter then runs it."""
    words = _words(argument)
    if len(words) > 1:
        raise UsageError("E_COMMAND", ".edit takes one file")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("E_COMMAND", ".edit needs a terminal")
    text = read_text(os.path.expanduser(words[0])) if words else session.typed
    session.draft = edit_text(text)


@command(".read", "FILE", ("\\i",))
def read_file(session: Session, argument: str) -> None:
    """Run an SQL file; its statements are answered together."""
    words = _words(argument)
    if len(words) != 1:
        raise UsageError("E_COMMAND", ".read takes one file")
    run_text(session, read_text(os.path.expanduser(words[0])))


@command(".timer", "[on|off]", ("\\timing",), _on_off)
def set_timer(session: Session, argument: str) -> None:
    """Show how long every request takes."""
    session.timer = _switch(argument, session.timer)
    tell(f"timer {'on' if session.timer else 'off'}")


@command(".bail", "[on|off]", (), _on_off)
def set_bail(session: Session, argument: str) -> None:
    """Stop at the first error."""
    session.bail = _switch(argument, session.bail)
    tell(f"bail {'on' if session.bail else 'off'}")


@command(".explain", "SQL")
def explain(session: Session, argument: str) -> None:
    """Show the plan, forecast error and cost of SQL; free."""
    if not argument:
        raise UsageError("E_COMMAND", ".explain needs a statement")
    for line in session.connection.explain(argument).lines():
        tell(line)


@command(".confirm", "[on|off]", (), _on_off)
def set_confirm(session: Session, argument: str) -> None:
    """Show the forecast and ask before anything is charged."""
    session.confirm = _switch(argument, session.confirm)
    tell(f"confirm {'on' if session.confirm else 'off'}")


@command(".plot", "[COLUMN]", (), lambda session: session.last.columns if session.last else ())
def plot(session: Session, argument: str) -> None:
    """Draw the last result as bars with error whiskers."""
    if session.last is None:
        raise ProgrammingError("E_PLOT", "there is no result yet to plot")
    grid = Grid.of(session.last)
    name, bars = bars_of(grid, argument.strip('"') or None, session.last.intervals)
    width = shutil.get_terminal_size().columns
    print(draw_bars(name, bars, width, speaks_unicode(sys.stdout)), end="", flush=True)


@command(".workload", "[begin|run]", (), lambda session: ("begin", "run"))
def workload(session: Session, argument: str) -> None:
    """Collect statements and answer them together: begin, run, or show how many."""
    if argument.lower() in ("begin", "run"):
        return session.run_statement(f"{argument.upper()} WORKLOAD")
    if argument:
        raise UsageError("E_COMMAND", f"{printable(argument)!r} is neither begin nor run")
    count = session.connection.workload
    if count is None:
        return tell("no workload is being collected; BEGIN WORKLOAD; starts one")
    return tell(f"{count} statements collected; RUN WORKLOAD; answers them together")


@command(".quit", "", ("\\q", ".exit"))
def leave(session: Session, argument: str) -> None:
    """Leave."""
    raise Quit
