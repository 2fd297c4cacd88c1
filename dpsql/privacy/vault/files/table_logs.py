"""Forms of logs of tables: which folders have one, and how it is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from dpsql.privacy.vault.files import delta, iceberg
from dpsql.privacy.vault.files.table_folders import LocalFolder, TableFolder, VersionFiles
from dpsql.records import dataclass


@dataclass(frozen=True, slots=True)
class LogForm:
    """A form of logs: whose they are, whether a file is of one by its name, and what one says.

    ``log`` is the folder of a log within that of its table. Files of a version are listed by its
    number, and ``newest`` finds that of the last one.
    """

    title: str
    log: str
    is_there: Callable[[str], bool]
    list_files: Callable[[TableFolder, str, str], VersionFiles]
    newest: Callable[[TableFolder, str], int]


FORMS: Mapping[str, LogForm] = {
    "delta": LogForm(
        "a Delta table",
        delta.LOG,
        lambda name: name.startswith(f"{delta.LOG}/"),
        delta.list_delta,
        delta.newest_version,
    ),
    "iceberg": LogForm(
        "an Iceberg table",
        iceberg.LOG,
        lambda name: bool(iceberg.WRITTEN.fullmatch(name)),
        iceberg.list_iceberg,
        iceberg.newest_snapshot,
    ),
}
"""The forms, by the words of the catalog."""


def log_of(names: Sequence[str]) -> str | None:
    """Return the form of the log of a folder, by the names of its files; None where it has none."""
    return next((key for key, form in FORMS.items() if any(map(form.is_there, names))), None)


def log_in(folder: str) -> str | None:
    """Return the form of the log of a folder of this machine."""
    try:
        return log_of(LocalFolder(folder).names()) if os.path.isdir(folder) else None
    except OSError:
        return None
