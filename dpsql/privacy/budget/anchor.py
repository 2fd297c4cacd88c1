"""The anchor of a ledger: the last entry that is known to have been durable, kept outside of it.

Restoring an old copy of the ledger leaves it behind its anchor, and that is refused. The sums of
all budgets after that entry stand in it too, so that the curator can charge the copy up to them.

The file holds two records of one length. The older is overwritten where it lies, with a single wait
for the disk, since no name changes. Whatever a power cut leaves of it, the other is whole, and a
ledger that is ahead of its anchor is in order.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from base64 import b64decode, b64encode
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.files import overwrite, replace_file
from dpsql.privacy.budget.refusals import tampered, unrecoverable
from dpsql.records import dataclass

BLOCK = 512
"""Bytes that a record is a multiple of: a disk writes them whole."""
SLACK = 4
"""The part, one in so many, by which sums may grow until a record needs another place."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One entry of a ledger, by its number and hash.

    ``sums`` is JSON of what all entries until then come to, packed; empty in anchors of before.
    """

    ledger_id: str
    seq: int
    hash: str
    sums: str = ""

    def write(self, path: Path, ledger: Path, anew: bool = False) -> None:
        """Make this the anchor of a ledger.

        Args:
            path: file of the anchor: two halves of one length, of which the older is overwritten.
            ledger: real path that the anchor is of.
            anew: True to forget the one before, which may have a higher number: a ledger was
                recovered.

        Raises: OSError.

        Guarantee: it is on the disk when this returns, and until then the one before can be read.
        """
        halves = _halves(path.read_bytes()) if path.is_file() and not anew else []
        seqs = [-1 if known is None else known.seq for known in map(_read, halves)]
        length = len(halves[0]) if any(seq >= 0 for seq in seqs) else 0
        record = self._record(ledger, length)
        if [len(half) for half in halves] != [len(record)] * 2:
            replace_file(path, record * 2)
            return
        overwrite(path, seqs.index(min(seqs)) * len(record), record)

    def _record(self, ledger: Path, least: int) -> bytes:
        """The record, as long as those that lie there where it fits: their places stay then."""
        facts: dict[str, object] = {
            "hash": self.hash,
            "ledger": str(ledger),
            "ledger_id": self.ledger_id,
            "seq": self.seq,
        }
        facts |= {"sums": self.sums} if self.sums else {}
        line = json.dumps(facts | {"digest": _digest(facts)}).encode()
        room = least if least > len(line) else len(line) + 1 + len(self.sums) // SLACK
        return line.ljust(room + -room % BLOCK - 1) + b"\n"


def packed(sums: str) -> str:
    """Pack sums for an anchor: of many budgets they say the same, and every look reads them."""
    return b64encode(zlib.compress(sums.encode(), 1)).decode()


def unpacked(sums: str) -> str:
    """The sums of an anchor. Raises: LedgerError E_LEDGER_TAMPERED."""
    try:
        return zlib.decompress(b64decode(sums, validate=True)).decode()
    except (ValueError, zlib.error):
        raise tampered("the sums of its anchor cannot be read") from None


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


def read_sums(path: Path) -> Anchor:
    """Return the anchor of a ledger that is behind it, for the sums that it keeps.

    A record that cannot be read may have been the newer one: then there is doubt, and a refusal.
    Raises: LedgerError E_LEDGER_ROLLBACK, E_LEDGER_TAMPERED, OSError.
    """
    anchor = read_anchor(path)
    if anchor is None:
        raise unrecoverable("there is no anchor")
    if None in map(_read, _halves(path.read_bytes())):
        raise unrecoverable("one of the two records of its anchor cannot be read")
    if not anchor.sums:
        raise unrecoverable("its anchor was written by an earlier version, and keeps no sums")
    return anchor


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
        sums = facts.get("sums", "")
        anchor = Anchor(facts["ledger_id"], facts["seq"], facts["hash"], sums)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if digest not in (None, _digest(facts)) or not isinstance(anchor.hash, str):
        return None
    return anchor if type(anchor.seq) is int and anchor.seq >= 0 else None


def _digest(facts: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
