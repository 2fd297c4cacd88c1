"""A site: one catalog whose rows several connections share, each in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

from dpsql.catalog import Catalog
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import Connection, open_catalog
from dpsql.dbapi.repetitions import FreeAnswers
from dpsql.engine.engine import Engine
from dpsql.engine.terms import Terms
from dpsql.errors import LedgerError
from dpsql.interrupts import InterruptibleLock
from dpsql.privacy.budget.curator_acts import anchor_folder, find_analyst, ledger_files
from dpsql.records import replace


class Site:
    """Connections over one catalog, for many analysts at once; see ``open_site``.

    Rows are read and encoded once, and threads take turns to count them. Every connection has its
    own settings. The ledger is verified once, and then what was appended to it since. ``engine``
    belongs to no analyst.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.engine = Engine(catalog, anchor_folder(catalog))
        self.repeats = FreeAnswers(ledger_files(catalog))
        self._past: WeakSet[Any] = WeakSet()
        self._read_at = _time_of(catalog.path)
        # One thread at a time reads a catalog that has changed, and puts it in force.
        self._lock = threading.Lock()

    @property
    def analysts(self) -> Collection[str]:
        """The case-folded names of analysts, as the catalog declares them whenever it is asked."""
        return AnalystsInForce(self)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that change where a curator changes anything: the catalog, and its ledger's."""
        return self.catalog.path, *ledger_files(self.catalog)

    def connect(self, analyst: str | None = None) -> Connection:
        """A connection of an analyst, with settings of its own and no folder of files.

        Raises: CatalogError, DataError (E_ANALYST), LedgerError.
        """
        return self.admit(analyst)[0]

    def admit(self, analyst: str | None) -> tuple[Connection, FreeAnswers]:
        """A connection, and the repetitions of the catalog that it is on. Raises: as ``connect``.

        The catalog is read anew where a curator has changed it.
        """
        with InterruptibleLock(self._lock):
            try:
                return self._connect(analyst), self.repeats
            except LedgerError as error:
                if error.code != "E_POLICY_CHANGED":
                    raise
            self._renew()
            return self._connect(analyst), self.repeats

    def _connect(self, analyst: str | None) -> Connection:
        catalog = replace(self.catalog, derived={})
        terms = Terms.of(catalog)
        return Connection(catalog, terms, find_analyst(catalog, analyst), shared=self.engine)

    def refresh(self, fully: bool = False) -> bool:
        """Go by what the catalog's file and the ledger say by now; say whether that is new.

        The file is read where it was touched, or ``fully`` with all that it names.
        Raises: CatalogError, DataUnavailable; LedgerError where the file is not in force, and then
        the catalog stays as it is.
        """
        with self._lock:
            touched = _time_of(self.catalog.path)
            if not fully and touched == self._read_at and self.engine.is_in_force():
                return False
            self._read_at = touched
            if self.engine.is_in_force() and read_catalog(self.catalog.path) == self.catalog:
                return False
            self._renew()
            return True

    def _renew(self) -> None:
        """Read the catalog anew; rows stay open while others count them. Raises: as ``connect``.

        Where nothing but budgets has changed, rows are counted as they were.
        """
        catalog = open_catalog(self.catalog.path)
        before, vaults = self.engine, self.engine.vaults
        engine = Engine(catalog, anchor_folder(catalog), before=before)
        if engine.vaults is not vaults:
            self._past.add(vaults)
            vaults.close_unused()
        self.catalog, self.engine = catalog, engine
        self.repeats = FreeAnswers(ledger_files(catalog))

    def close(self) -> None:
        """Close the ledger and let go of the rows."""
        for vaults in list(self._past):
            vaults.close()
        self.engine.close()


class AnalystsInForce(Collection[str]):
    """The analysts of a site, who may be others after a curator's act."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def __contains__(self, name: object) -> bool:
        return name in self._site.catalog.analysts

    def __iter__(self) -> Iterator[str]:
        return iter(self._site.catalog.analysts)

    def __len__(self) -> int:
        return len(self._site.catalog.analysts)


def _time_of(path: Path) -> int:
    """When a file was written to last; 0 where there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def keeps_tables(before: Catalog, after: Catalog) -> bool:
    """Say whether all tables and views of a catalog are the same in another, but for budgets.

    There may be more of them.
    """
    tables = {key: replace(each, budget=None) for key, each in after.tables.items()}
    same = all(tables.get(k) == replace(each, budget=None) for k, each in before.tables.items())
    return same and all(after.views.get(key) == view for key, view in before.views.items())


def open_site(catalog: str | os.PathLike[str]) -> Site:
    """Open the tables of a catalog for several connections. Raises: as ``open_catalog``."""
    return Site(open_catalog(catalog))
