"""Tables of SQLite databases: read by Python's own module.

SQLite stores values of any type in any column: each is the text of its value, whatever its column
was declared. Columns that are worked out are refused, since one row may make them fail.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from urllib.parse import quote

import pyarrow as pa

from dpsql.catalog.delimited import Delimited
from dpsql.files import patient_connections
from dpsql.interrupts import AGAIN
from dpsql.privacy.vault.data_engine import Unreadable
from dpsql.privacy.vault.files.arrow_rows import ROWS
from dpsql.records import dataclass

LISTED = "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name"
OWN = "sqlite_"
"""The beginning of names of SQLite's own tables."""
DAMAGED = (
    "it is no SQLite database, a damaged or an encrypted one, or locked",
    "VACUUM INTO 'copy.sqlite' writes a whole one",
)
STORED = 0
"""The mark of SQLite for a column that is stored, and is neither hidden nor worked out."""


@dataclass(frozen=True, slots=True)
class SQLiteRows:
    """The rows of a table."""

    path: str
    table: str
    names: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """See :class:`dpsql.privacy.vault.files.arrow_rows.ArrowRows`."""
        return pa.schema([(name, pa.large_string()) for name in self.names])

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See :class:`dpsql.privacy.vault.files.arrow_rows.ArrowRows`."""
        listed = ", ".join(f"{_as_text(each)} AS f{i}" for i, each in enumerate(names))
        schema = pa.schema([(name, pa.large_string()) for name in names])
        with closing(_connect(self.path)) as connection:
            cursor = connection.execute(f"SELECT {listed} FROM {_quoted(self.table)} NOT INDEXED")
            while rows := cursor.fetchmany(ROWS):
                columns = zip(*rows, strict=True)
                arrays = [
                    pa.array(each, pa.large_binary()).view(pa.large_string()) for each in columns
                ]
                yield pa.record_batch(arrays, schema)


def open_file(path: str, named: str, written: Delimited) -> SQLiteRows:
    """Open a table of a database, the only one where none is named.

    Args: as those of :func:`dpsql.privacy.vault.files.arrow_rows.open_rows`.

    Raises: Unreadable.
    """
    try:
        with closing(_connect(path)) as connection:
            listed = _list(connection)
            name = named or (listed[0] if len(listed) == 1 else "")
            found = connection.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", [name])
            columns = [(column.decode("utf-8", "replace"), hidden) for column, hidden in found]
    except sqlite3.Error:
        raise Unreadable(*DAMAGED) from None
    if name not in listed:
        said = ", ".join(map(repr, listed)) or "none"
        problem = f"the database has no table {named!r}" if named else "the database has tables"
        hint = 'source = { file = "shop.sqlite", table = "orders" }'
        raise Unreadable(f"{problem}: {said}; views are not read", hint)
    if any(hidden != STORED for _, hidden in columns):
        problem = "a column of the table is worked out of others, which one row may make fail"
        raise Unreadable(problem, "store its values, in a table of their own")
    return SQLiteRows(path, name, tuple(column for column, _ in columns))


def list_tables(path: str) -> list[str]:
    """Return the names of the tables of a database. Raises: Unreadable."""
    try:
        with closing(_connect(path)) as connection:
            return _list(connection)
    except sqlite3.Error:
        raise Unreadable(*DAMAGED) from None


def _list(connection: sqlite3.Connection) -> list[str]:
    """Return the names of tables, without those of SQLite itself and views, which may join rows."""
    found = [(name.decode(), kind) for name, kind in connection.execute(LISTED)]
    return [name for name, kind in found if kind == b"table" and not name.startswith(OWN)]


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode=ro",
        timeout=AGAIN,
        check_same_thread=False,
        factory=patient_connections(),
        uri=True,
    )
    connection.text_factory = bytes  # a text that is not UTF-8 must not raise
    return connection


def _as_text(name: str) -> str:
    """Write the text of a value; numbers with all of their digits."""
    column = _quoted(name)
    number = f"printf('%!.17g', {column})"
    return f"CASE typeof({column}) WHEN 'real' THEN {number} ELSE CAST({column} AS TEXT) END"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
