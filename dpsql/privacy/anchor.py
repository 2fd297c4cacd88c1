"""A small file kept away from the ledger that says how far the ledger had come.

Restoring an old copy of the ledger leaves it behind its anchor, and that is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.privacy.durable import replace_file


@dataclass(frozen=True, slots=True)
class Anchor:
    """The last entry of a ledger that is known to have been durable."""

    ledger_id: str
    seq: int
    hash: str

    def write(self, path: Path, ledger: Path) -> None:
        """Replace the anchor file durably. Raises: OSError."""
        content = {
            "hash": self.hash,
            "ledger": str(ledger),
            "ledger_id": self.ledger_id,
            "seq": self.seq,
        }
        replace_file(path, (json.dumps(content) + "\n").encode())


def anchor_path(anchor_dir: Path, ledger: Path) -> Path:
    """Return where the anchor of a ledger lies; ``ledger`` is a real path.

    >>> anchor_path(Path("/a"), Path("/b/adult.ledger")).name
    'adult.ledger-8c3b797046598028.anchor'
    """
    digest = hashlib.sha256(os.fsencode(ledger)).hexdigest()
    return anchor_dir / f"{ledger.name}-{digest[:16]}.anchor"


def read_anchor(path: Path) -> Anchor | None:
    """Return the anchor, None when there is none.

    Raises: LedgerError E_LEDGER_TAMPERED when it cannot be understood, OSError.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = json.loads(content)
        anchor = Anchor(found["ledger_id"], found["seq"], found["hash"])
    except (ValueError, KeyError, TypeError):
        anchor = Anchor("", -1, "")
    if type(anchor.seq) is not int or anchor.seq < 0 or not isinstance(anchor.hash, str):
        raise LedgerError(
            "E_LEDGER_TAMPERED",
            "the ledger's anchor cannot be read",
            hint="restore the anchor file, or let the curator adopt the ledger again",
        )
    return anchor
