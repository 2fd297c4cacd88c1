"""OpenTelemetry: events and metrics of a server, sent to a collector over OTLP and HTTP.

A library builds, batches and sends them in threads of its own: no session waits for a collector,
and what it does not take in time is dropped. What is sent are the facts of ``events`` and the
numbers of ``metrics``, nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from dpsql import __version__
from dpsql.errors import UsageError, printable
from dpsql.server.events import Metric, log, shown

TIMEOUT = 5.0
"""Seconds after which a collector that does not answer is given up, and a server can stop."""


def check_collector(url: str) -> None:
    """Look at where a collector is said to be, and whether the library is there.

    Raises: UsageError (E_LISTEN).
    """
    where = urlsplit(url)
    if where.scheme not in ("http", "https") or not where.netloc:
        what = f"--otlp {printable(url)} is no URL"
        raise UsageError("E_LISTEN", what, hint="--otlp http://127.0.0.1:4318")
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk._logs
        import opentelemetry.sdk.metrics  # noqa: F401, all that is needed
    except ImportError:
        what = "--otlp needs OpenTelemetry"
        raise UsageError("E_LISTEN", what, hint="pip install 'dpsql[otel]'") from None


class Telemetry:
    """Sends events and metrics to a collector until it is closed.

    Args:
        url: where the collector is, as ``http://127.0.0.1:4318``; headers, certificates, intervals
            and further attributes are read from OpenTelemetry's own variables (``OTEL_...``).
        database: the name of what is served.
        metrics: works out all metrics.

    Raises: UsageError (E_LISTEN), as ``check_collector`` does.
    """

    def __init__(self, url: str, database: str, metrics: Callable[[], Sequence[Metric]]) -> None:
        check_collector(url)
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource

        facts = {"service.name": "dpsql", "service.version": __version__, "db.namespace": database}
        resource, base = Resource.create(facts), url.rstrip("/")
        self._logs = LoggerProvider(resource, shutdown_on_exit=False)
        logs = OTLPLogExporter(f"{base}/v1/logs", timeout=TIMEOUT)
        self._logs.add_log_record_processor(BatchLogRecordProcessor(logs))
        sent = OTLPMetricExporter(f"{base}/v1/metrics", timeout=TIMEOUT)
        reader = PeriodicExportingMetricReader(sent, export_timeout_millis=1000 * TIMEOUT)
        self._meters = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._metrics, self._lock = metrics, threading.Lock()
        self._known = {each.name: each for each in metrics()}
        self._first = next(iter(self._known), "")
        self._observe()
        self._handler = _Sender(self._logs)
        log.addHandler(self._handler)

    def _observe(self) -> None:
        from opentelemetry.metrics import CallbackOptions, Observation

        def observer(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
            def observed(_: CallbackOptions) -> Iterable[Observation]:
                return [Observation(value, dict(pairs)) for pairs, value in self._values(name)]

            return observed

        meter = self._meters.get_meter("dpsql", __version__)
        for name, metric in self._known.items():
            if metric.kind == "counter":  # a collector that speaks Prometheus adds "_total" itself
                meter.create_observable_counter(name.removesuffix("_total"), [observer(name)])
            else:
                meter.create_observable_gauge(name, [observer(name)])

    def _values(self, name: str) -> Sequence[tuple[Sequence[tuple[str, str]], float]]:
        with self._lock:
            if name == self._first:  # the library asks for one after another, in this order
                self._known |= {each.name: each for each in self._metrics()}
            return self._known[name].values

    def close(self) -> None:
        """Send what is left, and stop; a collector that does not answer is waited for in vain."""
        log.removeHandler(self._handler)
        self._logs.shutdown()
        self._meters.shutdown(1000 * TIMEOUT)


class _Sender(logging.Handler):
    """A handler that gives events to the library."""

    def __init__(self, provider: object) -> None:
        from opentelemetry.sdk._logs import LoggerProvider

        super().__init__()
        assert isinstance(provider, LoggerProvider)
        self._logger = provider.get_logger("dpsql", __version__)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue an event; lines that are none stay in the log."""
        from opentelemetry._logs import LogRecord, SeverityNumber

        told = getattr(record, "told", None)
        if told is None:
            return
        at, level = int(record.created * 1e9), record.levelname
        self._logger.emit(
            LogRecord(
                timestamp=at,
                observed_timestamp=at,
                severity_text=level,
                severity_number=SeverityNumber[{"WARNING": "WARN"}.get(level, level)],
                body=record.getMessage(),
                attributes={name: shown(value) for name, value in told.items()},
                event_name=f"dpsql.{told['event']}",
            )
        )
