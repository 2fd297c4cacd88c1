"""What an operator sees: public facts, and whether the ledger takes charges."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from dpsql.errors import UsageError
from dpsql.server.metrics import open_metrics
from tests.support.served import Client, served


def test_metrics_and_health(catalog: Path) -> None:
    with served(catalog) as server, Client(server.port) as client:
        client.start()
        client.ask("SET epsilon = 0.5")
        client.ask("SELECT COUNT(*) FROM t")
        client.ask("SELECT nope FROM t")
        http = open_metrics("127.0.0.1", 0, server)
        try:
            url = f"http://127.0.0.1:{http.server_address[1]}"
            with urllib.request.urlopen(f"{url}/metrics") as found:
                lines = found.read().decode().splitlines()
            assert {
                'dpsql_sessions{database="clinic"} 1',
                'dpsql_statements_total{database="clinic"} 3',
                'dpsql_errors_total{state="42703",database="clinic"} 1',
                'dpsql_charges_total{database="clinic"} 1',
                'dpsql_epsilon{database="clinic",what="remaining"} 99.5',
                'dpsql_epsilon{database="clinic",what="remaining",analyst="ana"} 89.5',
            } <= set(lines)
            with urllib.request.urlopen(f"{url}/health") as found:
                assert found.read() == b"ok\n"
            catalog.with_suffix(".ledger").rename(catalog.with_suffix(".gone"))
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{url}/health")
            assert refused.value.code == 503
            refused.value.close()
            catalog.with_suffix(".gone").rename(catalog.with_suffix(".ledger"))
            with pytest.raises(urllib.error.HTTPError) as missing:
                urllib.request.urlopen(f"{url}/t.parquet")
            assert missing.value.code == 404
            missing.value.close()
            with pytest.raises(UsageError, match="cannot listen"):
                open_metrics("127.0.0.1", http.server_address[1], server)
        finally:
            http.shutdown()
            http.server_close()
