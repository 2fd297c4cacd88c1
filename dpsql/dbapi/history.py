"""History: past charges and changes, readable whatever has become of the catalog."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dpsql.catalog.read import read_catalog
from dpsql.errors import CatalogError, LedgerError
from dpsql.privacy.budget.curator_acts import anchor_folder, ledger_file, open_ledger, user_folder
from dpsql.privacy.budget.hash_chain import Entry as LedgerEntry
from dpsql.privacy.budget.history import HistoryEntry, moments, read_entries
from dpsql.privacy.budget.status import Status as BudgetStatus
from dpsql.privacy.budget.status import status_of
from dpsql.records import dataclass

__all__ = ["HistoryEntry", "PastEntries", "history_of", "read_past"]


@dataclass(frozen=True, slots=True)
class PastEntries:
    """The history of a ledger, its budget, and what is wrong with it or its catalog, if anything.

    ``status`` is None where the entries contradict each other.
    """

    moments: tuple[HistoryEntry, ...]
    status: BudgetStatus | None
    problem: CatalogError | LedgerError | None


def history_of(entries: Sequence[LedgerEntry]) -> tuple[HistoryEntry, ...]:
    """The history that some entries tell."""
    return moments(entries)


def read_past(path: str | os.PathLike[str]) -> PastEntries:
    """Read the ledger of a catalog, also where the catalog has changed, is broken or is gone.

    Raises: CatalogError where there is neither; LedgerError where the ledger cannot be read.
    """
    place, anchors = Path(path).with_suffix(".ledger"), user_folder()
    problem: CatalogError | LedgerError | None = None
    try:
        catalog = read_catalog(path)
        place, anchors = ledger_file(catalog), anchor_folder(catalog)
        open_ledger(catalog, anchors).close()
    except (CatalogError, LedgerError) as error:
        if not os.path.exists(place):
            raise
        problem = error
    found = moments(read_entries(place))
    state = found[-1].state if found else None
    return PastEntries(found, None if state is None else status_of(state), problem)
