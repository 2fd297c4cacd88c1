"""Answers without noise, each as a line: enough to see that two are the same up to rounding."""

from __future__ import annotations

import hashlib
import math
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import duckdb

import dpsql
from dpsql.answer.result import Result
from tests.gate.digest import number, plain, short
from tests.suites.suite import _PRIVATELY, compared
from tests.support.tables import World

PATIENCE = 4
"""Seconds of work after which an answer is not kept: the gate takes minutes, whatever is asked."""
WITHIN = 1e-6
"""How far sums may differ, in proportion: the order in which numbers are added is not told."""
EQUAL, OTHER, NO_SQL = "=", "~", "-"
"""Beside DuckDB: the same rows, other rows, and no SQL of DuckDB or not asked."""
_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?|-?inf|nan")


class TooSlow(BaseException):
    """An answer that takes longer than the gate waits; no defect of dpsql, which would tell it."""


@contextmanager
def patience(seconds: float = PATIENCE) -> Iterator[None]:
    """Interrupt what takes longer, as Ctrl-C does: a charge is ended as it is for a user.

    Raises: TooSlow.
    """
    late = False

    def stop(*_: object) -> None:
        nonlocal late
        late = True
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of work, whoever else is at work
    try:
        yield
    except KeyboardInterrupt:
        if not late:
            raise
        raise TooSlow from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def answered(world: World, sql: str, exact: str | None = None) -> tuple[str, str, str]:
    """A sketch of the answer, its standard errors, and how it is beside DuckDB's.

    Raises: TooSlow; dpsql.Error where it is refused.
    """
    with patience():
        result = world[0].execute(sql).result
        return sketch(result), forecast(result), beside(world, result, exact or sql)


def beside(world: World, result: Result, sql: str) -> str:
    """How an answer is beside DuckDB's."""
    try:
        rows = world[1].execute(_PRIVATELY.sub("", sql)).fetchall()
    except duckdb.Error:
        return NO_SQL
    try:
        return OTHER if compared(result, rows, 1e-4) else EQUAL
    except (TypeError, ValueError, IndexError):
        return OTHER


def sketch(result: Result) -> str:
    """Rows and columns of an answer in one line.

    A column of numbers has its count, its sum and a sum weighted by what else is in the row; any
    other has a digest of its values, whatever their order.
    """
    columns = [[_plain(row[place]) for row in result.rows] for place in range(len(result.columns))]
    numbers = [_is_numeric(column) for column in columns]
    others = [column for column, numeric in zip(columns, numbers, strict=True) if not numeric]
    weights = [_weight(row) for row in zip(*others, strict=True)] or [0.5] * len(result.rows)
    parts = [str(len(result.rows))]
    for column, numeric in zip(columns, numbers, strict=True):
        if not numeric:
            parts.append("#" + short(sorted(map(plain, column))))
            continue
        finite = [
            (value, weight)
            for value, weight in zip(column, weights, strict=True)
            if value is not None and math.isfinite(value)
        ]
        total = math.fsum(value for value, _ in finite)
        weighed = math.fsum(value * weight for value, weight in finite)
        parts.append(f"{len(finite)}:{number(total)}:{number(weighed)}")
    return " ".join(parts)


def forecast(result: Result) -> str:
    """The root mean square of the standard errors of each column; empty where none has any."""
    found = []
    for errors in result.stddev:
        known = [float(each) for each in errors or () if each is not None and math.isfinite(each)]
        mean = math.fsum(each * each for each in known) / len(known) if known else 0.0
        found.append(f"{math.sqrt(mean):.6g}" if known else "")
    return " ".join(each or "-" for each in found) if any(found) else "-"


def alike(one: str, other: str, within: float = WITHIN) -> bool:
    """True where two sketches or forecasts have the same words and nearly the same numbers."""
    if one == other:
        return True
    left, right = one.split(" "), other.split(" ")
    return len(left) == len(right) and all(
        a == b or (a[:1] != "#" and b[:1] != "#" and _near(a, b, within))
        for a, b in zip(left, right, strict=True)
    )


def is_worse(before: str, now: str, within: float = 1e-5) -> bool:
    """True where a standard error is larger than it was, or there is none any more."""
    left, right = before.split(" "), now.split(" ")
    if len(left) != len(right):
        return before != "-"  # of no column was one known
    return any(
        a != "-" and (b == "-" or float(b) > float(a) * (1 + within))
        for a, b in zip(left, right, strict=True)
    )


def _near(one: str, other: str, within: float) -> bool:
    left, right = _NUMBER.findall(one), _NUMBER.findall(other)
    if _NUMBER.sub("", one) != _NUMBER.sub("", other) or len(left) != len(right):
        return False
    size = max([abs(float(each)) for each in (*left, *right)] or [0.0])
    return all(
        math.isclose(float(a), float(b), rel_tol=within, abs_tol=within * (1 + size))
        for a, b in zip(left, right, strict=True)
    )


def _is_numeric(column: Sequence[Any]) -> bool:
    found = [value for value in column if value is not None]
    return bool(found) and all(isinstance(value, float) for value in found)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float | Decimal):
        return float(value) + 0.0
    return value


def _weight(row: Sequence[Any]) -> float:
    """A number from 0 to 1 that follows from the values of a row."""
    text = "\0".join(map(plain, row)).encode("utf-8", "backslashreplace")
    return int.from_bytes(hashlib.sha256(text).digest()[:3], "big") / (1 << 24)


def refused(error: dpsql.Error) -> str:
    """A refusal as its code, and line and column of its caret where it has one."""
    if error.span is None:
        return error.code
    line, column = error.span.position()
    return f"{error.code} {line}:{column}"
