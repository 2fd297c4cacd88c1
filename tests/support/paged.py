"""A served page, and a client of it that is no browser: it sends what it is told to."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsql.page.serving import Page, open_page
from dpsql.server.address import Address
from dpsql.server.users import Users
from tests.support.served import PASSWORD, served


@contextmanager
def paged(catalog: Path, tls: tuple[Path, Path] | None = None) -> Iterator[Page]:
    """The page of a server of a catalog; ``cora`` is a curator who is no analyst."""
    users = Users(catalog.with_suffix(".users"))
    if "cora" not in users.all():
        users.put("cora", PASSWORD, new=True, curator=True)
    with served(catalog) as server:
        page = open_page(server, Address("127.0.0.1", 0), *(tls or ()))
        try:
            yield page
        finally:
            page.close()


@dataclass
class Caught:
    """What came back: status, headers in lower case, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Knocker:
    """One client; ``cookie`` is what it sends, and keeps when it signs in.

    ``path`` is that of a catalog, empty for the first.
    """

    port: int
    cookie: str = ""
    tls: ssl.SSLContext | None = None
    path: str = ""

    def send(
        self, method: str, path: str, body: bytes | None = None, **changed: str | None
    ) -> Caught:
        """Send a request as the page would; None for a header leaves it out."""
        host = f"127.0.0.1:{self.port}"
        found: dict[str, str | None] = {"Host": host}
        if self.cookie:
            found["Cookie"] = self.cookie
        if body is not None:
            found |= {
                "Origin": f"{'https' if self.tls else 'http'}://{host}",
                "X-Dpsql": "page",
                "Content-Type": "application/json",
            }
        found |= {name.replace("_", "-"): value for name, value in changed.items()}
        connection = self._connect()
        try:
            sent = {name: value for name, value in found.items() if value is not None}
            connection.request(method, self.path + path, body, sent)
            reply = connection.getresponse()
            headers = {name.lower(): value for name, value in reply.getheaders()}
            return Caught(reply.status, headers, reply.read())
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.tls)

    def get(self, path: str, **changed: str | None) -> Caught:
        return self.send("GET", path, None, **changed)

    def post(self, path: str, **members: object) -> Caught:
        return self.send("POST", path, json.dumps(members).encode())

    def enter(self, name: str = "ana", password: str = PASSWORD) -> Caught:
        """Sign in, and keep the cookie."""
        caught = self.post("/api/enter", name=name, password=password)
        found = re.match(r"([\w-]+=[\w-]+);", caught.headers.get("set-cookie", ""))
        self.cookie = found[1] if found else ""
        return caught

    def run(self, sql: str, epsilon: str = "0.01", price: str = "") -> Any:
        """Ask something for a price that was shown; none was, unless it is said."""
        return self.post("/api/run", sql=sql, epsilon=epsilon, price=price).told
