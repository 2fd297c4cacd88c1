"""Permissions of files that a server needs: nobody else on the machine reads data or passwords."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dpsql.dbapi.site import Site
from dpsql.errors import UsageError
from dpsql.server.users import Users


def refuse_open_files(site: Site, users: Users) -> None:
    """Refuse to serve data or passwords that anybody on this machine could read.

    Raises: UsageError (E_PERMISSIONS).
    """
    for path in (*sources_of(site), users.path):
        if is_open(path):
            what = f"{path} can be read by everybody on this machine"
            raise UsageError("E_PERMISSIONS", what, hint=f"chmod o-rwx {path}")


def sources_of(site: Site) -> list[Path]:
    """The files that hold rows of private tables, as far as rows are in files."""
    found = []
    for table in site.catalog.tables.values():
        if not table.public:
            found += [Path(each) for each in site.engine.stored_in(table)]
    return found


def is_open(path: Path) -> bool:
    """True if others may read a file, and reach it through its folders."""
    try:
        if not stat.S_IMODE(os.stat(path).st_mode) & stat.S_IROTH:
            return False
        return all(os.stat(folder).st_mode & stat.S_IXOTH for folder in path.resolve().parents)
    except OSError:
        return False
