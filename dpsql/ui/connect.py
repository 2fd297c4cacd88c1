"""A connection from options as the user wrote them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dpsql.errors import DataError, UsageError
from dpsql.settings.table import SETTINGS, OptionPlace, options_of
from dpsql.ui.narration import tell

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., int])

WIDE: dict[str, Any] = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}
"""Help is as wide as the terminal, up to where no option needs a second line."""

LARGEST_EPSILON = Fraction(10**6)
"""Bound on the limits of a catalog; the catalog's own are checked on connecting."""


def setting_option(name: str, help: str = "") -> Callable[[C], C]:
    """Give a command the option of a setting, with another line of help where it means another."""
    line = SETTINGS[name].command_line
    assert line is not None
    flag = f"--{name.replace('_', '-')}"
    return click.option(*line.short, flag, name, metavar=line.metavar, help=help or line.help)


scratch_option = click.option(
    "--scratch", is_flag=True, help="Drafts, within the budget of [scratch]."
)


def refuse_draft(scratch: bool, force: bool) -> None:
    """Refuse to write drafts into a file, unless it is forced. Raises: UsageError (E_OUTPUT)."""
    if scratch and not force:
        what = "results of scratch mode are drafts, and are not written into files"
        raise UsageError("E_OUTPUT", what, hint="--force writes them all the same")


def with_settings(whole: bool) -> Callable[[C], C]:
    """Give a command the options of ``open_connection``, for a file as a whole or each request."""

    def decorate(command: C) -> C:
        for name, setting in reversed(SETTINGS.items()):  # click lists the last one first
            if setting.command_line is not None:
                told = setting.command_line.whole if whole else ""
                command = setting_option(name, told)(command)
        return command

    return decorate


def open_connection(
    catalog: str, options: Mapping[str, str | None], scratch: bool = False
) -> Connection:
    """Connect with options as the user wrote them; without ``files`` SQL may use those here.

    Args:
        catalog: path of the TOML file.
        options: texts by name, None for those that were not typed. Without ``files`` SQL may name
            those of the working directory.
        scratch: True for a draft, whose answers are charged to a budget of their own.

    Raises: UsageError for a malformed option; other errors of ``dpsql.connect``; Interrupted.
    """
    from dpsql.dbapi.preload import open_early
    from dpsql.engine.charges import Charges, interruptible

    def connect() -> Connection:
        open_early()
        from dpsql import connect as open_catalog  # slow: here Ctrl-C is told what it cost

        given = {name: text for name, text in options.items() if text is not None}
        taken = {
            n: _argument(n, given.pop(n)) for n in options_of(OptionPlace.CONNECT) if n in given
        }
        connection = _connect_scratch(catalog, taken) if scratch else open_catalog(catalog, **taken)
        if "files" not in taken and not scratch:  # SQL writes no file of a draft unasked
            connection.grant_here()
        for name, text in given.items():
            connection.set(name, text)
        return connection

    with blaming_options():
        return interruptible(connect, Charges())


def _connect_scratch(catalog: str, options: Mapping[str, Any]) -> Connection:
    from dpsql.dbapi.scratch import connect_scratch

    connection, change = connect_scratch(catalog, **options)
    tell(f"scratch: in force now, and logged: {change}" if change else "scratch: drafts only")
    return connection


def _argument(name: str, text: str) -> Any:
    """Return a text as ``connect`` takes it; words are read there, after the catalog."""
    kind = SETTINGS[name].kind
    return text if kind.is_word else kind.read(text, {"limit": LARGEST_EPSILON})


def sit(connection: Connection, work: Callable[[], T], close: Callable[[], None]) -> T:
    """Use a connection and close it; Ctrl-C says what was charged.

    Args:
        connection: of which the charges are told.
        work: everything that is done with it.
        close: called in any case, also after an interrupt.

    Raises: Interrupted; as ``work``.
    """

    def use() -> T:
        try:
            return work()
        finally:
            close()

    return connection.interruptible(use)


@contextlib.contextmanager
def blaming_options() -> Iterator[None]:
    """Turn a complaint about an option's value into a usage error."""
    try:
        yield
    except DataError as error:
        raise UsageError(error.code, error.message, hint=error.hint) from None
