"""One ledger per data source: two catalogs over one file must not mean two budgets.

Beside the anchors lie two small notes per source that say which ledger its rows are charged to:
one named by its real path, one by its place on the disk, so that a second name of the same file
(a hard link, or a new name after moving it) is the same source. Copies of a file are other
sources; that is the curator's to avoid.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.files import make_folder
from dpsql.privacy.anchor import anchor_path
from dpsql.privacy.durable import exclusive, replace_file


@dataclass(frozen=True, slots=True)
class Claim:
    """Which ledger a source is charged to, and by what the file was known then.

    ``stamp`` is its size and time of modification: a place on the disk that is used again by
    another file has other ones.
    """

    ledger: str
    ledger_id: str
    source: str = ""
    stamp: str = ""


def claim_sources(folder: Path, sources: Iterable[str], ledger: Path, ledger_id: str) -> None:
    """Note that sources are charged to a ledger, unless they are charged to another one already.

    A claim lapses when both its ledger and the ledger's anchor are gone.
    Raises: LedgerError E_LEDGER_MISMATCH, E_LEDGER_IO.
    """
    try:
        make_folder(folder)
        with exclusive(folder / "sources.lock"):
            for source in sources:
                _claim(folder, os.path.realpath(source), str(ledger), ledger_id)
    except OSError:
        raise LedgerError(
            "E_LEDGER_IO",
            "it cannot be noted which ledger the data are charged to",
            hint="the folder of the ledger's anchor must be writable and not full",
        ) from None


def _claim(folder: Path, source: str, ledger: str, ledger_id: str) -> None:
    found = _find_file(source)
    wanted = Claim(ledger, ledger_id, source, "" if found is None else _stamp(found))
    notes = {folder / f"{_digest(os.fsencode(source))}.source"}
    if found is not None:
        place = f"{found.st_dev}:{found.st_ino}"
        notes.add(folder / f"{_digest(place.encode())}.inode")
    known = {note: _read(note) for note in notes}
    for note, claim in known.items():
        if claim is None or claim.ledger_id == ledger_id or not _is_alive(folder, claim):
            continue
        if note.suffix == ".source" or _is_same_file(claim, source, wanted.stamp):
            raise LedgerError(
                "E_LEDGER_MISMATCH",
                f"the data {os.path.basename(source)} are charged to the ledger of another catalog",
                hint=f"declare the table in that catalog (its ledger is {claim.ledger}), "
                "or use that one",
            )
    for note in notes:
        if known[note] != wanted:
            replace_file(note, (json.dumps(asdict(wanted)) + "\n").encode())


def _is_same_file(claim: Claim, source: str, stamp: str) -> bool:
    """Say whether the file once found at this place on the disk is the one that is there now."""
    try:
        return claim.stamp == stamp or os.path.samefile(claim.source, source)
    except OSError:
        return False


def _find_file(source: str) -> os.stat_result | None:
    try:
        found = os.stat(source)
    except OSError:
        return None
    return found if found.st_ino else None


def _stamp(found: os.stat_result) -> str:
    return f"{found.st_size}:{found.st_mtime_ns}"


def _digest(name: bytes) -> str:
    return hashlib.sha256(name).hexdigest()[:32]


def _read(note: Path) -> Claim | None:
    try:
        found = json.loads(note.read_bytes())
        seen = str(found.get("source", "")), str(found.get("stamp", ""))
        return Claim(str(found["ledger"]), str(found["ledger_id"]), *seen)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LedgerError(
            "E_LEDGER_TAMPERED",
            f"the note {note.name} beside the ledger's anchor cannot be read",
            hint="restore it, or remove it if no other catalog uses these data",
        ) from None


def _is_alive(folder: Path, claim: Claim) -> bool:
    ledger = Path(claim.ledger)
    return ledger.exists() or anchor_path(folder, ledger).exists()
