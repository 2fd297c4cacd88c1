"""Texts that are typed or read, piece by piece: SQL, and commands of the prompt."""

from __future__ import annotations

import os
from collections.abc import Callable

from dpsql.engine.defects import unexpected
from dpsql.errors import Error, UsageError
from dpsql.ui.command import command, paths, split_words
from dpsql.ui.session import Quit, Session
from dpsql.ui.streams import is_command, read_text, split_input

MAX_DEPTH = 8
"""Files that read files that read files: beyond this they are taken to read themselves."""


def run_text(session: Session, text: str, source: str = "") -> None:
    """Run a whole text: commands on lines of their own, and between them SQL.

    The statements of each stretch of SQL are answered together, as one workload.

    Args:
        session: one that runs files which run files is stopped at a depth.
        text: commands and SQL.
        source: name of the file that the text is from, which the ledger keeps; empty where it was
            typed.

    Raises: dpsql.Error at the first failure when ``bail`` is set.
    """
    if session.depth == MAX_DEPTH:
        raise UsageError("E_INPUT", f"files read each other more than {MAX_DEPTH} deep")
    from dpsql.dbapi.run_options import ask_from  # the engine: a second

    session.depth += 1
    before = ask_from(session.connection.engine, source)
    try:
        for piece in split_input(text):
            run_piece(session, piece, session.run_script)
    finally:
        session.depth -= 1
        ask_from(session.connection.engine, before)


def run_piece(session: Session, piece: str, run: Callable[[str], None]) -> None:
    """Run one command or stretch of SQL; report its error unless ``bail`` is set.

    Args:
        session: it reports errors, or passes them on where ``bail`` is set.
        piece: one command line, or SQL up to the next.
        run: takes SQL: the session's own way, or that of a prompt.
    """
    try:
        if is_command(piece):
            from dpsql.ui.commands import run_command  # SQL alone needs none of them

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


@command(".read", "FILE", ("\\i",), paths)
def read_file(session: Session, argument: str) -> None:
    """Run an SQL file; its statements are answered together."""
    words = split_words(argument)
    if len(words) != 1:
        raise UsageError("E_COMMAND", ".read takes one file")
    run_text(session, read_text(os.path.expanduser(words[0])), os.path.basename(words[0]))
