"""What a session costs on a long ledger: ``python -m benchmarks.sessions [ENTRIES ...]``.

Prints, for ledgers of 2e3, 1.2e4 and 1e6 entries unless others are named, the seconds of CPU in
which a process opens the ledger, from its newest checkpoint, and verifies all of it, and the
milliseconds of CPU of what a session does later: it begins and ends, by itself and with a client
that signs in by a password, and is told its budget.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import duckdb
import psycopg

from dpsql.catalog.read import read_catalog
from dpsql.dbapi.site import Site, open_site
from dpsql.privacy.budget import ledger_file
from dpsql.privacy.budget.accounting import laplace_cost
from dpsql.privacy.budget.anchor import Anchor
from dpsql.privacy.budget.curator_acts import ledger_files, open_ledger
from dpsql.privacy.budget.hash_chain import CHECKPOINTS, debit_entry
from dpsql.server.address import Address
from dpsql.server.databases import Database, Databases
from dpsql.server.server import Server
from dpsql.server.users import Users

CATALOG = """
[budget]
epsilon = 100

[ledger]
anchor = "anchors"

[analyst.ana]
epsilon = 50

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
size = { type = "integer", domain = [0, 9] }
"""
LENGTHS = (1_999, 11_999, 1_001_999)
"""Entries: as many after the newest checkpoint as there may be."""
TIMES = 40
"""Sessions that are begun, and budgets that are told."""


def main(lengths: tuple[int, ...]) -> None:
    """Print one line for each length."""
    heads = ("opened, s", "verified, s", "a session, ms", "SHOW budget, ms", "a sign-in, ms")
    print(f"{'entries':>10}" + "".join(f"{head:>18}" for head in heads))
    for entries in lengths:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "t.toml"
            path.write_text(CATALOG)
            duckdb.sql(f"COPY (SELECT 1 AS size) TO '{name}/t.parquet' (FORMAT parquet)")
            lengthen(path, entries)
            start = time.process_time()
            site = open_site(path)
            opened = time.process_time() - start
            verified = _least(site.engine.ledger.verify, times=1)
            begun = _least(_begin, site)
            with site.connect("ana") as ana:
                told = _least(ana.execute, "SHOW budget")
            signed_in = _served(site, Path(name))
        found = (
            f"{opened:18.2f}",
            f"{verified:18.2f}",
            f"{begun * 1e3:18.2f}",
            f"{told * 1e3:18.2f}",
            f"{signed_in * 1e3:18.2f}",
        )
        print(f"{entries:10}" + "".join(found), flush=True)


def lengthen(path: Path, entries: int) -> None:
    """Charge so many small requests of one analyst to the ledger of a catalog, and anchor it."""
    catalog = read_catalog(path)
    ledger = open_ledger(catalog, path.parent / "anchors")
    cost, state = laplace_cost(ledger.policy, Fraction(1, 10**6)), ledger.check()
    ledger.close()
    file, anchor = ledger_files(catalog)
    with ledger_file.connect(file) as db:
        db.execute("BEGIN IMMEDIATE")
        for _ in range(entries):
            is_due = (state.seq + 1) % CHECKPOINTS == 0
            debit = debit_entry(state.seq + 1, cost, "plan", "data", ("analyst:ana",))
            linked = (state.checkpoint() if is_due else debit).seal(state.head)
            state = state.after(linked)
            ledger_file.append(db, linked, state.spent)
        db.execute("COMMIT")
    Anchor(state.ledger_id, state.seq, state.head).write(anchor, file)


def _served(site: Site, folder: Path) -> float:
    """The seconds of CPU of a sign-in, of server and client, after which the site is closed."""
    users = Users(folder / "t.users")
    users.put("ana", "secret", new=True)
    server = Server(Databases(Database("t", site, users)), Address("127.0.0.1", 0))
    threading.Thread(target=server.serve, daemon=True).start()
    dsn = f"host=127.0.0.1 port={server.port} user=ana password=secret dbname=t"
    try:
        return _least(lambda: psycopg.connect(f"{dsn} options='-c epsilon=1'").close())
    finally:
        server.close()


def _begin(site: Site) -> None:
    site.connect("ana").close()


def _least(work: Callable[..., object], *given: object, times: int = TIMES) -> float:
    """The least seconds of CPU of what is done some times."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work(*given)
        found.append(time.process_time() - start)
    return min(found)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or LENGTHS)
