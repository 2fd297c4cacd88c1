"""Room on the disk: what is paid for has to be stored, or all that is left of it is its charge."""

from __future__ import annotations

import shutil
from pathlib import Path

from dpsql.errors import LedgerError

PLENTY = 1 << 30
"""Free bytes that hold whatever comes of a step: below, it is worked out how many it needs."""
STEP = 4
"""Sizes that are asked for are FEW, STEP times as much, ... bytes: how much is free depends on the
data beside the catalog, and a statement that may ask for any number would find out how much."""
FEW = 1 << 22
"""Bytes that are free for a model, keys, bounds or clipped sums, whose sizes are not known."""
JOURNALS = 1 << 17
"""Bytes for the journals of the ledger and of the store, and for pages that are not full."""


def refuse_full(catalog: Path, most: int) -> None:
    """Refuse what may not fit on the disk beside a catalog, before it is charged.

    ``most`` are the bytes that it takes at most. Guarantee: how much is free is not told, and is
    compared with one of few numbers. Raises: LedgerError (E_LEDGER_IO).
    """
    free = shutil.disk_usage(catalog.parent).free
    needed = FEW
    while needed < most + JOURNALS:
        needed *= STEP
    if free < needed:
        raise LedgerError(
            "E_LEDGER_IO",
            f"the disk is full: what is released has to be stored, for which {needed:,} bytes have"
            " to be free; nothing was charged",
            hint="make room on the disk of the catalog",
        )
