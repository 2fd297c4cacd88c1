"""Threads that run the statements of browser sessions: one at a time each, few in all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from fractions import Fraction
from typing import Any

from starlette.requests import Request

from dpsql.dbapi.connection import Connection
from dpsql.errors import Error, Interrupted
from dpsql.interrupts import Cancellation
from dpsql.page.browser_sessions import BrowserSession
from dpsql.page.json_shapes import Shape, shape_error, shape_forecast, shape_result
from dpsql.records import dataclass
from dpsql.server.events import note_refusal
from dpsql.server.sqlstates import CANCELLED, DEFECT, state_of
from dpsql.sql.text.lexemes import split_statements

LONGEST_RUN = 10 * 60_000
"""Milliseconds that a script may take; what is charged by then is stored."""
LONGEST_FORECAST = 60_000
MOST_AT_ONCE, MOST_WAITING = 16, 100
"""Scripts at work for all visits together, and those that wait for their turn."""
STEPS = (0.1, 0.2, 0.5, 2.0, 5.0, 10.0)
"""Points on the curve of a forecast, as multiples of the epsilon that was asked for."""


class Busy(Exception):
    """Too much is asked at once; whoever asks is told so."""


class BrowserGone(Exception):
    """The browser went away, so that nobody waits for an answer."""


@dataclass
class PageWorkers:
    """Carries out what visits ask; only the event loop uses it."""

    _waiting: int = 0

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def run(
        self,
        request: Request,
        visit: BrowserSession,
        text: str,
        epsilon: str,
        price: Fraction | None,
    ) -> Shape:
        """Answer a script, all its SELECTs for one charge, for no more than the price shown.

        Args:
            request: watched for a browser that goes away, which cancels the statement.
            visit: session that pays and keeps the results; one statement at a time.
            text: script; more than one statement makes it one workload.
            epsilon: as it was typed.
            price: epsilon that was forecast and shown, which is the most that is charged; None
                where nothing was forecast, and ``epsilon`` is what was shown.

        Raises: Busy; Gone.
        """
        if visit.running is not None:
            raise Busy("the statement before this one is not answered yet")
        if visit.forecasting is not None:
            visit.caller.end(visit.forecasting)
        wish = visit.running = Cancellation()

        def work() -> Shape:
            visit.caller.follow()
            connection = visit.caller.connection
            connection.set("epsilon", epsilon)
            shown = connection.terms.epsilon if price is None else price
            many = len(split_statements(text)) > 1
            with connection.at_most(shown or Fraction(0)):
                visit.results = tuple(visit.caller.run(text, many, LONGEST_RUN, wish))
            return {"results": [shape_result(each) for each in visit.results]}

        visit.caller.events.count("message")
        visit.asked += 1
        try:
            return await self._carry_out(request, visit, wish, lambda: _told(work, text, visit))
        finally:
            visit.running = None

    async def forecast(
        self, request: Request, visit: BrowserSession, text: str, epsilon: str
    ) -> Shape:
        """Forecast a script at an epsilon, and the error at others; it ends the one before.

        Args:
            request: watched for a browser that goes away, which cancels the forecast.
            visit: session of the browser; a forecast ends the one before.
            text: script.
            epsilon: as it was typed.

        Raises: Busy; Gone.
        """
        if visit.running is not None:
            raise Busy("a forecast waits until the statement is answered")
        if visit.forecasting is not None:
            visit.caller.end(visit.forecasting)
        wish = visit.forecasting = Cancellation()

        def work() -> Shape:
            caller = visit.caller
            caller.follow()
            return caller.within(
                lambda: _forecast(caller.connection, text, epsilon), LONGEST_FORECAST, wish
            )

        try:
            return await self._carry_out(request, visit, wish, lambda: _told(work, text, visit))
        finally:
            if visit.forecasting is wish:
                visit.forecasting = None

    async def look(
        self, request: Request, visit: BrowserSession, work: Callable[[], Shape]
    ) -> Shape:
        """Look at public facts in the thread of a visit.

        Args:
            request: watched for a browser that goes away.
            visit: session whose thread does the work.
            work: reads what costs nothing: declarations, the budget, results that were released.

        Raises: Busy; Gone.
        """

        def looked() -> Shape:
            visit.caller.follow()
            return work()

        return await self._carry_out(
            request, visit, Cancellation(), lambda: _told(looked, "", visit)
        )

    async def _carry_out(
        self, request: Request, visit: BrowserSession, wish: Cancellation, work: Callable[[], Shape]
    ) -> Shape:
        """Do it in the thread of the visit, and end it when the browser goes away."""
        if self._waiting >= MOST_WAITING:
            raise Busy("the server is busy; try again in a moment")
        self._waiting += 1
        visit.busy += 1
        task = asyncio.ensure_future(self._in_turn(visit, work))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                visit.caller.end(wish)
                await task
                raise BrowserGone
            return task.result()
        finally:
            gone.cancel()
            self._waiting -= 1
            visit.busy -= 1

    async def _in_turn(self, visit: BrowserSession, work: Callable[[], Shape]) -> Shape:
        async with self._places:
            try:
                started: Future[Shape] = visit.pool.submit(work)
            except RuntimeError:  # the visit has ended meanwhile
                raise BrowserGone from None
            return await asyncio.wrap_future(started)


def _told(work: Callable[[], Shape], text: str, visit: BrowserSession) -> Shape:
    """Return the outcome of some work, or its failure; nothing is raised in the event loop."""
    try:
        return work()
    except Interrupted as error:
        state, told = CANCELLED, {"code": "E_CANCELLED", "message": f"cancelled: {error}"}
    except KeyboardInterrupt:
        state, told = CANCELLED, {"code": "E_CANCELLED", "message": "cancelled"}
    except Error as error:
        state, told = state_of(error), shape_error(error, text)
    except Exception:
        message = "a defect of the server; nothing more is known"
        state, told = DEFECT, {"code": "E_DEFECT", "message": message}
    note_refusal(visit.caller.events, state, visit.caller.is_late, str(told["code"]))
    return {"error": told}


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _forecast(connection: Connection, text: str, epsilon: str) -> Shape:
    """A forecast, and where one figure sums up its error, that figure at other epsilons."""
    before = connection.terms
    try:
        connection.set("epsilon", epsilon)
        found = connection.explain(text)
        curve = []
        if not (found.free or found.mixed or found.is_learned) and _is_short(found.statements):
            for step in STEPS:
                value = float(epsilon) * step
                connection.terms = before
                try:
                    connection.set("epsilon", f"{value:.12g}")
                    curve.append([value, connection.explain(text).rmse])
                except Error:  # more than one request may cost
                    continue
        return shape_forecast(found) | {"curve": sorted([*curve, [float(epsilon), found.rmse]])}
    finally:
        connection.terms = before


def _is_short(statements: Sequence[Any]) -> bool:
    """True if it is forecast at once, so that other epsilons may be looked at too."""
    return len(statements) <= 20
