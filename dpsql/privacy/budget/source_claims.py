"""One ledger per data source: two catalogs over one file must not mean two budgets.

Beside the anchors, and in the user's state folder whatever anchors a catalog has, lie two small
notes per source that say which ledger its rows are charged to: one named by its real path, one by
its place on the disk, so that a second name of the same file (a hard link, or a new name after
moving it) is the same source. Copies of a file are other sources; that is the curator's to avoid.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path

from dpsql.catalog import Catalog, Table
from dpsql.catalog.catalog import engine_of, is_stored
from dpsql.errors import CatalogError, LedgerError, OperationalError, printable
from dpsql.files import (
    exclusive,
    is_read_only,
    make_folder,
    read_regular,
    real_paths,
    replace_files,
)
from dpsql.privacy.budget.anchor import anchor_path
from dpsql.records import asdict, dataclass, replace
from dpsql.relation.derive import bases_of


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim on a source: the ledger it is charged to, and by what the file was known then.

    ``stamp`` is its size and time of modification: a place on the disk that is used again by
    another file has other ones. ``anchors`` is the folder of the ledger's anchor.
    """

    ledger: str
    ledger_id: str
    source: str = ""
    stamp: str = ""
    anchors: str = ""


Notes = Mapping[Path, Claim | None]
"""Notes about a source in one folder, with the claims that are there."""


def claim_sources(
    folders: Sequence[Path], sources: Iterable[str], ledger: Path, ledger_id: str
) -> None:
    """Note that sources are charged to a ledger, unless they are charged to another one already.

    The first of the folders holds the ledger's anchor. A claim lapses when both its ledger and the
    ledger's anchor are gone.

    Args:
        folders: places of claims, all of which are read and written under one lock.
        sources: names of files and tables as the catalog has them, found by their real paths.
        ledger: real path that they are charged to.
        ledger_id: of that ledger, so that another one in its place is not taken for it.

    Raises: LedgerError E_LEDGER_MISMATCH, E_LEDGER_IO.
    """
    wanted = Claim(str(ledger), ledger_id, anchors=os.path.realpath(folders[0]))
    changed: dict[Path, Claim] = {}
    with _locked(folders) as places:
        for source in _real(sources):
            found = _find_file(source)
            claim = replace(wanted, source=source, stamp=_stamp(found))
            for folder in places:
                notes = _notes(folder, source, found)
                _refuse(folder, source, claim.stamp, notes, wanted)
                changed |= {note: claim for note, known in notes.items() if known != claim}
        if changed:
            texts = {note: json.dumps(asdict(claim)) + "\n" for note, claim in changed.items()}
            replace_files({note: text.encode() for note, text in texts.items()})


PUBLIC = Claim("", "")
"""A charge to no ledger."""


def refuse_claimed(folders: Sequence[Path], sources: Iterable[str], wanted: Claim = PUBLIC) -> None:
    """Refuse what is charged to another ledger, or to take for public what is charged to any.

    Nothing is noted.

    Args:
        folders: places of claims, of which those that are there are read.
        sources: names of files and tables as the catalog has them, found by their real paths.
        wanted: claim that is about to be made; by default that of public tables, which have no
            ledger.

    Raises: LedgerError E_LEDGER_MISMATCH, E_LEDGER_IO.
    """
    there = [folder for folder in folders if folder.is_dir()]
    closed = any(is_read_only(each / "sources.lock") for each in there)
    with nullcontext(there) if closed else _locked(there) as places:
        for source in _real(sources):
            found = _find_file(source)
            for folder in places:
                notes = _notes(folder, source, found)
                _refuse(folder, source, _stamp(found), notes, wanted)


def _real(sources: Iterable[str]) -> list[str]:
    """The real paths of files; a name that an engine gives its tables is one already."""
    named = list(sources)
    files = [source for source in named if not (engine_of(source) or is_stored(source))]
    found = map(os.path.realpath, files) if len(files) == 1 else real_paths(files)
    real = dict(zip(files, found, strict=True))
    return [real.get(source, source) for source in named]


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


def _refuse(folder: Path, source: str, stamp: str, notes: Notes, wanted: Claim) -> None:
    """Refuse a source that another ledger has claimed in a folder."""
    for note, claim in notes.items():
        if claim is None or claim.ledger_id == wanted.ledger_id or not _is_alive(folder, claim):
            continue
        if note.suffix == ".source" or _is_same_file(claim, source, stamp):
            told, hint = _conflict(claim, wanted, note)
            raise LedgerError(
                "E_LEDGER_MISMATCH",
                f"the data {os.path.basename(source)} are charged to {told}",
                hint=hint,
            )


def _conflict(claim: Claim, wanted: Claim, note: Path) -> tuple[str, str]:
    """Tell to whose ledger a source is charged, and what would work."""
    if claim.ledger == wanted.ledger:
        return (
            f"a ledger that was in the place of {claim.ledger}",
            "put the earlier ledger back; a curator who has given it up, with all that was "
            f"charged to it, removes the note that says so: {note}",
        )
    told = "the ledger of another catalog" if wanted.ledger_id else "a ledger, so not public"
    return (
        told,
        f"declare the table in that catalog (its ledger is {claim.ledger}), or use that one",
    )


