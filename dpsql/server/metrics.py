"""Metrics for an operator: sessions, statements, refusals, the budget. Public facts only.

Source: the text format of Prometheus, version 0.0.4.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from dpsql.errors import Error, OperationalError, UsageError
from dpsql.server.arrivals import arrivals, name_of
from dpsql.server.events import Labels, Metric
from dpsql.server.places import ClientPlaces, hang_up
from dpsql.server.server import Server

TYPE = "text/plain; version=0.0.4; charset=utf-8"
Value = tuple[Labels, float]


def metrics(server: Server) -> Iterator[Metric]:
    """The metrics of a server, each of a database with its name."""
    here, charges, left = list[Value](), list[Value](), list[Value]()
    for database in server.databases:
        own = ("database", database.name)
        here.append(((own,), server.count(database)))
        try:
            status = database.site.engine.status()
        except Error:  # a ledger that is damaged is told by the health, not here
            continue
        charges.append(((own,), status.entries))
        left.append(((own, ("what", "total")), float(status.total_epsilon)))
        left.append(((own, ("what", "remaining")), float(status.remaining_epsilon)))
        for name, inner in sorted(status.nested.items()):
            kind, _, whose = name.partition(":")
            labels = own, ("what", "remaining"), (kind, whose)
            left.append((labels, float(inner.remaining_epsilon)))
    yield Metric("dpsql_sessions", "gauge", tuple(here))
    yield from server.events.metrics()
    if server.planning is not None:
        yield Metric.one("dpsql_planning_busy", "gauge", server.planning.busy)
        yield Metric.one("dpsql_planning_ended_total", "counter", server.planning.ended)
    yield Metric("dpsql_charges_total", "counter", tuple(charges))
    yield Metric("dpsql_epsilon", "gauge", tuple(left))


def lines(found: Iterable[Metric]) -> Iterator[str]:
    """Metrics in the text format of Prometheus.

    >>> list(lines([Metric("dpsql_epsilon", "gauge", (((("analyst", 'a"b'),), 9.5),))]))
    ['# TYPE dpsql_epsilon gauge', 'dpsql_epsilon{analyst="a\\\\"b"} 9.5']
    """
    for metric in found:
        yield f"# TYPE {metric.name} {metric.kind}"
        for labels, value in metric.values:
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            told = value if isinstance(value, int) else f"{value:g}"
            yield f"{metric.name}{'{' + pairs + '}' if pairs else ''} {told}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def unwell(server: Server) -> Iterator[str]:
    """Tell which of ledger, sources and twin cannot be used now; a twin that died is started."""
    for database in server.databases:
        engine, twin = database.site.engine, database.twin
        try:
            engine.ledger.check()
        except Error:
            yield f"{database.name}: the ledger is not usable"
        is_readable = engine.is_readable()
        events = server.events.bound(database=database.name)
        events.turn("source", "up" if is_readable else "down")
        if not is_readable:
            yield f"{database.name}: a source cannot be read: what was paid for is answered"
        if twin is not None and not twin.is_alive():
            yield f"{database.name}: the twin does not answer questions about catalogs"


def open_metrics(host: str, port: int, server: Server) -> ThreadingHTTPServer:
    """Answer ``/metrics`` and ``/health`` over HTTP, in a thread.

    ``/health/live`` says that there is a server, ``/health/ready`` that all it needs is there, and
    ``/health`` the same. Raises: UsageError (E_LISTEN).

    Args:
        host, port: where to listen; whoever reaches it may read the numbers, so that it is no
            public address.
        server: whose counts and states are public to its operator.
    """
    events = server.events

    class Watched(ThreadingHTTPServer):
        """Answers a few at once; for one more, who has been here longest makes room."""

        daemon_threads = True
        here = ClientPlaces(server.division.watching, hang_up)
        is_over = False

        def server_bind(self) -> None:
            TCPServer.server_bind(self)  # no question for a resolver, as HTTP's own asks
            self.server_name, self.server_port = host, port

        def serve_forever(self, poll_interval: float = 0.0) -> None:
            found = arrivals(lambda: self.socket, lambda: self.is_over, self.bear)
            with contextlib.suppress(OperationalError):
                for request, address in found:
                    if self.here.take(request):
                        events.note("missed", why="metrics")
                    try:
                        self.process_request(request, address)
                    except (MemoryError, RuntimeError) as error:  # no more threads
                        self.shutdown_request(request)
                        self.bear(name_of(error))
                    self.here.wait(lambda: self.is_over)

        def bear(self, why: str) -> None:
            """Note that somebody could not be answered, and make room where that helps."""
            events.note("missed", why=why)
            self.here.bear(why)

        def shutdown_request(self, request: Any) -> None:
            super().shutdown_request(request)
            self.here.give(request)

        def shutdown(self) -> None:
            self.is_over = True
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)

        def handle_error(self, request: Any, client_address: Any) -> None:
            events.note("missed", why="metrics")

    class Handler(BaseHTTPRequestHandler):
        """Two pages, and nothing about who asks."""

        server_version, sys_version = "dpsql", ""
        timeout = 10

        def do_GET(self) -> None:  # the name that http.server calls
            if self.path == "/metrics":
                text = "\n".join(lines(metrics(server))) + "\n"
                self._answer(200, text)
            elif self.path == "/health/live":
                self._answer(200, "ok\n")
            elif self.path in ("/health", "/health/ready"):
                found = list(unwell(server))
                self._answer(503 if found else 200, "\n".join(found or ["ok"]) + "\n")
            else:
                self._answer(404, "/metrics, /health/live and /health/ready\n")

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        found = Watched((host, port), Handler)
    except OSError as error:
        what = f"cannot listen on {host}:{port}: {error.strerror}"
        raise UsageError("E_LISTEN", what) from None
    threading.Thread(target=found.serve_forever, daemon=True).start()
    return found
