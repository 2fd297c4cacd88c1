"""Middleware against other sites: foreign requests are refused, responses have a policy."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpsql.records import dataclass

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Nothing but the server's own files and answers; no script or style within a page or a value."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
MARK = "x-dpsql"
"""The header without which nothing is changed: no form can send it, nor can another site."""
MOST_BYTES = 1 << 20
"""Bytes of a request, as many as its longest script has."""
PATIENCE = 20.0
"""Seconds in which the body of a request must have come."""


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class SiteGuard:
    """Stands around an application; ``hosts`` are the names it goes by, none for any under TLS."""

    app: ASGIApp
    scheme: str
    hosts: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            return  # no web sockets

        async def confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._confinement())
            await send(message)

        try:
            self._check(scope["method"], Headers(scope=scope))
            body = await _whole(Headers(scope=scope), receive)
        except _Refused as refused:
            told = {"error": {"message": str(refused), "code": "E_REQUEST"}}
            await JSONResponse(told, refused.status)(scope, receive, confined)
            return
        await self.app(scope, _once(body, receive), confined)

    def _confinement(self) -> dict[str, str]:
        lasting = {"Strict-Transport-Security": "max-age=31536000"}
        return HEADERS if self.scheme == "http" else HEADERS | lasting

    def _check(self, method: str, headers: Headers) -> None:
        """Refuse what another site has caused. Raises: _Refused."""
        host = headers.get("host", "").lower()
        if self.hosts and host not in self.hosts:
            raise _Refused(421, "the server does not go by this name")
        own = f"{self.scheme}://{host}"
        is_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        is_own = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        if not (is_own or is_link) or headers.get("origin", own).lower() != own:
            raise _Refused(403, "requests of other sites are not answered")
        if method in ("GET", "HEAD"):
            return
        if headers.get(MARK) is None:
            raise _Refused(403, f"the header {MARK} is missing")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise _Refused(415, "only application/json is read")


async def _whole(headers: Headers, receive: Receive) -> bytes:
    """The body of a request. Raises: _Refused where it is too long, or comes too slowly."""
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length[:20]) > MOST_BYTES:
        raise _Refused(413, f"a request has at most {MOST_BYTES:,} bytes")
    found = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await receive()
                found += message.get("body", b"")
                if len(found) > MOST_BYTES:
                    raise _Refused(413, f"a request has at most {MOST_BYTES:,} bytes")
                if not message.get("more_body", False):
                    return bytes(found)
    except TimeoutError:
        raise _Refused(408, "the request came too slowly") from None


def _once(body: bytes, receive: Receive) -> Receive:
    """Hand the body over, and afterwards what comes, which is that the client has gone."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return left.pop() if left else await receive()

    return next_message
