"""A replica that can only be read: the same answers, one ledger with its primary, nothing kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql
from dpsql.errors import DataUnavailable, LedgerError
from tests.privacy.test_postgresql_server import COUNT, KEPT, UNITS, catalog
from tests.support.postgres import Server, standby
from tests.support.seam import zero_noise


@pytest.fixture(scope="module")
def replica(started: Server) -> Iterator[Server]:
    started.run("DROP SCHEMA IF EXISTS clinic CASCADE", "CREATE SCHEMA clinic")
    rows = [(f"p{i % 30}", "ABC"[i % 3], i * 7 % 99) for i in range(300)]
    started.store("clinic.visits", {"who": "text", "ward": "text", "age": "int"}, rows)
    with standby(started) as found:
        yield found


@pytest.mark.parametrize("read", ["stream", "push"])
def test_a_replica_is_read_and_counted_without_a_table_of_its_own(
    read: str, replica: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLINIC_DSN", replica.address)
    asked = "SELECT count(DISTINCT who) FROM clinic.visits WHERE age >= 40 AND ward = 'A'"
    with zero_noise(), dpsql.connect(catalog(tmp_path, read), epsilon=1) as connection:
        assert replica.ask("SELECT pg_is_in_recovery()")
        assert dict(connection.execute(COUNT).result.rows) == {"A": 100, "B": 100, "other": 100}
        assert dict(connection.execute(UNITS).result.rows)["A"] == replica.ask(asked)
        assert replica.ask(KEPT) == 0


def test_a_replica_has_the_ledger_of_its_primary(
    replica: Server, started: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, address in (("one", started.address), ("two", replica.address)):
        monkeypatch.setenv("CLINIC_DSN", address)
        (tmp_path / name).mkdir()
        path = catalog(tmp_path / name)
        with dpsql.connect(path, epsilon=1) as connection:
            if name == "one":
                connection.execute(COUNT)
                continue
            with pytest.raises((LedgerError, DataUnavailable)) as caught:
                connection.execute(COUNT)
            assert caught.value.code == "E_LEDGER_MISMATCH"
