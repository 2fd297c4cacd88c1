"""Folders of tables of which a log says which files are a version: here, and in stores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from dpsql.files import ScratchFolder
from dpsql.privacy.vault.data_engine import Unreadable
from dpsql.privacy.vault.files.partitions import Values
from dpsql.privacy.vault.files.stores import copy_objects, list_folder
from dpsql.records import dataclass, field

LOGS = ("_delta_log", "metadata")
"""Folders within that of a table in which a log is."""
LATER = "a later version, whose files are still there"
RENAMED = (
    "columns of its files have other names by now, which files alone do not show",
    "write its rows anew, and state that version",
)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table: the form of its log, and the number that the curator states."""

    form: str
    number: str


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of a version, by their names within its folder, and what a log says of rows.

    ``apart`` are the columns that the log tells, ``told`` their values in each file, and
    ``families`` their types. Where a file lacks one of them the log has its values. Columns with
    ``ids`` are those of the version, by name; ``unnumbered`` are the ids of columns in files that
    say none. Without any, columns are those of the files.
    """

    names: tuple[str, ...]
    apart: tuple[str, ...] = ()
    told: tuple[Values, ...] = ()
    families: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, int] = field(default_factory=dict)
    unnumbered: Mapping[str, int] = field(default_factory=dict)

    def beside(self, paths: Sequence[str]) -> tuple[tuple[str, ...], tuple[Values, ...], set[str]]:
        """Return the columns that are in no file, their values, and those that no version has.

        Args:
            paths: where the files are, in the order of ``names``.

        Raises: Unreadable where a column of a file has another name than in the version; OSError.
        """
        if not self.ids:
            return self.apart, self.told, set()
        present = {name: n for path in paths for name, n in self._numbered(path)}
        kept = [i for i, name in enumerate(self.apart) if name not in present]
        told = tuple(tuple(each[i] for i in kept) for each in self.told)
        return tuple(self.apart[i] for i in kept), told, present.keys() - self.ids.keys()

    def _numbered(self, path: str) -> Iterator[tuple[str, int | None]]:
        """Yield the columns of a Parquet file, with their ids."""
        from pyarrow.parquet import read_schema  # pyarrow is optional

        numbers = {*self.ids.values()}
        for each in read_schema(path):
            said = (each.metadata or {}).get(ID)
            number = self.unnumbered.get(each.name) if said is None else int(said)
            if self.ids.get(each.name) != number and (each.name in self.ids or number in numbers):
                raise Unreadable(*RENAMED)
            yield each.name, number


ID = b"PARQUET:field_id"


class TableFolder(Protocol):
    """The folder of a table whose log says which files are a version."""

    declared: str

    def names(self) -> Sequence[str]:
        """Return the names of the files of the log, among others. Raises: OSError."""

    def path(self, name: str) -> str:
        """Return where a file can be read. Raises: Unreadable, OSError."""

    def whole(self, log: str) -> AbstractContextManager[str]:
        """Have a folder with the files of a log in it. Raises: Unreadable, OSError."""


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, declared: str) -> None:
        self.declared = declared

    def names(self) -> Sequence[str]:
        return [
            f"{log.name}/{name}"
            for log in os.scandir(self.declared)
            if log.name in LOGS and log.is_dir()
            for name in os.listdir(log)
        ]

    def path(self, name: str) -> str:
        return os.path.realpath(os.path.join(self.declared, name))

    def whole(self, log: str) -> AbstractContextManager[str]:
        return nullcontext(self.declared)


class StoredFolder:
    """A folder of a store, whose files are copied when they are asked for."""

    def __init__(self, declared: str) -> None:
        self.declared = declared.rstrip("/")
        self.objects = list_folder(declared)

    def names(self) -> Sequence[str]:
        return [*self.objects]

    def path(self, name: str) -> str:
        if name not in self.objects:
            raise Unreadable("files of its log have gone", LATER)
        return copy_objects([self.objects[name]])[0].path

    @contextmanager
    def whole(self, log: str) -> Iterator[str]:
        logs = {name: each for name, each in self.objects.items() if name.startswith(f"{log}/")}
        with ScratchFolder("dpsql-log-") as folder:
            copies = copy_objects(list(logs.values()))
            for name, copy in zip(logs, copies, strict=True):
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                shutil.copyfile(copy.path, path)
            yield str(folder)
