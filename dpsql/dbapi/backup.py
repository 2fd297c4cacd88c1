"""Backups: a ledger with its anchor, and what was released, copied while a server writes them."""

from __future__ import annotations

import os
from pathlib import Path

from dpsql.answer.store import Store
from dpsql.catalog.read import read_catalog
from dpsql.errors import LedgerError, UsageError, printable
from dpsql.files import FAILING, ScratchFolder, file_trouble, replace_file, sync_directory
from dpsql.privacy.budget.curator_acts import backup_ledger
from dpsql.privacy.budget.status import Status as BudgetStatus


def backup(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> BudgetStatus:
    """Copy the ledger of a catalog and all that goes with it into a new folder; verify the copy.

    What was released is copied first, so that the ledger of a backup has paid for all of it.
    Raises: UsageError (E_OUTPUT) for a folder that is there; CatalogError; LedgerError.
    Guarantee: the folder has the whole of a backup, or is not there.
    """
    catalog, target = read_catalog(path), Path(os.path.abspath(folder))
    if os.path.lexists(target):
        what = f"{printable(str(folder))} is there already"
        raise UsageError("E_OUTPUT", what, hint="name a new folder for each backup")
    try:
        with ScratchFolder(f".{target.name}-", str(target.parent)) as made:
            Store(catalog.path).copy(made)
            status = backup_ledger(catalog, made)
            replace_file(made / catalog.path.name, catalog.path.read_bytes())
            os.rename(made, target)
            sync_directory(target.parent)
    except OSError as error:
        trouble = file_trouble(error) or FAILING
        what = f"a backup cannot be written: {trouble.what}"
        raise LedgerError("E_LEDGER_IO", what, hint=trouble.hint) from None
    return status
