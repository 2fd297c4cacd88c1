"""How the columns of files are fetched in SQL, and what DuckDB hands over is read.

A column arrives as whole numbers with two sentinels, or as doubles whose NaN is "missing". Nothing
in an expression can raise for any value: conversions are tried, and what cannot be converted is
``UNKNOWN``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.privacy.vault.data_engine import Asked, Counts, Floats, Values64
from dpsql.privacy.vault.source import SHORT, family, literal
from dpsql.records import dataclass

MISSING = -(1 << 63)
UNKNOWN = MISSING + 1
"""A value that is no number, no date or no listed text. Declared numbers are far from both."""
NOT_FOUND = 2
"""The state of a text that is no number."""
FIRST_DAY = "DATE '1970-01-01'"
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Fetch:
    """How one column is fetched.

    ``value`` gives whole numbers (days, if ``per_day`` is 1, cells of ``texts``, 0 and 1) or
    doubles. ``state`` is needed beside doubles that come from text: 0 where there is a number, 1
    where the text is missing, 2 where it is no number. ``texts`` become the ENUM type ``e<i>``.
    A key has values of type ``key``; its state says whether there is one.
    """

    value: str
    whole: bool
    state: str | None = None
    texts: tuple[str, ...] = ()
    per_day: int = 1
    key: type | None = None

    def read(self, fetched: npt.NDArray[Any], state: npt.NDArray[Any] | None) -> Values64:
        """Return what was fetched, with flags instead of sentinels."""
        if self.whole:
            return read_whole(fetched.astype(np.int64, copy=False), self.per_day)
        return read_number(fetched.astype(np.float64, copy=False), state)


@dataclass(frozen=True, slots=True)
class UnitIdentity:
    """How the privacy unit of a row is fetched: its value, and whether there is one.

    ``dtype`` is float64 for doubles, int64 for whole numbers and instants, object for text.
    """

    value: str
    known: str
    dtype: type


def read_whole(fetched: Counts, per_day: int = 1) -> Values64:
    """Read whole numbers with sentinels; instants become days.

    ``fetched`` is (rows,).

    >>> read_whole(np.array([86_400, -1, MISSING, UNKNOWN]), 86_400).numbers[:2].tolist()
    [1, -1]
    """
    missing, unknown = fetched == MISSING, fetched == UNKNOWN
    return Values64(fetched if per_day == 1 else fetched // per_day, missing, unknown)


def read_number(fetched: Floats, state: npt.NDArray[Any] | None = None) -> Values64:
    """Read doubles; NaN is missing, unless it stands for a text that is no number.

    ``fetched`` and ``state`` are (rows,).
    """
    unknown = np.zeros(len(fetched), dtype=np.bool_) if state is None else state == NOT_FOUND
    return Values64(fetched, np.isnan(fetched) & ~unknown, np.asarray(unknown, dtype=np.bool_))


def fetch_column(asked: Asked, raw: str, stored: str, index: int) -> Fetch:
    """Fetch an asked column; ``raw`` is its quoted name and ``stored`` its type."""
    match asked.form:
        case "place":
            text = f"TRY_CAST(CAST({raw} AS VARCHAR) AS e{index})"
            code = f"CAST(enum_code({text}) AS BIGINT)" if asked.texts else "CAST(NULL AS BIGINT)"
            return Fetch(whole_sql(raw, code), True, texts=asked.texts)
        case "boolean":
            return Fetch(whole_sql(raw, f"CAST(TRY_CAST({raw} AS BOOLEAN) AS BIGINT)"), True)
        case "day":
            instant, per_day = _instant(raw, stored)
            return Fetch(whole_sql(raw, instant), True, per_day=per_day)
        case "clock":
            shown, per_micro = _clock(raw, stored, asked.zone)
            return Fetch(whole_sql(raw, shown), True, per_day=per_micro)
        case "time":
            return Fetch(whole_sql(raw, f"TRY(epoch_us(TRY_CAST({raw} AS TIME)))"), True)
        case "whole" if stored in SHORT and stored != "BIGINT":  # is known, and no sentinel
            return Fetch(f"COALESCE(TRY_CAST({raw} AS BIGINT), {_least(0)})", True)
        case "whole":
            return Fetch(whole_sql(raw, f"TRY_CAST({raw} AS BIGINT)"), True)
    number = f"TRY_CAST({raw} AS DOUBLE)"
    state = f"CASE WHEN {raw} IS NULL THEN 1 WHEN {number} IS NULL THEN 2 ELSE 0 END"
    is_text = family(stored) == "text"
    return Fetch(number, False, f"CAST({state} AS UTINYINT)" if is_text else None)


def identity_of(stored: str) -> str:
    """Return what a type has in common with those in which the same value has the same identity.

    >>> identity_of("BIGINT"), identity_of("DECIMAL(9,2)"), identity_of("UUID")
    ('integer', 'decimal with 2 places', 'uuid')
    """
    kind = family(stored)
    if kind == "decimal":
        return f"decimal with {stored.rstrip(')').rpartition(',')[2]} places"
    return stored.lower() if kind == "other" else kind


def fetch_unit(raw: str, stored: str, valid: str) -> UnitIdentity:
    """Fetch the privacy unit; ``valid`` says when a text is what the file holds."""
    kind, known = family(stored), f"{raw} IS NOT NULL"
    if kind == "float":
        return UnitIdentity(f"COALESCE(CAST({raw} AS DOUBLE), 0)", known, np.float64)
    if kind in ("date", "timestamp"):
        instant, _ = _instant(raw, stored)
        return UnitIdentity(f"COALESCE({instant}, 0)", f"{instant} IS NOT NULL", np.int64)
    if kind == "boolean" or stored in SHORT:
        return UnitIdentity(f"COALESCE(TRY_CAST({raw} AS BIGINT), 0)", known, np.int64)
    text = f"hex({raw})" if stored == "BLOB" else f"TRY_CAST({raw} AS VARCHAR)"
    return UnitIdentity(f"COALESCE({text}, '')", f"({text} IS NOT NULL AND {valid})", object)


def whole_sql(raw: str, value: str) -> str:
    """Return whole numbers without NULL: a missing raw value and an unknown one are told apart."""
    known = f"GREATEST(COALESCE({value}, {_least(1)}), {_least(1)})"
    return f"CASE WHEN {raw} IS NULL THEN {_least(0)} ELSE {known} END"


def _least(more: int) -> str:
    return f"CAST('{MISSING + more}' AS BIGINT)"


def _instant(raw: str, stored: str) -> tuple[str, int]:
    """Return days, or parts of days, since 1970 in UTC, and how many make a day."""
    if family(stored) != "timestamp":
        day = f"TRY_CAST({raw} AS DATE)"
        return f"TRY(CASE WHEN isfinite({day}) THEN {day} - {FIRST_DAY} END)", 1
    if stored in ("TIMESTAMP_NS", "TIMESTAMPTZ_NS"):
        return f"TRY(epoch_ns({raw}))", DAY * 10**9
    return f"TRY(epoch_us({raw}))", DAY * 10**6


def _clock(raw: str, stored: str, zone: str) -> tuple[str, int]:
    """Return microseconds since 1970, or parts of them, on the clock of a zone.

    Times without a zone stay. The second is how many make a microsecond.
    """
    if stored == "TIMESTAMP_NS":
        return f"TRY(epoch_ns({raw}))", 1000
    if stored == "TIMESTAMPTZ_NS":
        nanos = f"epoch_ns({raw})"
        whole = f"({nanos} - ({nanos} % 1000 + 1000) % 1000) // 1000"
        return f"TRY(epoch_us(timezone({literal(zone)}, make_timestamptz({whole}))))", 1
    if stored == "TIMESTAMP WITH TIME ZONE":
        return f"TRY(epoch_us(timezone({literal(zone)}, {raw})))", 1
    return f"TRY(epoch_us(TRY_CAST({raw} AS TIMESTAMP)))", 1
