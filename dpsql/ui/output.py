"""Commands that say where results go, and how much of them a screen shows."""

from __future__ import annotations

from pathlib import Path

from dpsql.errors import ProgrammingError, UsageError, printable
from dpsql.files import open_output
from dpsql.ui.command import command, on_or_off, paths, read_limit, read_switch, split_words
from dpsql.ui.connect import refuse_draft
from dpsql.ui.formats import FORMATS, find_format
from dpsql.ui.narration import tell
from dpsql.ui.pager import pager_command
from dpsql.ui.session import Session
from dpsql.ui.streams import OutputFile


@command(
    ".mode", "[FORMAT] [stddev|plain] [formulas|texts]", ("\\pset",), lambda session, typed: FORMATS
)
def set_mode(session: Session, argument: str) -> None:
    """Choose the output format; stddev adds error columns to csv, tsv, json and files.

    Of csv and tsv, formulas leaves text as it is that spreadsheets take for one or nobody sees.
    """
    for word in split_words(argument):
        if word.lower() in ("stddev", "plain"):
            session.stddev = word.lower() == "stddev"
        elif word.lower() in ("formulas", "texts"):
            session.formulas = word.lower() == "formulas"
        else:
            session.format = find_format(word).name
    more = ", with stddev columns" * session.stddev + ", formulas as they are" * session.formulas
    tell(f"mode {session.format}{more}")


@command(".expanded", "[on|off]", ("\\x",), on_or_off)
def set_expanded(session: Session, argument: str) -> None:
    """Show one line per column instead of a table."""
    session.format = "line" if read_switch(argument, session.format == "line") else "box"
    tell(f"mode {session.format}")


@command(".output", "[FILE [--force]]", ("\\o",), paths)
def set_output(session: Session, argument: str) -> None:
    """Write results to a file from now on, or to the screen again."""
    words = split_words(argument)
    force = "--force" in words
    names = [word for word in words if word not in ("--force", "-")]
    if len(names) > 1:
        raise UsageError("E_COMMAND", ".output takes one file")
    refuse_draft(session.scratch and bool(names), force)
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


@command(".once", "[FILE [--force]]", (), paths)
def set_once(session: Session, argument: str) -> None:
    """Write the next result alone to a file."""
    words = split_words(argument)
    names = [word for word in words if word not in ("--force", "-")]
    if len(names) > 1:
        raise UsageError("E_COMMAND", ".once takes one file")
    refuse_draft(session.scratch and bool(names), "--force" in words)
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
    session.max_rows = read_limit(argument, session.max_rows)
    tell(f"maxrows {session.max_rows or '0: all rows'}")


@command(".maxwidth", "[N]")
def set_max_width(session: Session, argument: str) -> None:
    """Draw tables at most N characters wide; 0 is the width of the terminal."""
    session.max_width = read_limit(argument, session.max_width)
    tell(f"maxwidth {session.max_width or '0: as wide as the terminal'}")


@command(".pager", "[on|off|PROGRAM]", (), on_or_off)
def set_pager(session: Session, argument: str) -> None:
    """Show long and wide results in a pager (DPSQL_PAGER, PAGER, or less)."""
    if argument.lower() in ("", "on", "off"):
        on = read_switch(argument, session.pager is not None)
        session.pager = pager_command() if on else None
    else:
        session.pager = argument.strip("'\"")
    tell(f"pager {printable(session.pager) if session.pager else 'off'}")
