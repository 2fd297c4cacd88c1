"""An empty PostgreSQL of the server's own: the system's, or that of the package ``pgserver``.

The package has binaries for few platforms and of one release; the system's are mended by whoever
keeps the system. So that of the system comes first where it is as new as what the wire speaks, and
an older one where there is no package. No rows are ever in it.
"""

from __future__ import annotations

import logging
import os
import resource
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from dpsql.errors import OperationalError, UsageError
from dpsql.records import dataclass

MEMORY = 1 << 30
"""Bytes of the address space of each process."""
SECONDS = 60
"""Most seconds that the server may take to start, or to stop."""
STEP = 0.02
"""Seconds between looks at whether the server has stopped."""
SPOKEN, OLDEST = 16, 14
"""The release whose catalogs the wire speaks of, and the oldest that answers its questions."""
FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
"""Folders in which packages of systems put the programs of a release."""
PROGRAMS = ("initdb", "pg_ctl", "postgres")
OWNERS = ("postgres", "nobody")
"""Users whose PostgreSQL is, in place of root, as which none starts."""
FAILED = (subprocess.SubprocessError, OSError, AssertionError)
HINT = (
    "install PostgreSQL, or pip install 'dpsql[server]', or name one by --twin DSN, or --twin off"
)


class OwnPostgres(Protocol):
    """Programs that make and start a PostgreSQL in a folder."""

    def start(self, folder: Path) -> str:
        """Start it, or see that it runs; return its DSN. Raises: OperationalError (E_TWIN)."""


def is_running(folder: Path) -> bool:
    """True if a PostgreSQL runs in a folder, whoever has started it."""
    return _process_in(folder) is not None


def end_postgres(folder: Path) -> None:
    """End what runs in a folder at once, and remove it, whatever a process that died has left."""
    process = _process_in(folder)
    if process is not None:
        with suppress(OSError):
            os.kill(process, signal.SIGQUIT)
        for _ in range(500):
            if not is_running(folder):
                break
            time.sleep(STEP)
    shutil.rmtree(folder, ignore_errors=True)


def _process_in(folder: Path) -> int | None:
    """The process that a folder names as its own, unless that number is another's by now."""
    try:
        process = int((folder / "postmaster.pid").read_text().split()[0])
        os.kill(process, 0)
    except (OSError, ValueError, IndexError):
        return None
    try:
        works_in = Path(f"/proc/{process}/cwd").readlink()
    except OSError:  # it has ended, and nobody has taken note; or there is no such file system
        return process
    return process if works_in == folder.resolve() else None


@dataclass(frozen=True, slots=True)
class SystemPostgres:
    """A PostgreSQL that the system has.

    Args:
        programs: the folder of its programs.
        release: its major version.
    """

    programs: Path
    release: int

    def start(self, folder: Path) -> str:
        """As :meth:`OwnPostgres.start` says."""
        try:
            if not (folder / "PG_VERSION").exists():
                owner = _owner()
                if owner is not None:
                    shutil.chown(folder, *owner)
                trusting = ("--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
                self._run("initdb", folder, *trusting, "--username=postgres").check_returncode()
            if not is_running(folder):
                where, log = f"-h '' -k '{folder}'", str(folder / "log")
                started = self._run("pg_ctl", folder, "-w", "-o", where, "-l", log, "start")
                started.check_returncode()
        except FAILED:
            raise OperationalError("E_TWIN", "the twin cannot be started") from None
        _limit(folder)
        return f"host={folder} user=postgres dbname=postgres"

    def _run(self, program: str, folder: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
        user, group = _owner() or (None, None)
        return subprocess.run(
            [self.programs / program, "-D", folder, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
            cwd="/",
            user=user,
            group=group,
            extra_groups=None if user is None else [],
        )


@dataclass(frozen=True, slots=True)
class PackagedPostgres:
    """The PostgreSQL of the package ``pgserver``."""

    def start(self, folder: Path) -> str:
        """As :meth:`OwnPostgres.start` says."""
        from pgserver.postgres_server import get_server  # of the extra dpsql[server]

        try:
            server = get_server(folder, cleanup_mode=None)
            server.ensure_postgres_running()
        except FAILED:
            raise OperationalError("E_TWIN", "the twin cannot be started") from None
        _limit(folder)
        return str(server.get_uri())


def find_postgres() -> OwnPostgres:
    """Return the PostgreSQL that a twin is made with. Raises: UsageError (E_TWIN) without one."""
    system = max(_releases(), key=lambda each: each.release, default=None)
    if system is not None and system.release >= SPOKEN:
        return system
    try:
        with warnings.catch_warnings():  # where nobody has logged in there is no runtime folder
            warnings.simplefilter("ignore")
            import pgserver.postgres_server  # noqa: F401  PostgreSQL as a package
    except ImportError:
        if system is not None:
            return system
        what = f"the twin needs a PostgreSQL, from {OLDEST} on"
        raise UsageError("E_TWIN", what, hint=HINT) from None
    logging.getLogger("pgserver").setLevel(logging.WARNING)
    return PackagedPostgres()


def _releases() -> Iterator[SystemPostgres]:
    """The releases that this system has."""
    folders = {each for pattern in FOLDERS for each in Path("/").glob(pattern[1:])}
    config = shutil.which("pg_config")
    if config is not None:
        with suppress(*FAILED):
            folders.add(Path(_said([config, "--bindir"]).strip()))
    for folder in sorted(folders):
        if not all((folder / each).exists() for each in PROGRAMS):
            continue
        with suppress(*FAILED, ValueError, IndexError):  # "postgres (PostgreSQL) 16.2 (Debian ...)"
            said = _said([folder / "postgres", "--version"])
            release = int(said.split(")", 1)[1].split()[0].split(".")[0])
            if release >= OLDEST:
                yield SystemPostgres(folder, release)


def _said(command: list[str | Path]) -> str:
    found = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    return found.stdout


def _owner() -> tuple[int, int] | None:
    """The user and the group whose it is; None where that is who asks."""
    if os.geteuid():
        return None
    from pwd import getpwnam

    for name in OWNERS:
        with suppress(KeyError):
            found = getpwnam(name)
            return found.pw_uid, found.pw_gid
    return None


def _limit(folder: Path) -> None:
    """Limit its memory, and that of the processes that it starts later, on Linux."""
    process = _process_in(folder)
    if process is not None and hasattr(resource, "prlimit"):
        with suppress(OSError, ValueError):
            resource.prlimit(process, resource.RLIMIT_AS, (MEMORY, MEMORY))
