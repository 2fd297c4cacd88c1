"""Engines of other packages: what they are given, hand over and promise. See docs/architecture.md.

An engine that has batches of Arrow is an :class:`ArrowEngine`; one that works out numbers of its
own is any :class:`DataEngine`. One whose tables are :class:`CountingTable` may be asked to count
them where they are. :func:`find_faults` says which promises an engine does not keep.
"""

from __future__ import annotations

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.arrow_engine import ArrowEngine, ArrowTable
from dpsql.privacy.vault.conformance import find_faults
from dpsql.privacy.vault.data_engine import (
    TYPE_FAMILIES,
    VERSION,
    Batch,
    DataEngine,
    RequestedColumn,
    StoredTable,
    Values64,
    fingerprint,
    unavailable,
)
from dpsql.privacy.vault.dialect import Dialect, FetchedSql, OwnerSql
from dpsql.privacy.vault.servers.counter import Counter, CountingTable
from dpsql.privacy.vault.servers.held_sessions import held

__all__ = [
    "TYPE_FAMILIES",
    "VERSION",
    "ArrowEngine",
    "ArrowTable",
    "Batch",
    "Counter",
    "CountingTable",
    "DataEngine",
    "Dialect",
    "FetchedSql",
    "OwnerSql",
    "RequestedColumn",
    "StoredTable",
    "Table",
    "Values64",
    "find_faults",
    "fingerprint",
    "held",
    "unavailable",
]
