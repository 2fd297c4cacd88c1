"""The open tables of a site: each is opened once, read once, and used by one statement at a time.

Nobody waits for another table. Rows are read outside of a table's turn, and swapped in whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock

from dpsql.catalog.catalog import Table
from dpsql.catalog.discovery import Sought
from dpsql.privacy.vault.exclusive_work import ExclusiveWork
from dpsql.privacy.vault.vault import TableVault

Reads = Mapping[str, Collection[str] | None]
"""The columns that are read of each table, None for all."""


class OpenTables:
    """The vaults of tables, by case-folded name, for all who count the same rows.

    A table is opened anew where it is declared otherwise, where its clock has begun another
    version, and after it was let go of. Those who are counting the one before end with that.
    """

    def __init__(self, salt: bytes) -> None:
        self.salt = salt
        self.found: dict[str, TableVault] = {}
        self.derived: dict[str, Table] = {}
        self.closings = 0
        self._taken = ExclusiveWork()
        self._lock = Lock()

    @property
    def is_stale(self) -> bool:
        """True if rows are of a past period of a clock."""
        return any(vault.is_stale for vault in list(self.found.values()))

    def vault(self, table: Table) -> TableVault:
        """The vault of a table, opened if it is not; who opens another does not hold it up.

        Raises: DataUnavailable, OperationalError.
        """
        return self._vault(table.name.casefold(), table)

    def _vault(self, name: str, table: Table) -> TableVault:
        while True:
            found = self._current(name, table)
            if found is not None:
                return found
            with self._taken.some([("open", name)]) as mine:
                if mine and self._current(name, table) is None:
                    vault = TableVault(table, self.salt, self._vault, self._taken)
                    return self._put(name, table, vault)

    def _current(self, name: str, table: Table) -> TableVault | None:
        with self._lock:
            found = self.found.get(name)
            if found is None or found.is_stale or not found.is_of(table):
                return None
            if any(self.found.get(key) is not base for key, base in found.bases.items()):
                return None
            if name in self.derived:
                self.derived[name] = self.derived.pop(name)
            return found

    def _put(self, name: str, table: Table, vault: TableVault) -> TableVault:
        with self._lock:
            before = self.found.pop(name, None)
            self.found[name] = vault
            if vault.bases:
                self.derived[name] = table
            if before is not None:
                self.closings += 1
        if before is not None:
            self._retire(before)
        return vault

    @contextmanager
    def lent(
        self,
        tables: Mapping[str, Table],
        reads: Reads,
        sought: tuple[str, str, Sought] | None,
        is_long: bool,
    ) -> Iterator[dict[str, TableVault]]:
        """Vaults of some tables for one statement, as they are by now, with columns that are read.

        Whoever counts the same table waits, unless this is long: then it has a session of its own
        where a server counts. Rows are read, and keys found that are ``sought``, before that.
        Raises: DataUnavailable if a source has gone or changed since it was opened.
        """
        found = {name: self.vault(table) for name, table in sorted(tables.items())}
        fetched = {name for name, vault in found.items() if not vault.is_counted_there}
        for name in fetched & reads.keys():
            found[name].check()
            found[name].load(reads[name])
        own = {name: vault.beside(apart=is_long) for name, vault in found.items()}

        def seek(names: Collection[str]) -> None:
            if sought is not None and sought[0] in names:
                own[sought[0]].find(*sought[1:])

        try:
            seek(fetched)
            with ExitStack() as turns:
                for vault in () if is_long else found.values():
                    turns.enter_context(self._taken.one(("count", vault)))
                for name in own.keys() - fetched:
                    own[name].check()
                    own[name].load(reads.get(name))
                seek(own.keys() - fetched)
                yield own
        finally:
            for vault in own.values() if is_long else ():
                vault.close()
            for vault in found.values():
                if vault.is_retired:
                    self._retire(vault)

    def _retire(self, vault: TableVault) -> None:
        """Close the session of what nobody asks for any more, once nobody counts in it."""
        vault.is_retired = True
        with self._taken.free(("count", vault)) as is_free:
            if is_free:
                vault.retire()

    def let_go(self, may_stay: Callable[[Sequence[Table]], bool]) -> None:
        """Let go of derived tables that were asked for the longest ago, until the others may stay.

        Their rows are worked out again from those of the stored tables, which stay.
        """
        old = []
        with self._lock:
            while self.derived and not may_stay([*self.derived.values()]):
                old.append(self._forget(next(iter(self.derived))))
        for vault in old:
            self._retire(vault)

    def let_go_of_changed(self) -> None:
        """Let go of tables that are not as they were opened: the next statement opens them anew."""
        for name, vault in list(self.found.items()):
            if vault.is_as_opened:
                continue
            with self._lock:
                if self.found.get(name) is vault:
                    self._forget(name)
                    self.closings += 1
            self._retire(vault)

    def _forget(self, name: str) -> TableVault:
        self.derived.pop(name, None)
        return self.found.pop(name)

    def close(self) -> None:
        """Close every vault, at once."""
        self.closings += 1
        close_all(self.found)
        self.derived.clear()


def close_all(opened: dict[str, TableVault]) -> None:
    """Close vaults, and forget them."""
    for vault in list(opened.values()):
        vault.close()
    opened.clear()
