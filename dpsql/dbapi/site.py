"""A site: one catalog whose rows several connections share, each in a thread of its own."""

from __future__ import annotations

import os
from dataclasses import replace

from dpsql.catalog import Catalog
from dpsql.dbapi.connection import Connection, open_catalog
from dpsql.dbapi.repeats import Repeats
from dpsql.engine.engine import Engine
from dpsql.engine.terms import Terms
from dpsql.privacy.curator import anchor_folder, find_analyst, ledger_files


class Site:
    """Connections over one catalog, for many analysts at once; see ``open_site``.

    Rows are read and encoded once, and threads take turns to count them. Every connection has its
    own settings, and its own view of the ledger, which is one. ``engine`` belongs to no analyst.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.engine = Engine(catalog, anchor_folder(catalog))
        self.repeats = Repeats(ledger_files(catalog))

    def connect(self, analyst: str | None = None) -> Connection:
        """A connection of an analyst, with settings of its own and no folder of files.

        Raises: DataError (E_ANALYST), LedgerError.
        """
        catalog = replace(self.catalog, derived={})
        terms = Terms.of(catalog)
        return Connection(catalog, terms, find_analyst(catalog, analyst), shared=self.engine)

    def close(self) -> None:
        """Close the ledger and let go of the rows."""
        self.engine.close()


def open_site(catalog: str | os.PathLike[str]) -> Site:
    """Open the tables of a catalog for several connections. Raises: as ``open_catalog``."""
    return Site(open_catalog(catalog))