def _notes(folder: Path, source: str, found: os.stat_result | None) -> Notes:
    """The notes about a source, whether or not they are there, and what they say."""
    notes = [folder / f"{_digest(os.fsencode(source))}.source"]
    if found is not None:
        notes.append(folder / f"{_digest(f'{found.st_dev}:{found.st_ino}'.encode())}.inode")
    return {note: _read(note) for note in notes}


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
    """Read a note; its content is remembered for as long as the file stays as it is."""
    try:
        found = os.stat(note)
        return _said(note, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    except FileNotFoundError:
        return None


@lru_cache(maxsize=1 << 14)
def _said(note: Path, *_: int) -> Claim:
    try:
        found = json.loads(read_regular(note, through_links=True))
        seen = [str(found.get(name, "")) for name in ("source", "stamp", "anchors")]
        return Claim(str(found["ledger"]), str(found["ledger_id"]), *seen)
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


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of one catalog, and where it is noted which ledger files are charged to.

    ``folders`` are that of the ledger's anchor and that of the user, where all catalogs meet;
    ``stored`` tells the files that hold the rows of a table, and the table within them, which is
    empty where it may be any.
    """

    catalog: Catalog
    folders: Sequence[Path]
    ledger: Path
    stored: Callable[[Table], tuple[tuple[str, ...], str]]

    def claim(self, opened: Mapping[str, Sequence[str]], ledger_id: str) -> None:
        """Note, before a charge, that the files of opened tables are charged to this ledger.

        Raises: CatalogError (E_POLICY) where another table over a file has a budget or a unit of
        its own, or is public; LedgerError (E_LEDGER_MISMATCH) where another ledger has it.
        """
        for name, paths in opened.items():
            for base in bases_of(self.catalog, [name]):
                self._refuse_shared(base)
            claim_sources(self.folders, paths, self.ledger, ledger_id)

    def refuse(self, opened: Mapping[str, Sequence[str]], ledger_id: str) -> None:
        """Refuse what ``claim`` would, and note nothing. Raises: as that."""
        for name, paths in opened.items():
            for base in bases_of(self.catalog, [name]):
                self._refuse_shared(base)
            refuse_claimed(self.folders, paths, Claim(str(self.ledger), ledger_id))

    def check_public(self, table: Table) -> None:
        """Refuse to read a table as public over a file that is private elsewhere.

        Raises: CatalogError (E_POLICY); LedgerError (E_LEDGER_MISMATCH).
        """
        self._refuse_shared(table)
        refuse_claimed(self.folders, self._files(table))

    def _refuse_shared(self, table: Table) -> None:
        for other in self.catalog.tables.values():
            problem = None if other.name == table.name else _contradiction(table, other)
            if problem is not None and self._share(table, other):
                names = f"{printable(table.name)!r} and {printable(other.name)!r}"
                raise CatalogError(
                    "E_POLICY",
                    f"the tables {names} are of one file, and {problem}",
                    hint="declare one table for the file, or both with the same privacy unit "
                    "and without budgets of their own",
                )

    def _share(self, one: Table, other: Table) -> bool:
        """True if two tables hold rows of the same file, and of the same table within it."""
        try:
            if self._places(one).isdisjoint(self._places(other)):
                return False
            within = {self.stored(one)[1], self.stored(other)[1]}
            return len(within) == 1 or "" in within
        except OperationalError:  # one that cannot be opened is compared when it can
            return False

    def _files(self, table: Table) -> tuple[str, ...]:
        """The names by which the rows of a table are claimed."""
        is_named = table.engine or is_stored(table.source)
        return self.stored(table)[0] if is_named else files_of(table.source)

    def _places(self, table: Table) -> set[tuple[int, int] | str]:
        """Return the files of a table as places on the disk, as names where they are not there."""
        found: set[tuple[int, int] | str] = set()
        for path in self._files(table):
            try:
                facts = os.stat(path)
            except OSError:
                found.add(path)
            else:
                found.add((facts.st_dev, facts.st_ino) if facts.st_ino else path)
        return found


def files_of(source: str) -> tuple[str, ...]:
    """The real paths of the files that a declared source matches now."""
    found = [source] if os.path.exists(source) else sorted(glob.glob(source, recursive=True))
    return tuple(dict.fromkeys(real_paths(found))) or (os.path.realpath(source),)


def _contradiction(one: Table, other: Table) -> str | None:
    """Tell why two tables must not be of one file; None where they may."""
    if one.public and other.public:
        return None
    if one.public or other.public:
        return "only one of them is public"
    if (one.unit.column, one.unit.name) != (other.unit.column, other.unit.name):
        return "they protect different privacy units"
    if one.budget is not None or other.budget is not None:
        return "a table's budget would be asked for twice"
    return None
