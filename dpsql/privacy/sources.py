"""Whose budget the rows of a file are charged to, over all tables and catalogs that name it."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpsql.catalog import Catalog, Table
from dpsql.errors import CatalogError, DataUnavailable, printable
from dpsql.privacy.claims import claim_sources, refuse_claimed


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of one catalog, and where it is noted which ledger files are charged to.

    ``folders`` are that of the ledger's anchor and that of the user, where all catalogs meet;
    ``stored`` tells the table within a database file that holds the rows of a table.
    """

    catalog: Catalog
    folders: Sequence[Path]
    ledger: Path
    stored: Callable[[Table], str]

    def claim(self, opened: Mapping[str, Sequence[str]], ledger_id: str) -> None:
        """Note, before a charge, that the files of opened tables are charged to this ledger.

        Raises: CatalogError (E_POLICY) where another table over a file has a budget or a unit of
        its own, or is public; LedgerError (E_LEDGER_MISMATCH) where another ledger has it.
        """
        for name, paths in opened.items():
            self._refuse_shared(self.catalog.tables[name])
            claim_sources(self.folders, paths, self.ledger, ledger_id)

    def check_public(self, table: Table) -> None:
        """Refuse to read a table as public over a file that is private elsewhere.

        Raises: CatalogError (E_POLICY); LedgerError (E_LEDGER_MISMATCH).
        """
        self._refuse_shared(table)
        refuse_claimed(self.folders, files_of(table.source))

    def _refuse_shared(self, table: Table) -> None:
        for other in self.catalog.tables.values():
            problem = None if other is table else _contradiction(table, other)
            if problem is not None and self._share(table, other):
                names = f"{printable(table.name)!r} and {printable(other.name)!r}"
                raise CatalogError(
                    "E_POLICY",
                    f"the tables {names} are of one file, and {problem}",
                    hint="declare one table for the file, or both with the same privacy unit "
                    "and without budgets of their own",
                )

    def _share(self, one: Table, other: Table) -> bool:
        """Whether two tables hold rows of the same file, and of the same table within it."""
        if _places(one).isdisjoint(_places(other)):
            return False
        try:
            return self.stored(one) == self.stored(other)
        except DataUnavailable:  # one that cannot be opened is compared when it can
            return False


def files_of(source: str) -> tuple[str, ...]:
    """The real paths of the files that a declared source matches now."""
    found = [source] if os.path.exists(source) else sorted(glob.glob(source, recursive=True))
    return tuple(dict.fromkeys(map(os.path.realpath, found))) or (os.path.realpath(source),)


def _contradiction(one: Table, other: Table) -> str | None:
    """Why two tables must not be of one file."""
    if one.public and other.public:
        return None
    if one.public or other.public:
        return "only one of them is public"
    if one.unit.column != other.unit.column:
        return "they protect different privacy units"
    if one.budget is not None or other.budget is not None:
        return "a table's budget would be asked for twice"
    return None


def _places(table: Table) -> set[tuple[int, int] | str]:
    """Where the files of a table are on the disk, by their names where they are not there."""
    found: set[tuple[int, int] | str] = set()
    for path in files_of(table.source):
        try:
            facts = os.stat(path)
        except OSError:
            found.add(path)
        else:
            found.add((facts.st_dev, facts.st_ino) if facts.st_ino else path)
    return found
