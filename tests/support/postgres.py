"""A PostgreSQL server for tests: that of a wheel, or the machine's own by DPSQL_TEST_POSTGRES.

All workers of a run share one; each has a database of its own, which is dropped in the end.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dpsql.privacy.vault.files.database import quote

Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Server:
    """A database in which a test may do anything; ``address`` is that of its owner."""

    address: str

    def run(self, *statements: str) -> None:
        """Run statements as the owner."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def ask(self, statement: str) -> Any:
        """The one value that a statement gives."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            found = connection.execute(statement.encode()).fetchone()
        return None if found is None else found[0]

    def store(self, name: str, columns: dict[str, str], rows: Rows) -> None:
        """Create a table anew, and write rows of texts or values."""
        listed = ", ".join(f"{quote(column)} {kind}" for column, kind in columns.items())
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {name}".encode())
            connection.execute(f"CREATE TABLE {name} ({listed})".encode())
        self.copy(name, [*columns], rows)

    def copy(self, name: str, columns: Sequence[str], rows: Rows) -> None:
        """Write rows of texts or values into some columns of a table."""
        into = f"COPY {name} ({', '.join(map(quote, columns))}) FROM STDIN"
        with (
            psycopg.connect(self.address, autocommit=True) as connection,
            connection.cursor().copy(into.encode()) as copy,
        ):
            for row in rows:
                copy.write_row(row)

    def role(self, name: str, grants: Sequence[str] = ()) -> str:
        """Create a role that may connect, and return its address; %s in grants is the role."""
        full = f"{name}_{uuid.uuid4().hex[:8]}"
        self.run(f"CREATE ROLE {full} LOGIN PASSWORD 'secret'", *(g % full for g in grants))
        return self.at(user=full, password="secret")

    def end_sessions(self) -> None:
        """End every other session in the database."""
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    def at(self, **parts: Any) -> str:
        """The address with other parts."""
        known: dict[str, Any] = {**conninfo_to_dict(self.address), **parts}
        return make_conninfo(**known)


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Start a server, or find the one that other workers started, and create a database."""
    given = os.environ.get("DPSQL_TEST_POSTGRES")
    if given is not None:
        yield from _database(given)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs warns where no runtime folder is set
        from pgserver import postgres_server  # a server, started where a test asks for one
    started = postgres_server.get_server(folder, cleanup_mode="delete")
    try:
        yield from _database(re.sub(r"://postgres:@/", "://postgres@/", started.get_uri()))
    finally:
        started.cleanup()


@contextmanager
def standby(primary: Server) -> Iterator[Server]:
    """Start a replica on this machine that follows a server and can only be read."""
    binaries = Path(primary.ask("SELECT setting FROM pg_config WHERE name = 'BINDIR'"))
    owner = Path(primary.ask("SHOW data_directory")).owner()
    folder = Path(tempfile.mkdtemp(prefix="dpsql-standby-"))
    shutil.chown(folder, owner)
    data = folder / "data"

    def run(program: str, *args: str) -> None:
        command = [f"{binaries / program}", "-D", f"{data}", *args]
        as_owner = owner if os.getuid() == 0 else None
        null = subprocess.DEVNULL
        subprocess.run(
            command, check=True, timeout=120, user=as_owner, cwd="/", stdout=null, stderr=null
        )

    try:
        run("pg_basebackup", "-d", primary.address, "-R", "-X", "stream", "-c", "fast")
        run("pg_ctl", "-w", "-o", f"-h '' -k {folder}", "-l", f"{folder}/log", "start")
        found = Server(primary.at(host=f"{folder}"))
        written = primary.ask("SELECT pg_current_wal_lsn()")
        while not found.ask(f"SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn"):
            time.sleep(0.05)
        yield found
    finally:
        with suppress(subprocess.SubprocessError):
            run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)


def _database(address: str) -> Iterator[Server]:
    name = f"dpsql_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(address, autocommit=True) as connection:
        quoted = sql.Identifier(name)
        connection.execute(sql.SQL("CREATE DATABASE {}").format(quoted))
        try:
            yield Server(Server(address).at(dbname=name))
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(quoted))


def short_folder() -> Path:
    """A folder whose name is short enough for a socket, shared by the workers of one run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return Path(tempfile.gettempdir()) / f"dpsql-pg-{run[:12]}"
