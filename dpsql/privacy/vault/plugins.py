"""Data engines of other packages: found by entry point, and kept to what engines may say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Table
from dpsql.catalog.plugins import plugged
from dpsql.errors import Error, OperationalError, printable
from dpsql.privacy.vault.codes.byte_texts import ByteTexts
from dpsql.privacy.vault.codes.prefetch import read_in_thread
from dpsql.privacy.vault.data_engine import (
    TYPE_FAMILIES,
    VERSION,
    Batch,
    Flags,
    RequestedColumn,
    StoredTable,
    unavailable,
)
from dpsql.privacy.vault.dialect import Dialect
from dpsql.privacy.vault.files.source import Source
from dpsql.privacy.vault.servers.counter import Counter, as_counting
from dpsql.records import dataclass, replace

GROUP = "dpsql.data_engines"
"""The entry points by which other packages add engines: the name before :// of their sources."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PluggedEngine:
    """The engine of another package; whatever it raises that is no error of ours is withheld."""

    name: str
    found: Any
    version = VERSION

    def open(self, table: Table) -> PluggedTable:
        """Open a table, and check what the engine says of it.

        Raises: OperationalError (E_ENGINE), DataUnavailable.
        """
        stored = guarded(self.name, lambda: _described(self.name, self.found.open(table)))
        if stored is None:
            raise unusable(self.name, "it does not describe its tables as engines do")
        if table.option("read") == "push" and as_counting(stored) is None:
            problem = f"the engine {self.name!r} counts no rows where they are"
            unavailable(table.name, table.source, problem, 'leave out read = "push"')
        return stored


@dataclass(frozen=True, slots=True)
class PluggedTable:
    """A table that the engine of another package holds, as it described it when it was opened.

    Its ``source`` are batches of Arrow, where it has them. An engine that works out numbers of its
    own is asked for keys as it is for units, in a reading for each.
    """

    engine: str
    stored: StoredTable
    kind: str
    paths: tuple[str, ...]
    table: str
    columns: tuple[tuple[str, str], ...]
    untyped: bool
    source: Source | None = None
    types: tuple[tuple[str, str], ...] = ()

    def fingerprint(self) -> str:
        """Hash the engine's own fingerprint with its name. Raises: OSError, OperationalError."""
        found = guarded(self.engine, lambda: str(self.stored.fingerprint()))
        return hashlib.sha256(f"{self.engine} {found}".encode()).hexdigest()

    def read(self, asked: Sequence[RequestedColumn], unit: str | None) -> Iterator[Batch]:
        names = [each.column for each in asked if each.form == "key"]
        if self.source is not None or not names:
            return read_in_thread(self.stored.read(asked, unit))
        plain = [each for each in asked if each.form != "key"]
        keys = [_Units(self.stored.read([], name)) for name in names]
        return read_in_thread(_with_keys(self.stored.read(plain, unit), keys))

    def texts(self, column: str) -> Iterator[npt.NDArray[np.object_]]:
        return read_in_thread(self.stored.texts(column))


class CountedTable(PluggedTable):
    """One that its engine counts where it is; ``types`` are native ones, for the dialect."""

    __slots__ = ()

    def open_counter(self) -> CheckedCounter:
        counting: Any = self.stored
        found = guarded(self.engine, counting.open_counter)
        if not isinstance(found.dialect, Dialect):
            raise unusable(self.engine, "its counter has no dialect")
        return CheckedCounter(found)


