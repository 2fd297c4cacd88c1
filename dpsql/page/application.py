"""The application: what is answered at which address, and to whom."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.resources
import re
from collections.abc import Awaitable, Callable
from fractions import Fraction
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from dpsql.errors import Error
from dpsql.page.browser_sessions import BrowserSession, BrowserSessions
from dpsql.page.editor_words import shape_vocabulary
from dpsql.page.json_shapes import (
    Shape,
    shape_analysts,
    shape_budget,
    shape_entry,
)
from dpsql.page.sign_in import REFUSED, SignedInUser, SignIn
from dpsql.page.workers import BrowserGone, Busy, PageWorkers
from dpsql.records import dataclass
from dpsql.server.copy_rows import copied
from dpsql.server.databases import Database
from dpsql.server.events import Events
from dpsql.server.messages import MOST_SECRET
from dpsql.server.result_stream import ResultTable
from dpsql.server.sqlstates import told_of

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
MOST_ENTRIES = 200
"""Entries of the ledger that are sent at once; older ones are asked for by number."""

Act = Callable[[Request, BrowserSession], Awaitable[Response]]


class MalformedRequest(Exception):
    """A request that is not made of what it should be."""


@dataclass
class Application:
    """Answers for one server; ``secure`` says that it is reached by TLS.

    What is said of a database is below ``/catalogs/`` and its name; of the first, below ``/`` too.
    """

    entrance: SignIn
    visits: BrowserSessions
    workers: PageWorkers
    secure: bool
    events: Events

    def build(self) -> Starlette:
        """The application, without the middleware of ``SiteGuard``."""
        acts: list[tuple[str, str, Act]] = [
            ("GET", "/api/visit", self._who),
            ("POST", "/api/leave", self._leave),
            ("GET", "/api/vocabulary", self._vocabulary),
            ("GET", "/api/budget", self._budget),
            ("GET", "/api/history", self._history),
            ("POST", "/api/forecast", self._forecast),
            ("POST", "/api/run", self._run),
            ("GET", "/api/results/{number:int}.csv", self._save),
            ("GET", "/api/curator", self._curator),
        ]
        files = [Route(path, _serve(body, kind)) for path, body, kind in static_files()]
        found = [Route("/api/enter", self._enter, methods=["POST"])]
        found += [Route(path, self._admitted(act), methods=[how]) for how, path, act in acts]
        found += [each for each in files if each.path == "/"]
        return Starlette(routes=[*files, *found, Mount("/catalogs/{database}", routes=found)])

    def cookie(self, database: Database) -> str:
        """The name of the cookie of a database, which under TLS no other host can set."""
        base = "__Host-dpsql" if self.secure else "dpsql"
        if database is self.entrance.databases.first:
            return base
        return f"{base}-{hashlib.sha256(database.name.encode()).hexdigest()[:16]}"

    def _database(self, request: Request) -> Database | None:
        """The database that a request is for; None where there is none of the name."""
        return self.entrance.databases.find(request.path_params.get("database", ""))

    def _admitted(self, act: Act) -> Callable[[Request], Awaitable[Response]]:
        """An act for those who are signed in, and what is told of what goes wrong with it."""

        async def answer(request: Request) -> Response:
            database = self._database(request)
            token = "" if database is None else request.cookies.get(self.cookie(database), "")
            visit = self.visits.find(token, database)
            if visit is None:
                return _told(401, "sign in first")
            try:
                who = self.entrance.recognise(*visit.whose)
                if who is None or who.verifier != visit.who.verifier:
                    self.visits.end(token, "user")  # taken out, or with another password by now
                    return _told(401, "sign in first")
                visit.who = who
                return await act(request, visit)
            except MalformedRequest as error:
                return _told(400, str(error))
            except Busy as error:
                return _told(503, str(error))
            except BrowserGone:
                return Response(status_code=499)
            except Error as error:
                return _told(503, told_of(error)[0], error.code)

        return answer

    async def _enter(self, request: Request) -> Response:
        try:
            asked = await _read(request, name=str, password=str)
            if len(asked["password"].encode()) > MOST_SECRET:  # each byte would cost work
                raise MalformedRequest(f"a password has at most {MOST_SECRET} bytes")
            name, address = asked["name"], request.client.host if request.client else ""
            database = self._database(request)
            wanted = database or self.entrance.databases.first
            given = (wanted, name, asked["password"], address)
            who = await asyncio.to_thread(self.entrance.sign_in, *given)
            facts = {"user": name, "address": address, "method": "page"}
            bound = self.events.bound(**facts, database="" if database is None else database.name)
            seconds = self.entrance.delay(name, address)
            if seconds:
                bound.note("delay", seconds=seconds)
            await asyncio.sleep(seconds)
        except MalformedRequest as error:
            return _told(400, str(error))
        except Error as error:
            return _told(503, told_of(error)[0], error.code)
        if who is None:
            bound.note("sign-in", outcome="failed", state="401")
            return _told(401, REFUSED)
        if database is None:
            bound.note("sign-in", outcome="failed", state="404")
            names = " or ".join(self.entrance.recognising(who.user))
            return _told(404, f"there is no such catalog here; sign in to {names}")
        token = self.visits.begin(who, bound)
        if token is None:
            bound.note("sign-in", outcome="failed", state="503")
            return _told(503, "too many are here already")
        bound.note("sign-in", outcome="in")
        found = _shaped(self._whom(who))
        found.set_cookie(
            self.cookie(database),
            token,
            path="/",
            secure=self.secure,
            httponly=True,
            samesite="strict",
        )
        return found

    def _whom(self, who: SignedInUser) -> Shape:
        return {
            "user": who.user,
            "analyst": who.analyst,
            "asks": who.may_ask,
            "curator": who.is_curator,
            "catalog": who.database.name,
            "catalogs": self.entrance.recognising(who.user),
        }

    async def _who(self, request: Request, visit: BrowserSession) -> Response:
        return _shaped(self._whom(visit.who))

    async def _leave(self, request: Request, visit: BrowserSession) -> Response:
        cookie = self.cookie(visit.who.database)
        self.visits.end(request.cookies[cookie])
        found = _shaped({})
        found.delete_cookie(cookie, path="/", secure=self.secure, httponly=True, samesite="strict")
        return found

    async def _vocabulary(self, request: Request, visit: BrowserSession) -> Response:
        if not visit.who.may_ask:
            return _shaped(shape_vocabulary(visit.who.database.site.catalog))

        def look() -> Shape:
            visit.caller.connection.engine.catch_up()
            return shape_vocabulary(visit.caller.connection.known)

        return _shaped(await self.workers.look(request, visit, look))

    async def _budget(self, request: Request, visit: BrowserSession) -> Response:
        _check_asks(visit)

        def look() -> Shape:
            connection = visit.caller.connection
            return shape_budget(connection.budget, connection.askable, connection.analyst)

        return _shaped(await self.workers.look(request, visit, look))

    async def _history(self, request: Request, visit: BrowserSession) -> Response:
        """Answer with the charges of this analyst; with all where no analysts are declared."""
        _check_asks(visit)
        own = f"analyst:{visit.who.analyst}"
        entries = await asyncio.to_thread(visit.who.database.site.engine.entries)
        if visit.who.analyst is not None:
            entries = tuple(each for each in entries if own in each.within.split("\n"))
        return _shaped(_latest(entries, _before(request)))

    async def _curator(self, request: Request, visit: BrowserSession) -> Response:
        """Every budget and every request, for the curator alone."""
        if not visit.who.is_curator:
            return _told(403, "this is for the curator")
        engine = visit.who.database.site.engine
        visit.caller.events.note("act", outcome="ledger shown")
        status, entries = await asyncio.to_thread(lambda: (engine.status(), engine.entries()))
        whole = (status.remaining_epsilon, status.total_epsilon)
        found = _latest(entries, _before(request))
        found["budgets"] = shape_analysts(status, entries)
        found["whole"] = shape_budget(status, whole, None) | {"requests": status.entries}
        return _shaped(found)

    async def _forecast(self, request: Request, visit: BrowserSession) -> Response:
        _check_asks(visit)
        asked = await _read(request, sql=str, epsilon=str)
        return _shaped(
            await self.workers.forecast(request, visit, asked["sql"], _epsilon(asked["epsilon"]))
        )

    async def _run(self, request: Request, visit: BrowserSession) -> Response:
        _check_asks(visit)
        asked = await _read(request, sql=str, epsilon=str, price=str)
        epsilon, price = _epsilon(asked["epsilon"]), _price(asked["price"])
        return _shaped(await self.workers.run(request, visit, asked["sql"], epsilon, price))

    async def _save(self, request: Request, visit: BrowserSession) -> Response:
        number = request.path_params["number"]
        if not 0 < number <= len(visit.results):
            return _told(404, "there is no such result any more")
        result = visit.results[number - 1]
        formulas = "formulas" in request.query_params
        body = await asyncio.to_thread(
            lambda: b"".join(copied(ResultTable(result, errors=True), "csv", True, formulas))
        )
        name = f'attachment; filename="{visit.who.database.name}-{number}.csv"'
        if not re.fullmatch(r'attachment; filename="[\w.-]+"', name, re.ASCII):
            name = f'attachment; filename="result-{number}.csv"'
        head = {"Content-Disposition": name, "Cache-Control": "no-store"}
        return Response(body, media_type="text/csv; charset=utf-8", headers=head)


def _check_asks(visit: BrowserSession) -> None:
    if not visit.who.may_ask:
        raise MalformedRequest("a curator who is no analyst asks nothing")


def _epsilon(text: str) -> str:
    """An epsilon as SET takes it; what it is worth is decided there. Raises: MalformedRequest."""
    if not re.fullmatch(r"[0-9.eE+-]{1,40}", text):
        raise MalformedRequest("epsilon is a number")
    return text


def _price(text: str) -> Fraction | None:
    """The price that was shown, as a forecast tells it, or None. Raises: MalformedRequest."""
    if not re.fullmatch(r"|[0-9]{1,60}(/0*[1-9][0-9]{0,60})?", text):
        raise MalformedRequest("price is that of a forecast, or empty")
    return Fraction(text) if text else None


def _before(request: Request) -> int | None:
    """The number of the entry that older ones are asked of."""
    found = request.query_params.get("before", "")
    return int(found) if re.fullmatch(r"[0-9]{1,12}", found) else None


def _latest(entries: tuple[Any, ...], before: int | None) -> Shape:
    """The latest entries first, of those before a number where one is given."""
    kept = [each for each in entries if before is None or each.seq < before]
    shown = kept[-MOST_ENTRIES:]
    return {
        "entries": [shape_entry(each) for each in reversed(shown)],
        "more": len(kept) > len(shown),
    }


async def _read(request: Request, **wanted: type) -> dict[str, Any]:
    """An object of exactly these members. Raises: MalformedRequest."""
    try:
        found = await request.json()
    except (ValueError, RecursionError):
        raise MalformedRequest("the request is no JSON") from None
    if not isinstance(found, dict) or {k: type(v) for k, v in found.items()} != wanted:
        raise MalformedRequest(f"the request has not the members {', '.join(wanted)}")
    try:
        for value in found.values():
            value.encode()
    except UnicodeEncodeError:
        raise MalformedRequest("the request has text that is no Unicode") from None
    return found


def _shaped(shape: Shape) -> JSONResponse:
    return JSONResponse(shape, headers={"Cache-Control": "no-store"})


def _told(status: int, text: str, code: str = "E_REQUEST") -> JSONResponse:
    told = {"error": {"message": text, "code": code}}
    return JSONResponse(told, status, headers={"Cache-Control": "no-store"})


def _serve(body: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(body, media_type=kind, headers={"Cache-Control": "no-cache"})

    return answer


def static_files() -> list[tuple[str, bytes, str]]:
    """The files of the page: their addresses, what is in them, and their types."""
    folder = importlib.resources.files("dpsql.page") / "static"
    found = []
    for each in folder.iterdir():
        kind = TYPES.get(each.name[each.name.rfind(".") :])
        if kind is not None:
            path = "/" if each.name == "index.html" else f"/static/{each.name}"
            found.append((path, each.read_bytes(), kind))
    return found
