"""Metrics for an operator: sessions, statements, refusals, the budget. Public facts only.

Source: the text format of Prometheus, version 0.0.4.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from dpsql.dbapi.site import Site
from dpsql.errors import Error, UsageError, printable
from dpsql.records import dataclass, field

if TYPE_CHECKING:
    from dpsql.server.twin import Twin

log = logging.getLogger("dpsql.server")
TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_NAME = 100
"""Characters of a name that are logged; none that may sign in is as long."""
MOST_WATCHING = 32
"""Connections to the metrics at once: each has a thread."""


@dataclass
class Meter:
    """Counts of messages served, of errors told, by state, and of sign-ins."""

    served: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    signed: Counter[tuple[str, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self) -> None:
        """Note a statement."""
        with self._lock:
            self.served += 1

    def miss(self, why: str) -> None:
        """Note a client that was not let in."""
        with self._lock:
            self.missed[why] += 1

    def sign_in(self, user: str, address: str, method: str, state: str = "") -> None:
        """Note a sign-in, and log it: who from where, and the state of what was told who failed."""
        outcome = "failed" if state else "in"
        with self._lock:
            self.signed[method, outcome] += 1
        who = printable(user[:MOST_NAME])
        told = f" state={state}" if state else ""
        level = logging.WARNING if state else logging.INFO
        log.log(level, "user=%s address=%s method=%s %s%s", who, address, method, outcome, told)

    def refuse(self, state: str) -> None:
        """Note an error."""
        with self._lock:
            self.errors[state] += 1


def lines(meter: Meter, sessions: int, site: Site) -> Iterator[str]:
    """The metrics, line by line."""
    yield "# TYPE dpsql_sessions gauge"
    yield f"dpsql_sessions {sessions}"
    yield "# TYPE dpsql_statements_total counter"
    yield f"dpsql_statements_total {meter.served}"
    yield "# TYPE dpsql_errors_total counter"
    for state, count in sorted(meter.errors.items()):
        yield f'dpsql_errors_total{{state="{state}"}} {count}'
    yield "# TYPE dpsql_sign_ins_total counter"
    for (method, outcome), count in sorted(meter.signed.items()):
        yield f'dpsql_sign_ins_total{{method="{method}",outcome="{outcome}"}} {count}'
    yield "# TYPE dpsql_missed_clients_total counter"
    for why, count in sorted(meter.missed.items()):
        yield f'dpsql_missed_clients_total{{why="{why}"}} {count}'
    try:
        status = site.engine.status()
    except Error:  # a ledger that is damaged is told by the health, not here
        return
    yield "# TYPE dpsql_charges_total counter"
    yield f"dpsql_charges_total {status.entries}"
    yield "# TYPE dpsql_epsilon gauge"
    yield f'dpsql_epsilon{{what="total"}} {float(status.total_epsilon):g}'
    yield f'dpsql_epsilon{{what="remaining"}} {float(status.remaining_epsilon):g}'
    for name, inner in sorted(status.nested.items()):
        kind, _, whose = name.partition(":")
        whose = whose.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        left = float(inner.remaining_epsilon)
        yield f'dpsql_epsilon{{what="remaining",{kind}="{whose}"}} {left:g}'


def unwell(site: Site, twin: Twin | None) -> list[str]:
    """Tell which of ledger, sources and twin cannot be used now; a twin that died is started."""
    found = []
    try:
        site.engine.ledger.check()
    except Error:
        found.append("the ledger is not usable")
    if not site.engine.is_readable():
        found.append("a source cannot be read: what was paid for is answered")
    if twin is not None and not twin.is_alive():
        found.append("the twin does not answer questions about catalogs")
    return found


def open_metrics(
    host: str,
    port: int,
    meter: Meter,
    sessions: Callable[[], int],
    site: Site,
    twin: Twin | None = None,
) -> ThreadingHTTPServer:
    """Answer ``/metrics`` and ``/health`` over HTTP, in a thread.

    ``/health/live`` says that there is a server, ``/health/ready`` that all it needs is there, and
    ``/health`` the same. Raises: UsageError (E_LISTEN).
    """

    class Watched(ThreadingHTTPServer):
        """Answers a few at once; one more is hung up on."""

        daemon_threads = True
        places = threading.BoundedSemaphore(MOST_WATCHING)

        def process_request(self, request: Any, client_address: Any) -> None:
            if not self.places.acquire(blocking=False):
                meter.miss("metrics")
                self.shutdown_request(request)
                return
            try:
                super().process_request(request, client_address)
            except BaseException:  # no more threads
                self.places.release()
                raise

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                self.places.release()

        def handle_error(self, request: Any, client_address: Any) -> None:
            meter.miss("metrics")

    class Handler(BaseHTTPRequestHandler):
        """Two pages, and nothing about who asks."""

        server_version, sys_version = "dpsql", ""
        timeout = 10

        def do_GET(self) -> None:  # the name that http.server calls
            if self.path == "/metrics":
                text = "\n".join(lines(meter, sessions(), site)) + "\n"
                self._answer(200, text)
            elif self.path == "/health/live":
                self._answer(200, "ok\n")
            elif self.path in ("/health", "/health/ready"):
                found = unwell(site, twin)
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