class CheckedCounter:
    """The counter of another package, of which nothing but integers is taken."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self.dialect, self.relation = counter.dialect, counter.relation
        self.keep, self.close = counter.keep, counter.close

    def rows(self, select: str) -> Iterator[tuple[int, ...]]:
        for row in self._counter.rows(select):
            if not all(type(each) is int for each in row):
                raise ValueError("a count that is no integer")
            yield tuple(row)


class _Units:
    """The units of a reading, some rows at a time."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self._names: npt.NDArray[Any] = np.zeros(0, np.int64)
        self._known = np.zeros(0, np.bool_)

    def take(self, rows: int) -> tuple[npt.NDArray[Any], Flags]:
        """Return those of the next rows, (rows,), and where there is one. Raises: ValueError."""
        while len(self._known) < rows:
            self._fetch()
        taken = self._names[:rows], self._known[:rows]
        self._names, self._known = self._names[rows:], self._known[rows:]
        return taken

    def end(self) -> None:
        """Make sure that no row is left. Raises: ValueError."""
        if len(self._known) or any(batch.rows for batch in self._batches):
            raise ValueError(DIFFERENT)

    def _fetch(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            raise ValueError(DIFFERENT)
        batch.check([], by_unit=True)
        found = batch.units
        names = found.objects() if isinstance(found, ByteTexts) else np.asarray(found)
        self._names = np.concatenate([self._names, names]) if len(self._names) else names
        self._known = np.concatenate([self._known, np.asarray(batch.owned)])


DIFFERENT = "two readings of a table have different rows"


def _with_keys(batches: Iterator[Batch], keys: Sequence[_Units]) -> Iterator[Batch]:
    """Yield batches with keys beside them: all readings have the same order of rows."""
    for batch in batches:
        yield replace(batch, keys=[each.take(batch.rows) for each in keys])
    for each in keys:
        each.end()


def find_plugged(table: Table) -> PluggedEngine:
    """Return the installed engine that the source of a table names.

    Raises: DataUnavailable where there is none; OperationalError (E_ENGINE) for one that cannot be
    loaded, or is not written for this protocol.
    """
    name = table.engine or ""
    found = plugged(GROUP, name, unusable)
    if found is None:
        problem = f"no installed package has a data engine {name!r}"
        unavailable(table.name, table.source, problem, "install it, or give a file")
    version = getattr(found, "version", None)
    if version != VERSION:
        raise unusable(name, f"it is of version {printable(str(version))}, not of {VERSION}")
    return PluggedEngine(name, found)


def find_dialect(table: Table) -> tuple[Dialect, Callable[[str], str]] | None:
    """Return how the SQL of an installed engine that counts is written, and families of its types.

    None where it is not installed or says neither: a forecast opens nothing.
    """
    with suppress(OperationalError):
        found = find_plugged(table).found
        dialect, family_of = (getattr(found, each, None) for each in ("dialect", "family_of"))
        if isinstance(dialect, Dialect) and callable(family_of):
            return dialect, family_of
    return None


def _described(engine: str, stored: StoredTable) -> PluggedTable | None:
    """Return a table as it is described, None where that is not how engines describe one."""
    columns = tuple((name, family) for name, family in stored.columns)
    words = [stored.kind, stored.table, *stored.paths, *(name for name, _ in columns)]
    known = all(family in TYPE_FAMILIES for _, family in columns)
    if not known or not stored.paths or not all(isinstance(word, str) for word in words):
        return None
    facts = stored.kind, tuple(stored.paths), stored.table, columns, bool(stored.untyped)
    found = getattr(stored, "source", None)
    source = found if isinstance(found, Source) else None
    counting = as_counting(stored)
    if counting is None:
        return PluggedTable(engine, stored, *facts, source)
    types = tuple((str(name), str(native)) for name, native in counting.types)
    return CountedTable(engine, stored, *facts, source, types)


def guarded(engine: str, work: Callable[[], T]) -> T:
    """Run ``work``; what an engine raises of its own is told by one constant text."""
    try:
        return work()
    except (Error, OSError):
        raise
    except Exception:
        pass  # raised anew below, so that no trace of it is kept
    raise unusable(engine, "it fails to open a table; details are withheld")


def unusable(name: str, why: str) -> OperationalError:
    """Return the error for a data engine of an installed package that is not used."""
    return OperationalError(
        "E_ENGINE",
        f"the data engine {name!r} of an installed package cannot be used: {why}",
        hint="mend or remove that package, or give a file as source",
    )
