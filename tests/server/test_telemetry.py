"""A collector gets every event and every metric of a server, and no session waits for it."""

from __future__ import annotations

import builtins
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from dpsql.errors import UsageError
from dpsql.server.events import Events, Metric
from dpsql.server.metrics import metrics
from dpsql.server.telemetry import Telemetry
from tests.support.served import Client, served


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent, by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Sent)
        self.sent: list[tuple[str, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def logs(self) -> list[Any]:
        found = [
            ExportLogsServiceRequest.FromString(body) for path, body in self.sent if "logs" in path
        ]
        return [
            record
            for each in found
            for resource in each.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def values(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Values of metrics by name and labels; the last that were sent."""
        found = {}
        for path, body in self.sent:
            if "metrics" in path:
                each = ExportMetricsServiceRequest.FromString(body)
                for metric in each.resource_metrics[0].scope_metrics[0].metrics:
                    for point in [*metric.sum.data_points, *metric.gauge.data_points]:
                        labels = frozenset((x.key, x.value.string_value) for x in point.attributes)
                        found[metric.name, labels] = point.as_double or point.as_int
        return found


class Sent(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        self.server.sent.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def test_a_collector_gets_events_and_metrics(
    catalog: Path, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), served(catalog) as server:
        sent = Telemetry(f"{collector.url}/", "t", lambda: list(metrics(server)))
        with Client(server.port) as client:
            client.start()
            client.ask("SET epsilon = 0.5")
            client.ask("SELECT COUNT(*) FROM t")
            client.ask("SELECT nope FROM t")
            sent.close()
    events = {record.event_name: record for record in collector.logs()}
    assert {"dpsql.sign-in", "dpsql.charge", "dpsql.refusal"} <= set(events)
    charge = {x.key: x.value for x in events["dpsql.charge"].attributes}
    assert (charge["user"].string_value, charge["entry"].int_value) == ("ana", 1)
    assert "COUNT" not in str(collector.logs())
    found = collector.values()
    own = ("database", "clinic")
    assert found["dpsql_sessions", frozenset({own})] == 1
    assert found["dpsql_errors", frozenset({own, ("state", "42703")})] == 1
    assert found["dpsql_epsilon", frozenset({own, ("what", "remaining")})] == 99.5
    assert any(b"service.name" in body and b"dpsql" in body for _, body in collector.sent)


def test_a_collector_that_is_gone_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.server.telemetry.TIMEOUT", 0.2)
    events = Events()
    sent = Telemetry("http://127.0.0.1:9", "t", lambda: [Metric.one("dpsql_sessions", "gauge", 0)])
    for _ in range(10_000):  # more than are kept
        events.note("cancel", outcome="asked")
    sent.close()
    assert events.total("cancel") == 10_000


@pytest.mark.parametrize("url", ["collector:4318", "file:///etc/passwd", "", "http://"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is no URL"):
        Telemetry(url, "t", list)


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *given: Any, **named: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError) as refused:
        Telemetry("http://127.0.0.1:4318", "t", list)
    assert "dpsql[otel]" in str(refused.value.hint)
