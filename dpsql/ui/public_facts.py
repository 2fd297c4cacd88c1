"""Commands that show public facts: tables, columns, values, the budget, the ledger."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from dpsql.catalog.describe import describe_values, find_column
from dpsql.errors import ProgrammingError, UsageError, printable
from dpsql.ui.budget import status_lines
from dpsql.ui.command import COMMANDS, command, command_called, split_words
from dpsql.ui.entries import brief_grid, full_grid
from dpsql.ui.grid import Grid, plain
from dpsql.ui.narration import speaks_unicode, tell
from dpsql.ui.session import Session


def _table_names(session: Session, typed: str) -> Iterable[str]:
    return [table.name for table in session.connection.known.tables.values()]


def _column_names(session: Session, typed: str) -> Iterable[str]:
    tables = session.connection.known.tables.values()
    names = [(table.name, column.name) for table in tables for column in table.columns.values()]
    return [".".join(pair) if "." in typed else pair[1] for pair in names]


def _command_names(session: Session, typed: str) -> Iterable[str]:
    return COMMANDS if typed.startswith(".") else [name.removeprefix(".") for name in COMMANDS]


@command(".help", "[COMMAND]", ("\\?", ".h"), _command_names)
def show_help(session: Session, argument: str) -> None:
    """List the commands."""
    chosen = [command_called(argument)] if argument else list(COMMANDS.values())
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
    names = list(_table_names(session, ""))
    if not argument and len(names) > 1:
        return show_tables(session, "")
    name = (argument or names[0]).strip('"').replace('"', '""')
    return session.run_statement(f'DESCRIBE "{name}"')


@command(".values", "COLUMN [START]", (), _column_names)
def show_values(session: Session, argument: str) -> None:
    """List the declared values of a column, or those that start in some way."""
    words = split_words(argument)
    if not 1 <= len(words) <= 2:
        raise UsageError("E_COMMAND", ".values takes a column, and how its values start")
    column = find_column(session.connection.known, words[0])
    start = words[1].casefold() if len(words) > 1 else ""
    if not column.cells:
        what = f"{printable(column.name)} has no declared values: {describe_values(column)}"
        raise ProgrammingError("E_DOMAIN", what)
    rows = [(each,) for each in column.cells if _text(each).casefold().startswith(start)]
    session.write(Grid.of_rows((column.name,), (column.type,), list(rows)))


def _text(value: object) -> str:
    return "NULL" if value is None else plain(value)


@command(".budget")
def show_budget(session: Session, argument: str) -> None:
    """Show the total and remaining budget."""
    for line in status_lines(session.connection.budget, speaks_unicode(sys.stderr)):
        tell(line)


@command(".ledger")
def show_ledger(session: Session, argument: str) -> None:
    """List what was charged, oldest first."""
    from dpsql.dbapi.history import history_of  # the engine: a second

    found = history_of(session.connection.entries())
    session.write(brief_grid(found) if session.format == "box" else full_grid(found))
