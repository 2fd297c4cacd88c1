"""While a run looks for long, others count rows of the same table and pay, in one order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dpsql.dbapi.site import Site, open_site
from dpsql.errors import DataUnavailable
from tests.support.paused import WAIT, Paused
from tests.support.served import write_served

CREATE = (
    "CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 1, model = 'mwem', rounds = 1)"
    " FOR (SELECT kind, COUNT(*) FROM t GROUP BY kind)"
)


def _create(site: Site, failed: list[BaseException]) -> None:
    try:
        with site.connect("ana") as connection:
            connection.execute(CREATE)
    except BaseException as error:
        failed.append(error)


def test_others_do_not_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paused = Paused(monkeypatch)
    site = open_site(write_served(tmp_path))
    failed: list[BaseException] = []
    runner = threading.Thread(target=_create, args=(site, failed))
    runner.start()
    try:
        assert paused.begun.wait(WAIT), failed
        with site.connect("bo") as other:
            asked = threading.Thread(target=other.execute, args=("SELECT COUNT(*) FROM t",))
            other.set("epsilon", "0.5")
            asked.start()
            asked.join(WAIT)
            assert not asked.is_alive()
            paused.go.set()
            runner.join(WAIT)
            assert failed == []
            spent = [(e.epsilon, e.state) for e in other.entries() if e.kind == "debit"]
            assert spent == [("1", "released"), ("1/2", "released")]
            assert len(other.execute("SELECT COUNT(*) FROM s").fetchall()) == 1
    finally:
        paused.go.set()
        runner.join(WAIT)
        site.close()


def test_data_that_have_changed_are_refused_before_any_charge(tmp_path: Path) -> None:
    site = open_site(write_served(tmp_path))
    try:
        with site.connect("ana") as connection:
            connection.set("epsilon", "0.5")
            connection.execute("SELECT COUNT(*) FROM t")
            data = tmp_path / "t.parquet"
            data.write_bytes(data.read_bytes() + b" ")
            with pytest.raises(DataUnavailable):
                connection.execute(CREATE)
            assert len([e for e in connection.entries() if e.kind == "debit"]) == 1
    finally:
        site.close()
