"""Table functions of constants as lists of VALUES: UNNEST of lists, range and generate_series."""

from __future__ import annotations

import calendar
import datetime as dt
import itertools
from collections.abc import Iterator

from sqlglot import exp

from dpsql.sql.rewrites.lists import constants

MAX_SERIES = 10_000
"""Most rows of one series."""


_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


def not_written_out(node: exp.Expr) -> tuple[str, str, str]:
    """The code, the name and what works instead of a table function that is left."""
    what = "UNNEST" if isinstance(node, exp.Unnest) else "a table function"
    instead = "tables, sub-queries, UNNEST([1, 2]) and range(0, 10) work, of constants"
    return "E_TABLE_FUNCTION", what, instead


def write_out_series(tree: exp.Expr) -> None:
    """Write table functions of constants as VALUES, in place.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("SELECT * FROM range(0, 6, 2) AS r(i)", "duckdb")
    >>> write_out_series(tree)
    >>> tree.sql("duckdb")
    'SELECT * FROM (VALUES (0), (2), (4)) AS r(i)'
    """
    for select in list(tree.find_all(exp.Select)):
        _move_down(select)
    for node in list(tree.find_all(exp.Unnest, exp.Table)):
        values = _values(node)
        if values is not None:
            node.replace(values)


def _move_down(select: exp.Select) -> None:
    """``SELECT unnest(list) AS x`` as a SELECT from the list; ``unnest(list)::DATE`` of a cast."""
    items = select.expressions
    if select.args.get("from_") is not None or len(items) != 1:
        return
    item, inner = items[0], items[0].unalias()
    cast = inner if isinstance(inner, exp.Cast) else None
    inner = inner if cast is None else cast.this.unnest()
    if isinstance(inner, exp.Explode):
        name = exp.to_identifier(item.alias or "unnest")
        alias = exp.TableAlias(this=name.copy(), columns=[name.copy()])
        values = _listed(inner.this, alias)
        if values is not None:
            select.set("from_", exp.From(this=values))
            shown: exp.Expr = exp.column(name.copy())
            if cast is not None:
                cast.set("this", shown)
                shown = exp.alias_(cast.copy(), name.name, quoted=True, copy=False)
            item.replace(shown)


def _values(node: exp.Expr) -> exp.Values | None:
    """The rows that a table function of constants yields; None for all else."""
    if isinstance(node, exp.Unnest):
        in_from, place = isinstance(node.parent, exp.From | exp.Join), node.args.get("offset")
        if not in_from or len(node.expressions) != 1:
            return None
        return _listed(node.expressions[0], node.args.get("alias"), place)
    if isinstance(node.this, exp.GenerateSeries):
        return _listed(node.this, node.args.get("alias"), node.args.get("ordinality"))
    return None


def _listed(
    listed: exp.Expr, alias: exp.Expr | None, place: exp.Identifier | bool | None = None
) -> exp.Values | None:
    """The elements of a list as rows; by the name of its alias, or else of the function.

    ``place`` asks for their places, from 1, in a second column, by its name if it has one: WITH
    ORDINALITY.
    """
    elements = _elements(listed)
    if not elements:
        return None
    name, column = "unnest", None
    if isinstance(listed, exp.GenerateSeries):
        name = "range" if listed.args.get("is_end_exclusive") else "generate_series"
    named, second = exp.to_identifier(name), exp.to_identifier("ordinality")
    if alias is not None and alias.this is not None:
        named = alias.this
        column, second = [*(alias.args.get("columns") or [None]), second][:2]
    columns, rows = [(column or named).copy()], [[each] for each in elements]
    if place:
        columns.append((place if isinstance(place, exp.Identifier) else second).copy())
        rows = [[each, _literal(k)] for k, each in enumerate(elements, start=1)]
    return exp.Values(
        expressions=[exp.Tuple(expressions=row) for row in rows],
        alias=exp.TableAlias(this=named.copy(), columns=columns),
    )


def _elements(node: exp.Expr) -> list[exp.Expr] | None:
    """The elements of a list, or of a range of numbers or times, of constants."""
    if not isinstance(node, exp.GenerateSeries):
        return constants(node)
    first, last = node.args.get("start"), node.args.get("end")
    if last is None:
        first, last = exp.Literal.number(0), first
    step = node.args.get("step") or exp.Literal.number(1)
    closed = not node.args.get("is_end_exclusive")
    numbers = [_whole(each) for each in (first, last, step)]
    if None not in numbers:
        low, high, by = (number for number in numbers if number is not None)
        found = range(low, high + closed * ((by > 0) - (by < 0)), by) if by else range(0)
        return [_literal(each) for each in found] if len(found) <= MAX_SERIES else None
    ends = [_instant(each) for each in (first, last)]
    if None in ends or not isinstance(step, exp.Interval):
        return None
    begin, end = (each for each in ends if each is not None)
    times = list(itertools.islice(_times(begin, end, step, closed), MAX_SERIES + 1))
    return [_time(each) for each in times] if len(times) <= MAX_SERIES else None


def _times(
    begin: dt.datetime, end: dt.datetime, step: exp.Interval, closed: bool
) -> Iterator[dt.datetime]:
    """Instants from one to another, in steps of months or of seconds."""
    unit = str(step.args["unit"].name).lower().rstrip("s") if step.args.get("unit") else ""
    amount = _whole(step.this)
    if not amount or amount < 0 or unit not in _MONTHS.keys() | _SECONDS.keys():
        return
    at = begin
    for count in itertools.count(1):
        if at > end or (at == end and not closed):
            return
        yield at
        try:
            if unit in _MONTHS:
                at = _later(at, _MONTHS[unit] * amount)
            else:
                at = begin + dt.timedelta(seconds=_SECONDS[unit] * amount * count)
        except (OverflowError, ValueError):
            return


def _later(at: dt.datetime, months: int) -> dt.datetime:
    """An instant some months later, on the last day of a shorter month."""
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return at.replace(year=year, month=month + 1, day=min(at.day, last))


def _whole(node: exp.Expr | None) -> int | None:
    """The value of a whole number that is written out."""
    node = None if node is None else node.unnest()
    if isinstance(node, exp.Neg):
        value = _whole(node.this)
        return None if value is None else -value
    return int(node.name) if isinstance(node, exp.Literal) and node.name.isdigit() else None


def _instant(node: exp.Expr | None) -> dt.datetime | None:
    """The value of a date or timestamp that is written out."""
    kinds = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
    if not isinstance(node, exp.Cast) or node.to.this not in kinds:
        return None
    try:
        return dt.datetime.fromisoformat(node.this.name)
    except ValueError:
        return None


def _literal(value: int) -> exp.Expr:
    number = exp.Literal.number(abs(value))
    return exp.Neg(this=number) if value < 0 else number


def _time(value: dt.datetime) -> exp.Expr:
    return exp.cast(exp.Literal.string(value.isoformat(sep=" ")), "TIMESTAMP")
