"""Folders of tables of which a log says which files are a version: here, and in stores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from dpsql.files import ScratchFolder
from dpsql.privacy.vault.data_engine import Unreadable
from dpsql.privacy.vault.files.stores import copy_objects, list_folder
from dpsql.records import dataclass, field

LOGS = ("_delta_log", "metadata")
"""Folders within that of a table in which a log is."""
LATER = "a later version, whose files are still there"


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table: the form of its log, and the number that the curator states."""

    form: str
    number: str


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of a version, by their names within its folder, and what a log says of rows.

    ``families`` are those of the columns that the version has, by name. Where a file lacks one, all
    of its rows have the value that is ``told`` of the file, else NULL; ``filled`` are columns that
    have another value there. Columns with ``ids`` are found by them, by the formats' own rule;
    ``unnumbered`` are the ids of columns in files that say none.
    """

    names: tuple[str, ...]
    families: Mapping[str, str]
    told: tuple[Mapping[str, str | None], ...]
    ids: Mapping[str, int] = field(default_factory=dict)
    unnumbered: Mapping[str, int] = field(default_factory=dict)
    filled: frozenset[str] = frozenset()


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
