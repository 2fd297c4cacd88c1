"""AT TIME ZONE: the clock of another zone, worked out from that of the declared one.

A column of timestamps whose zone the catalog declares holds instants, as that zone's clock shows
them. What the clock of another zone shows differs from it by so much between two changes of either
clock: the expression is written out as these differences, which are public. Where cells are fine
enough for what is asked of it is told as for any other expression over cells.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from zoneinfo import ZoneInfo

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.domain import Spans, Times
from dpsql.errors import printable
from dpsql.records import dataclass
from dpsql.sql.shell.language import Locate, refuse

_HINT = "AT TIME ZONE 'Europe/Berlin' of a timestamp whose `zone` the catalog declares"
_STEP = dt.timedelta(hours=1)
_DAY = dt.timedelta(days=1)

Resolve = Callable[[exp.Column], exp.Expr | None]
"""The stored column that a name stands for, None for all else."""

Runs = Sequence[tuple[dt.datetime, dt.timedelta]]
"""From when on a clock, and by how much another one is ahead of it; the first is from ever."""


@dataclass(frozen=True, slots=True)
class Zones:
    """Writes out AT TIME ZONE in a SELECT over the rows of a private table."""

    table: Table
    resolve: Resolve
    locate: Locate

    def written(self, select: exp.Select) -> exp.Select:
        """The SELECT without AT TIME ZONE. Raises: NotSupportedError (E_FUNCTION)."""
        if not select.find(exp.AtTimeZone):
            return select

        def write(node: exp.Expr) -> exp.Expr:
            return self.shown(node) if isinstance(node, exp.AtTimeZone) else node

        found = select.copy().transform(write, copy=False)
        assert isinstance(found, exp.Select)
        return found

    def shown(self, node: exp.AtTimeZone) -> exp.Expr:
        """The time that the clock of a zone shows, over the column that another clock shows."""
        column, zone = node.this.unnest(), node.args["zone"].unnest()
        domain = self.domain(column) if isinstance(column, exp.Column) else None
        if domain is None:
            refuse(node, "E_FUNCTION", "AT TIME ZONE of this", _HINT, self.locate)
        if not domain.has_zone:
            name = printable(column.name)
            hint = f'zone = "UTC" of {name} in the catalog says which clock its times are of'
            what = f"AT TIME ZONE of {name}, whose zone is not declared,"
            refuse(node, "E_FUNCTION", what, hint, self.locate)
        if not isinstance(zone, exp.Literal) or not zone.is_string:
            refuse(node, "E_FUNCTION", "AT TIME ZONE of no literal", _HINT, self.locate)
        try:
            other = ZoneInfo(zone.name)
        except (KeyError, OSError, ValueError):
            what = f"the time zone {printable(zone.name)}"
            refuse(node, "E_FUNCTION", what, "a zone by name: 'Europe/Berlin'", self.locate)
        runs = find_runs(domain, other)
        if runs is None:
            what = f"AT TIME ZONE of hours that come twice on the clock of {domain.zone}"
            refuse(node, "E_FUNCTION", what, 'zone = "UTC" in the catalog has none', self.locate)
        return _cases(column, runs)

    def domain(self, column: exp.Column) -> Spans | None:
        """The cells of a column of timestamps."""
        found = self.resolve(column)
        stored = self.table.columns.get(found.name.casefold()) if found is not None else None
        domain = None if stored is None else stored.domain
        return domain if isinstance(domain, Spans) and not isinstance(domain, Times) else None


def find_runs(domain: Spans, other: ZoneInfo) -> Runs | None:
    """Return by how much the clock of another zone is ahead, from when to when; in order.

    None where the clock of the domain shows a time twice at which that differs.

    >>> domain = Spans(dt.datetime(2024, 3, 30), "hour", 48)
    >>> [(f"{start:%d %H}", ahead.seconds) for start, ahead in find_runs(domain, ZoneInfo("CET"))]
    [('28 00', 3600), ('31 01', 7200)]
    """
    assert isinstance(domain.start, dt.datetime)
    assert isinstance(domain.end, dt.datetime)
    own, changes = ZoneInfo(domain.zone), []
    instant = (domain.start - 2 * _DAY).replace(tzinfo=dt.UTC)
    last = (domain.end + 2 * _DAY).replace(tzinfo=dt.UTC)
    clocks = _offsets(instant, own, other)
    changes.append((instant + clocks[0], clocks[1] - clocks[0]))
    end = instant
    while instant < last:
        then = instant + _STEP
        now = _offsets(then, own, other)
        if now != clocks:
            at = _change(instant, then, own, other)
            start, before = at + now[0], changes[-1][1]
            ahead, end = now[1] - now[0], at + clocks[0]
            if ahead != before:
                is_inside = start.replace(tzinfo=None) < domain.end and (
                    end.replace(tzinfo=None) > domain.start
                )
                if start < end and is_inside:
                    return None
                changes.append((start, ahead))
            clocks = now
        instant = then
    return [(start.replace(tzinfo=None), ahead) for start, ahead in changes]


def _offsets(
    instant: dt.datetime, own: ZoneInfo, other: ZoneInfo
) -> tuple[dt.timedelta, dt.timedelta]:
    """By how much both clocks are ahead of UTC."""
    found = [instant.astimezone(zone).utcoffset() for zone in (own, other)]
    return found[0] or dt.timedelta(), found[1] or dt.timedelta()


def _change(before: dt.datetime, after: dt.datetime, own: ZoneInfo, other: ZoneInfo) -> dt.datetime:
    """The second at which one of the clocks changes, between two instants."""
    clocks = _offsets(before, own, other)
    while after - before > dt.timedelta(seconds=1):
        middle = before + dt.timedelta(seconds=int((after - before).total_seconds()) // 2)
        if _offsets(middle, own, other) == clocks:
            before = middle
        else:
            after = middle
    return after


def _cases(column: exp.Expr, runs: Runs) -> exp.Expr:
    """The time on the other clock, as an expression over the column."""
    moved = [_moved(column, ahead) for _, ahead in runs]
    found = moved[-1]
    cases = exp.Case()
    for (start, _), before in zip(runs[1:], moved[:-1], strict=True):
        literal = exp.cast(exp.Literal.string(start.isoformat(sep=" ")), "TIMESTAMP")
        cases = cases.when(exp.LT(this=column.copy(), expression=literal), before, copy=False)
    return exp.paren(cases.else_(found, copy=False) if len(runs) > 1 else found, copy=False)


def _moved(column: exp.Expr, ahead: dt.timedelta) -> exp.Expr:
    if not ahead:
        return column.copy()
    seconds = exp.Literal.string(str(abs(int(ahead.total_seconds()))))
    interval = exp.Interval(this=seconds, unit=exp.Var(this="SECOND"))
    kind = exp.Add if ahead > dt.timedelta() else exp.Sub
    return kind(this=column.copy(), expression=interval)
