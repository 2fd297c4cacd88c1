"""The vault of a table that a server counts: no row of it is fetched for a vector.

Codes are kept on the server once, where it may keep anything, and every view of units likewise;
else each statement works them out anew. Relations, and keys that nobody listed, are worked out
from rows, as in every vault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.data_engine import Counts, StoredTable
from dpsql.privacy.vault.stored_rows import StoredRows, ask_all
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import AnyResolution

if TYPE_CHECKING:
    from dpsql.privacy.vault.servers.code_sql import CodeSql
    from dpsql.privacy.vault.servers.counter import Counter, CountingTable


def counted_in_place(table: Table, stored: StoredTable) -> CountingTable | None:
    """Return a table that is counted where it is, None where rows are fetched: by public facts."""
    if not table.is_pushed:
        return None
    from dpsql.privacy.vault.servers.counter import as_counting  # the rows of files are fetched

    return as_counting(stored)


def open_pushed(table: Table, reader: object, key: str) -> PushedCodes | None:
    """Open a server's counts of the rows of a reader, None where its rows are fetched."""
    counting = counted_in_place(table, reader.stored) if isinstance(reader, StoredRows) else None
    return None if counting is None else PushedCodes(table, counting, key)


class PushedCodes:
    """The codes of a table on a server, and the views of them that were asked for so far."""

    def __init__(self, table: Table, stored: CountingTable, key: str) -> None:
        self._table = table
        self._stored = stored
        self._key = key
        self._counter: Counter | None = None
        self._codes = ""
        self._views: dict[RowView, str] = {}

    @property
    def is_loaded(self) -> bool:
        """True if a session is open that counts."""
        return self._counter is not None

    def load(self) -> None:
        """Keep the codes, or find that they cannot be kept."""
        if self._counter is not None:
            return
        counter = self._stored.open_counter()
        try:
            select = self._sql(counter).select()
            self._codes = counter.keep(select) or f"({select})"
        except BaseException:
            counter.close()
            raise
        self._counter = counter

    def tally(self, view: RowView, resolutions: Sequence[AnyResolution], units: bool) -> Counts:
        """Count the rows of a view, or their units, in one statement; shaped as ``Vault.tally``."""
        try:
            return self._tally(view, resolutions, units)
        except BaseException:
            self.close()  # a session that failed is not asked again
            raise

    def check(self) -> None:
        """Let go of a session that does not answer any more, before anything is charged."""
        try:
            if self._counter is not None:
                list(self._counter.rows("SELECT 1"))
        except Exception:
            self.close()

    def _tally(self, view: RowView, resolutions: Sequence[AnyResolution], units: bool) -> Counts:
        from dpsql.privacy.vault.servers.group_sql import group_sql  # most rows are counted here

        self.load()
        assert self._counter is not None
        d = self._counter.dialect
        by_unit = self._table.unit.column is not None
        code_sql = self._sql(self._counter)
        group = group_sql(d, resolutions, code_sql.columns, units and by_unit)
        statement = group.select(d, self._view(view, self._counter, code_sql))
        return group.fold(self._counter.rows(statement))

    def close(self) -> None:
        """Let go of what the server keeps."""
        counter, self._counter = self._counter, None
        self._views.clear()
        if counter is not None:
            counter.close()

    def _view(self, wanted: RowView, counter: Counter, codes: CodeSql) -> str:
        if wanted not in self._views:
            unit = self._table.unit
            facts = self._codes, codes.columns, wanted, unit.column is not None
            from dpsql.privacy.vault.servers.group_sql import view_sql  # most rows are counted here

            select = view_sql(counter.dialect, *facts, unit.max_rows)
            kept = counter.keep(select) if unit.column is not None else None
            self._views[wanted] = kept or f"({select})"
        return self._views[wanted]

    def _sql(self, counter: Counter) -> CodeSql:
        """Return the SQL of the codes: every asked column with its native type, and the unit."""
        asked, unit = ask_all(self._stored, self._table)
        types = dict(self._stored.types)
        d = counter.dialect
        owner = None if unit is None else d.owner(f"t.{d.identifier(unit)}", types[unit])
        pairs = [(each, types[each.column]) for each in asked if each.form != "key"]
        from dpsql.privacy.vault.servers.code_sql import CodeSql  # most rows are counted here

        return CodeSql(self._table, d, counter.relation, pairs, owner, self._key)
