"""The anchor of a ledger: the last entry that is known to have been durable, kept outside of it.

Restoring an old copy of the ledger leaves it behind its anchor, and that is refused.

The file holds two records of one length. The older is overwritten where it lies, with a single wait
for the disk, since no name changes. Whatever a power cut leaves of it, the other is whole, and a
ledger that is ahead of its anchor is in order.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.files import overwrite, replace_file
from dpsql.records import dataclass

BLOCK = 512
"""Bytes that a record is a multiple of: a disk writes them whole."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One entry of a ledger, by its number and hash."""

    ledger_id: str
    seq: int
    hash: str

    def write(self, path: Path, ledger: Path) -> None:
        """Make this the anchor; ``ledger`` is the real path that it is of. Raises: OSError.

        Guarantee: it is on the disk when this returns, and until then the one before can be read.
        """
        record = self._record(ledger)
        halves = _halves(path.read_bytes()) if path.is_file() else []
        if [len(half) for half in halves] != [len(record)] * 2:
            replace_file(path, record * 2)
            return
        seqs = [-1 if known is None else known.seq for known in map(_read, halves)]
        overwrite(path, seqs.index(min(seqs)) * len(record), record)

    def _record(self, ledger: Path) -> bytes:
        facts = {
            "hash": self.hash,
            "ledger": str(ledger),
            "ledger_id": self.ledger_id,
            "seq": self.seq,
        }
        line = json.dumps(facts | {"digest": _digest(facts)}).encode()
        return line + b" " * (-(len(line) + 1) % BLOCK) + b"\n"


def anchor_path(anchor_dir: Path, ledger: Path) -> Path:
    """Return where the anchor of a ledger lies; ``ledger`` is a real path.

    >>> anchor_path(Path("/a"), Path("/b/adult.ledger")).name
    'adult.ledger-8c3b797046598028.anchor'
    """
    digest = hashlib.sha256(os.fsencode(ledger)).hexdigest()
    return anchor_dir / f"{ledger.name}-{digest[:16]}.anchor"


def read_anchor(path: Path) -> Anchor | None:
    """Return the anchor, None when there is none: the newer of two records, or the one of before.

    Raises: LedgerError E_LEDGER_TAMPERED when no record of it can be understood, OSError.
    """
    if not path.exists():
        return None
    content = path.read_bytes() if path.is_file() else b""  # a pipe may never end
    records = [content, *_halves(content)]  # one line of before may be as long as two records
    found = [anchor for anchor in map(_read, records) if anchor is not None]
    if not found:
        raise LedgerError(
            "E_LEDGER_TAMPERED",
            "the ledger's anchor cannot be read",
            hint="restore the anchor file; a curator who knows that the ledger is the newest copy "
            "can accept it with `dpsql ledger adopt`",
        )
    return max(found, key=lambda anchor: anchor.seq)


def has_anchor(path: Path) -> bool:
    """Say whether there is an anchor that can be read. Raises: OSError."""
    try:
        return read_anchor(path) is not None
    except LedgerError:
        return False


def _halves(content: bytes) -> list[bytes]:
    """The two halves, which are records but for a file of before: one line of any length."""
    middle = len(content) // 2
    return [content[:middle], content[middle:]]


def _read(record: bytes) -> Anchor | None:
    """Read the anchor of a record; None where it was cut short or is no record."""
    try:
        facts = json.loads(record)
        digest = facts.pop("digest", None)  # records of before have none
        anchor = Anchor(facts["ledger_id"], facts["seq"], facts["hash"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if digest not in (None, _digest(facts)) or not isinstance(anchor.hash, str):
        return None
    return anchor if type(anchor.seq) is int and anchor.seq >= 0 else None


def _digest(facts: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
