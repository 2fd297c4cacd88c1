"""One ledger per data source: two catalogs over one file must not mean two budgets.

Beside the anchors, and in the user's state folder whatever anchors a catalog has, lie two small
notes per source that say which ledger its rows are charged to: one named by its real path, one by
its place on the disk, so that a second name of the same file (a hard link, or a new name after
moving it) is the same source. Copies of a file are other sources; that is the curator's to avoid.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.files import make_folder
from dpsql.privacy.anchor import anchor_path
from dpsql.privacy.durable import exclusive, replace_file


@dataclass(frozen=True, slots=True)
class Claim:
    """Which ledger a source is charged to, and by what the file was known then.

    ``stamp`` is its size and time of modification: a place on the disk that is used again by
    another file has other ones. ``anchors`` is the folder of the ledger's anchor.
    """

    ledger: str
    ledger_id: str
    source: str = ""
    stamp: str = ""
    anchors: str = ""


def claim_sources(
    folders: Sequence[Path], sources: Iterable[str], ledger: Path, ledger_id: str
) -> None:
    """Note that sources are charged to a ledger, unless they are charged to another one already.

    The first of the folders holds the ledger's anchor. A claim lapses when both its ledger and the
    ledger's anchor are gone.
    Raises: LedgerError E_LEDGER_MISMATCH, E_LEDGER_IO.
    """
    wanted = Claim(str(ledger), ledger_id, anchors=os.path.realpath(folders[0]))
    with _locked(folders) as places:
        for source in map(os.path.realpath, sources):
            for folder in places:
                _refuse(folder, source, ledger_id)
            for folder in places:
                _write(folder, source, wanted)


def refuse_claimed(folders: Sequence[Path], sources: Iterable[str]) -> None:
    """Refuse to take for public what is charged to a ledger, whichever it is.

    Raises: LedgerError E_LEDGER_MISMATCH, E_LEDGER_IO.
    """
    with _locked([folder for folder in folders if folder.is_dir()]) as places:
        for source in map(os.path.realpath, sources):
            for folder in places:
                _refuse(folder, source, "")


@contextmanager
def _locked(folders: Sequence[Path]) -> Iterator[list[Path]]:
    """The folders, each once and all of them locked, in an order that all processes share."""
    try:
        with ExitStack() as stack:
            places = sorted({Path(os.path.realpath(folder)) for folder in folders})
            for folder in places:
                make_folder(folder)
                stack.enter_context(exclusive(folder / "sources.lock"))
            yield places
    except OSError:
        raise LedgerError(
            "E_LEDGER_IO",
            "it cannot be noted which ledger the data are charged to",
            hint="the folder of the ledger's anchor, and that of your state (XDG_STATE_HOME, by "
            "default ~/.local/state), must be writable and not full",
        ) from None


def _refuse(folder: Path, source: str, ledger_id: str) -> None:
    """Refuse a source that another ledger has claimed in a folder."""
    stamp = _stamp(_find_file(source))
    for note in _notes(folder, source):
        claim = _read(note)
        if claim is None or claim.ledger_id == ledger_id or not _is_alive(folder, claim):
            continue
        if note.suffix == ".source" or _is_same_file(claim, source, stamp):
            other = "the ledger of another catalog" if ledger_id else "a ledger, so not public"
            raise LedgerError(
                "E_LEDGER_MISMATCH",
                f"the data {os.path.basename(source)} are charged to {other}",
                hint=f"declare the table in that catalog (its ledger is {claim.ledger}), "
                "or use that one",
            )


def _write(folder: Path, source: str, claim: Claim) -> None:
    wanted = replace(claim, source=source, stamp=_stamp(_find_file(source)))
    for note in _notes(folder, source):
        if _read(note) != wanted:
            replace_file(note, (json.dumps(asdict(wanted)) + "\n").encode())


def _notes(folder: Path, source: str) -> Iterator[Path]:
    """The notes about a source, whether or not they are there."""
    yield folder / f"{_digest(os.fsencode(source))}.source"
    found = _find_file(source)
    if found is not None:
        yield folder / f"{_digest(f'{found.st_dev}:{found.st_ino}'.encode())}.inode"


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


def _stamp(found: os.stat_result | None) -> str:
    return "" if found is None else f"{found.st_size}:{found.st_mtime_ns}"


def _digest(name: bytes) -> str:
    return hashlib.sha256(name).hexdigest()[:32]


def _read(note: Path) -> Claim | None:
    try:
        found = json.loads(note.read_bytes())
        seen = [str(found.get(name, "")) for name in ("source", "stamp", "anchors")]
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
    anchors = Path(claim.anchors) if claim.anchors else folder
    return ledger.exists() or anchor_path(anchors, ledger).exists()
