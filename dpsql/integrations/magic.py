"""``%load_ext dpsql``: ``%dpsql CATALOG -e 0.5`` connects, ``%%dpsql`` answers a cell.

A cell is one workload with one charge, as a file of ``dpsql run`` is; its last result is shown, or
kept under a name: ``%%dpsql -o counts``. Settings hold until the next connection.
"""

from __future__ import annotations

import argparse
import keyword
import shlex
from typing import Any, NoReturn

from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection, connect
from dpsql.errors import ProgrammingError, UsageError
from dpsql.settings.table import OptionPlace, options_of


class Options(argparse.ArgumentParser):
    """The words after ``%dpsql``; what is wrong with them is an error like any other."""

    def error(self, message: str) -> NoReturn:
        """Refuse them. Raises: UsageError (E_SETTING)."""
        hint = "%dpsql catalog.toml -e 0.5; then %%dpsql [-o NAME] [--explain] above SQL"
        raise UsageError("E_SETTING", f"%dpsql: {message}", hint=hint)


def _variable(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a variable")
    return text


def options() -> Options:
    """The options of the magic."""
    found = Options(prog="%dpsql", add_help=False, allow_abbrev=False)
    found.add_argument("catalog", nargs="?")
    found.add_argument("-e", "--epsilon")
    found.add_argument("--delta")
    found.add_argument("--noise")
    found.add_argument("--analyst")
    found.add_argument("--files")
    found.add_argument("-o", "--output", metavar="NAME", type=_variable)
    found.add_argument("--explain", action="store_true")
    return found


@magics_class
class DpsqlMagics(Magics):
    """The magic and the connection that it holds."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.connection: Connection | None = None
        self.variables: dict[str, Any] = shell.user_ns

    @line_cell_magic
    def dpsql(self, line: str, cell: str | None = None) -> object:
        """Connect to a catalog, or answer SQL; see ``dpsql.integrations.magic``.

        Raises: UsageError for unknown options; ProgrammingError (E_CLOSED) before a catalog is
        named; otherwise as ``Cursor.executescript``.
        """
        known = options()
        try:
            words = shlex.split(line)
        except ValueError as error:
            known.error(str(error))
        given = known.parse_args(words)
        if given.catalog is not None:
            self._connect(given)
        connection = self._connected()
        if given.catalog is None or cell is not None:
            _set_terms(connection, given)
        if cell is None or not cell.strip():
            return None
        if given.explain:
            return connection.explain(cell)
        found = self._answer(connection, cell)
        if given.output is None:
            return found
        self.variables[given.output] = found
        return None

    def _connect(self, given: argparse.Namespace) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        connection = connect(given.catalog, analyst=given.analyst, files=given.files)
        try:
            _set_terms(connection, given)
        except BaseException:
            connection.close()
            raise
        self.connection = connection

    def _connected(self) -> Connection:
        if self.connection is None:
            what = "%dpsql has no catalog yet"
            raise ProgrammingError("E_CLOSED", what, hint="%dpsql catalog.toml -e 0.5")
        return self.connection

    def _answer(self, connection: Connection, cell: str) -> Result:
        """The last result of a cell; those before it are displayed."""
        cursor = connection.executescript(cell)
        found = cursor.result
        while cursor.nextset():
            display(found)  # type: ignore[no-untyped-call]
            found = cursor.result
        return found


def _set_terms(connection: Connection, given: argparse.Namespace) -> None:
    """Set what requests cost, as far as it is given. Raises: DataError."""
    for name in options_of(OptionPlace.EXECUTE):
        if getattr(given, name, None) is not None:
            connection.set(name, getattr(given, name))


def load(shell: Any) -> None:
    """Register the magic with a shell."""
    shell.register_magics(DpsqlMagics)
