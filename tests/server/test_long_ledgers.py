"""Acts that take no longer with a longer ledger: only what was appended since is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpsql.dbapi.connection import raise_budget
from dpsql.dbapi.site import Site, open_site
from dpsql.errors import LedgerError
from dpsql.privacy.budget import ledger_file
from dpsql.privacy.budget.accounting import laplace_cost
from dpsql.privacy.budget.curator_acts import verify_ledger
from dpsql.server.server import Server
from tests.support.served import Client, kinds, served, write_served

LENGTHS = (5, 60)


class Counted:
    """How many entries of ledgers have been read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries = 0
        after, at = ledger_file.entries_after, ledger_file.entry_at

        def counted(db: Any, seq: int) -> Iterator[Any]:
            for entry in after(db, seq):
                self.entries += 1
                yield entry

        def counted_one(db: Any, seq: int) -> Any:
            self.entries += 1
            return at(db, seq)

        monkeypatch.setattr(ledger_file, "entries_after", counted)
        monkeypatch.setattr(ledger_file, "entry_at", counted_one)

    def during(self, act: Callable[..., object], *given: object) -> int:
        """How many an act reads."""
        before = self.entries
        act(*given)
        return self.entries - before


def lengthen(site: Site, entries: int) -> None:
    """Charge so many requests of an analyst, of nearly nothing."""
    ledger = site.engine.ledger
    for k in range(entries):
        cost = laplace_cost(ledger.policy, Fraction(1, 10**6))
        ledger.debit(cost, f"plan {k}", "none", ("analyst:ana",))


def ask(server: Server, *asked: str) -> None:
    """Sign in, and ask."""
    with Client(server.port) as client:
        assert client.start()[-1][0] == b"Z"
        for sql in ("SET epsilon = 0.001", *asked):
            assert "E" not in kinds(client.ask(sql)), sql


ACTS: dict[str, tuple[str, ...]] = {
    "sign in": (),
    "budget": ("SHOW budget",),
    "forecast": ("EXPLAIN SELECT COUNT(*) FROM t WHERE size > 3",),
    "pay": ("SELECT kind, COUNT(*) FROM t GROUP BY kind",),
    "ask again": ("SELECT kind, COUNT(*) FROM t GROUP BY kind",) * 2,
    "reconstruct": ("SELECT COUNT(*) FROM t WHERE kind = 'x'",),
}


def test_what_an_act_reads_of_the_ledger_is_the_same_whatever_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    found = []
    for entries in LENGTHS:
        folder = tmp_path / str(entries)
        folder.mkdir()
        catalog = write_served(folder)
        with served(catalog) as server:
            lengthen(server.databases.first.site, entries)
            read = {name: counted.during(ask, server, *ACTS[name]) for name in ACTS}
            raise_budget(catalog, Fraction(200))  # the curator's own process reads all of it
            read["sign in after a raise"] = counted.during(ask, server, "SHOW budget")
            found.append(read)
            least = counted.during(verify_ledger, catalog)
        assert least > entries
    assert found[0] == found[1]
    assert max(found[0].values()) < LENGTHS[1]


def test_a_session_counts_its_own_requests(tmp_path: Path) -> None:
    site = open_site(write_served(tmp_path))
    with site.connect("ana") as ana, site.connect("bo") as bo:
        lengthen(site, 3)
        bo.set("epsilon", "0.001")
        bo.execute("SELECT COUNT(*) FROM t")
        told = {who.analyst: dict(who.execute("SHOW budget").fetchall()) for who in (ana, bo)}
        assert (told["ana"]["requests"], told["bo"]["requests"]) == ("3", "1")
    with site.connect("ana") as again:
        assert dict(again.execute("SHOW budget").fetchall())["requests"] == "3"
    site.close()


def test_damage_to_what_is_appended_is_seen_by_whoever_signs_in(tmp_path: Path) -> None:
    catalog = write_served(tmp_path)
    site = open_site(catalog)
    lengthen(site, 2)
    with ledger_file.connect(catalog.with_suffix(".ledger")) as db:
        db.execute(
            "INSERT INTO entry SELECT seq + 1, kind, id || 'x', at, epsilon_units, "
            "renyi_units, noise, epsilon, rho, plan_hash, data_version, within, detail, "
            "state, hash FROM entry WHERE seq = 2"
        )
    with pytest.raises(LedgerError, match="E_LEDGER_TAMPERED"):
        site.connect("ana")
    site.close()


def test_another_ledger_in_its_place_is_not_taken_for_what_was_verified(tmp_path: Path) -> None:
    catalog = write_served(tmp_path)
    ledger = catalog.with_suffix(".ledger")
    site = open_site(catalog)
    old = ledger.read_bytes()
    lengthen(site, 2)
    ledger.write_bytes(old)
    with pytest.raises(LedgerError, match="E_LEDGER_ROLLBACK"):
        site.connect("ana")
    site.close()
