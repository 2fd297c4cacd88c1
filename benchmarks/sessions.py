"""What a session costs on a long ledger: ``python -m benchmarks.sessions [ENTRIES ...]``.

Prints, for ledgers of 1e2, 1e4 and 1e6 entries unless others are named, the seconds of CPU in which
a process verifies the ledger, which it does once, and the milliseconds of CPU of what a session
does later: it begins and ends, and is told its budget.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import duckdb

from dpsql.catalog import Catalog
from dpsql.dbapi.site import Site, open_site
from dpsql.privacy import ledger_file
from dpsql.privacy.accounting import laplace_cost
from dpsql.privacy.anchor import Anchor
from dpsql.privacy.chain import debit_entry
from dpsql.privacy.curator import ledger_files, open_ledger

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
LENGTHS = (100, 10_000, 1_000_000)
TIMES = 40
"""Sessions that are begun, and budgets that are told."""


def main(lengths: tuple[int, ...]) -> None:
    """Print one line for each length."""
    print(f"{'entries':>10}{'verified, s':>14}{'a session, ms':>16}{'SHOW budget, ms':>18}")
    for entries in lengths:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "t.toml"
            path.write_text(CATALOG)
            duckdb.sql(f"COPY (SELECT 1 AS size) TO '{name}/t.parquet' (FORMAT parquet)")
            lengthen(path, entries)
            start = time.process_time()
            site = open_site(path)
            verified = time.process_time() - start
            begun = _least(_begin, site)
            with site.connect("ana") as ana:
                told = _least(ana.execute, "SHOW budget")
            site.close()
        print(f"{entries:10}{verified:14.2f}{begun * 1e3:16.2f}{told * 1e3:18.2f}", flush=True)


def lengthen(path: Path, entries: int) -> None:
    """Charge so many small requests of one analyst to the ledger of a catalog, and anchor it."""
    catalog = Catalog.load(path)
    ledger = open_ledger(catalog, path.parent / "anchors")
    cost, state = laplace_cost(ledger.policy, Fraction(1, 10**6)), ledger.check()
    ledger.close()
    file, anchor = ledger_files(catalog)
    with ledger_file.connect(file) as db:
        db.execute("BEGIN IMMEDIATE")
        for _ in range(entries):
            entry = debit_entry(state.seq + 1, cost, "plan", "data", ("analyst:ana",))
            linked = entry.seal(state.head)
            state = state.after(linked)
            ledger_file.append(db, linked, state.spent)
        db.execute("COMMIT")
    Anchor(state.ledger_id, state.seq, state.head).write(anchor, file)


def _begin(site: Site) -> None:
    site.connect("ana").close()


def _least(work: Callable[..., object], *given: object) -> float:
    """The least seconds of CPU of what is done some times."""
    found = []
    for _ in range(TIMES):
        start = time.process_time()
        work(*given)
        found.append(time.process_time() - start)
    return min(found)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or LENGTHS)
