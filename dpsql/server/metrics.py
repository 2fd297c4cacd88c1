"""What an operator may watch: sessions, statements, refusals, the budget. Public facts only.

Source: the text format of Prometheus, version 0.0.4.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dpsql.dbapi.site import Site
from dpsql.errors import Error, UsageError
from dpsql.records import dataclass, field

TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class Meter:
    """How many messages were served, and how many errors were told, by state."""

    served: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self) -> None:
        """Note a statement."""
        with self._lock:
            self.served += 1

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


def is_well(site: Site) -> bool:
    """Whether the ledger takes charges."""
    try:
        site.engine.ledger.check()
    except Error:
        return False
    return True


def open_metrics(
    host: str, port: int, meter: Meter, sessions: Callable[[], int], site: Site
) -> ThreadingHTTPServer:
    """Answer ``/metrics`` and ``/health`` over HTTP, in a thread. Raises: UsageError (E_LISTEN)."""

    class Handler(BaseHTTPRequestHandler):
        """Two pages, and nothing about who asks."""

        server_version, sys_version = "dpsql", ""
        timeout = 10

        def do_GET(self) -> None:  # the name that http.server calls
            if self.path == "/metrics":
                text = "\n".join(lines(meter, sessions(), site)) + "\n"
                self._answer(200, text)
            elif self.path == "/health":
                well = is_well(site)
                self._answer(200 if well else 503, "ok\n" if well else "the ledger is not usable\n")
            else:
                self._answer(404, "/metrics and /health\n")

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
        found = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        what = f"cannot listen on {host}:{port}: {error.strerror}"
        raise UsageError("E_LISTEN", what) from None
    found.daemon_threads = True
    threading.Thread(target=found.serve_forever, daemon=True).start()
    return found
