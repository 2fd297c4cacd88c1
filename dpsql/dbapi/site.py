"""A site: one catalog whose rows several connections share, each in a thread of its own."""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

from dpsql.catalog import Catalog
from dpsql.dbapi.connection import Connection, open_catalog
from dpsql.dbapi.repeats import Repeats
from dpsql.engine.engine import Engine
from dpsql.engine.terms import Terms
from dpsql.errors import LedgerError
from dpsql.privacy.curator import anchor_folder, find_analyst, ledger_files
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
        self.repeats = Repeats(ledger_files(catalog))
        self._past: WeakSet[Any] = WeakSet()
        self._lock = threading.Lock()

    def connect(self, analyst: str | None = None) -> Connection:
        """A connection of an analyst, with settings of its own and no folder of files.

        Raises: CatalogError, DataError (E_ANALYST), LedgerError.
        """
        return self.admit(analyst)[0]

    def admit(self, analyst: str | None) -> tuple[Connection, Repeats]:
        """A connection, and the repetitions of the catalog that it is on. Raises: as ``connect``.

        The catalog is read anew where a curator has changed it; who is connected connects again.
        """
        with self._lock:
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

    def _renew(self) -> None:
        """Read the catalog anew; rows stay open while others count them. Raises: as ``connect``."""
        catalog = open_catalog(self.catalog.path)
        engine = Engine(catalog, anchor_folder(catalog), before=self.engine)
        self._past.add(self.engine.vaults)
        self.engine.vaults.close_unused()
        self.catalog, self.engine = catalog, engine
        self.repeats = Repeats(ledger_files(catalog))

    def close(self) -> None:
        """Close the ledger and let go of the rows."""
        for vaults in list(self._past):
            vaults.close()
        self.engine.close()


def open_site(catalog: str | os.PathLike[str]) -> Site:
    """Open the tables of a catalog for several connections. Raises: as ``open_catalog``."""
    return Site(open_catalog(catalog))
