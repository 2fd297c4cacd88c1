"""Fetching of columns of files in SQL, and reading of what DuckDB hands over.

A column arrives as whole numbers with two sentinels, or as doubles whose NaN is "missing". Nothing
in an expression can raise for any value: what cannot be converted is ``UNKNOWN``.

Guarantee: no conversion fails, since what would fail is left out before by a test that costs the
same for every value: so what a row takes does not show whether its value is declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.privacy.vault.data_engine import Counts, Flags, Floats, Form, RequestedColumn, Values64
from dpsql.privacy.vault.files.csv_patterns import pattern
from dpsql.privacy.vault.files.source import SHORT, family, literal
from dpsql.records import dataclass, field

MISSING = -(1 << 63)
"""NULL among whole numbers."""
UNKNOWN = MISSING + 1
"""A value that is no number, no date or no listed text. Declared numbers are far from both."""
NOT_FOUND = 2
"""The state of a text that is no number."""
FIRST_DAY = "DATE '1970-01-01'"
DAY = 86_400
CATALOG = "0001-01-01 (BC)", "10001-01-01"
"""Between these lie the years of the catalog, 1 to 9999, on the clock of every zone."""
MICROS = "290308-01-01 (BC)", "294246-01-01"
"""Between these lie instants that 64 bits hold in microseconds."""
SPARE, MOST_BITS = 4, 16
"""Buckets for every listed text, at least; and in bits, up to how many, so that none has two."""


class TextPlaces:
    """The places of texts in a list, found by their hashes, of which there are buckets.

    Guarantee: elementwise, and by the same steps whether a text is listed or not. A text that is
    not listed and has the hash of one that is counts as that one: one text in 2^63 by chance.
    """

    def __init__(self, hashes: Counts) -> None:
        order = np.argsort(hashes, kind="stable")
        for bits in range((len(hashes) * SPARE).bit_length(), 64):
            # Hashes are of 63 bits, the first of which are the bucket.
            counts = np.bincount(hashes >> np.int64(63 - bits), minlength=1 << bits)
            if counts.max() <= 1 or bits >= MOST_BITS:
                break
        self._shift = np.int64(63 - bits)
        steps, starts = int(counts.max()), np.cumsum(counts) - counts
        tables = [starts + step for step in range(steps)]
        found = [np.where(step < counts, at, len(hashes)) for step, at in enumerate(tables)]
        self._steps = [(np.append(hashes[order], -1)[at], np.append(order, 0)[at]) for at in found]

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, texts: Sequence[str]) -> TextPlaces:
        """Ask DuckDB for the hashes of declared texts."""
        listed = "SELECT unnest(CAST($1 AS VARCHAR[])) AS text"
        found = connection.execute(f"SELECT {hash_sql('text')} AS h FROM ({listed})", [[*texts]])
        return cls(np.asarray(found.fetchnumpy()["h"], dtype=np.int64))

    def find(self, hashes: Counts) -> tuple[Counts, Flags]:
        """Return the places of texts (rows,) by their hashes, -1 without one, and which have one.

        >>> [each.tolist() for each in TextPlaces(np.array([7, 9])).find(np.array([9, MISSING, 5]))]
        [[1, -1, -1], [True, False, False]]
        """
        buckets = hashes >> self._shift  # that of MISSING is counted from the end: the first one
        found, is_listed = np.full(len(hashes), -1), np.zeros(len(hashes), dtype=np.bool_)
        for theirs, places in self._steps:
            same = theirs[buckets] == hashes
            np.copyto(found, places[buckets], where=same)
            is_listed |= same
        return found, is_listed


@dataclass(frozen=True, slots=True)
class Fetch:
    """The expressions that fetch one column.

    ``value`` gives whole numbers (days, if ``per_day`` is 1, hashes of texts, 0 and 1) or
    doubles. ``state`` is needed beside doubles that come from text: 0 where there is a number, 1
    where the text is missing, 2 where it is no number. Of ``texts`` hashes come, and ``places``
    says where those of the list are. A key has values of type ``key``; its state says whether
    there is one.
    """

    value: str
    whole: bool
    state: str | None = None
    texts: tuple[str, ...] = ()
    per_day: int = 1
    key: type | None = None
    places: TextPlaces | None = field(default=None, compare=False)

    def read(self, fetched: npt.NDArray[Any], state: npt.NDArray[Any] | None) -> Values64:
        """Return what was fetched, with flags instead of sentinels.

        Args:
            fetched: (rows,) values, or sentinels for what is missing.
            state: (rows,) what tells NULL from values of no code; None where sentinels do.
        """
        if self.places is not None:
            numbers, is_listed = self.places.find(fetched)
            missing = fetched == MISSING
            return Values64(numbers, missing, ~(is_listed | missing))
        if self.whole:
            return read_whole(fetched.astype(np.int64, copy=False), self.per_day)
        return read_number(fetched.astype(np.float64, copy=False), state)


@dataclass(frozen=True, slots=True)
class UnitIdentity:
    """The expressions that fetch the privacy unit of a row: its value, and whether there is one.

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


def fetch_column(asked: RequestedColumn, raw: str, stored: str) -> Fetch:
    """Fetch an asked column; ``raw`` is its quoted name and ``stored`` its type."""
    is_text = family(stored) == "text"
    match asked.form:
        case "place":
            return Fetch(whole_sql(raw, hash_sql(raw)), True, texts=asked.texts)
        case "boolean":
            flag = _spelled(raw, "boolean", "BOOLEAN") if is_text else raw
            return Fetch(whole_sql(raw, f"CAST({flag} AS BIGINT)"), True)
        case "day":
            instant, per_day = _instant(raw, stored)
            return Fetch(whole_sql(raw, instant), True, per_day=per_day)
        case "clock":
            shown, per_micro = _clock(raw, stored, asked.zone)
            return Fetch(whole_sql(raw, shown), True, per_day=per_micro)
        case "time":
            time = _spelled(raw, "time", "TIME") if is_text else f"CAST({raw} AS TIME)"
            return Fetch(whole_sql(raw, f"epoch_us({time})"), True)
        case "whole" if stored in SHORT and stored != "BIGINT":  # is known, and no sentinel
            return Fetch(f"COALESCE(CAST({raw} AS BIGINT), {_least(0)})", True)
        case "whole":
            return Fetch(whole_sql(raw, narrow_sql(raw, stored)), True)
    if not is_text:
        return Fetch(_number(f"CAST({raw} AS DOUBLE)"), False)
    state = f"CASE WHEN {raw} IS NULL THEN 1 WHEN NOT {_fits(raw, 'number')} THEN 2 ELSE 0 END"
    number = _number(_spelled(raw, "number", "DOUBLE"))
    return Fetch(number, False, f"CAST({state} AS UTINYINT)")


def hash_sql(raw: str) -> str:
    """Return a number of 63 bits for a text: another one for another text, but for one in 2^63."""
    return f"CAST(hash(CAST({raw} AS VARCHAR)) >> 1 AS BIGINT)"


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


def _number(value: str) -> str:
    """Return doubles without NULL, so that one of them makes no difference to those beside it."""
    return f"COALESCE({value}, CAST('NaN' AS DOUBLE))"


def _fits(raw: str, form: Form) -> str:
    return f"regexp_full_match({raw}, {literal(pattern(form))})"


def _spelled(raw: str, form: Form, kind: str) -> str:
    """Convert a text that has the form of a value; NULL for all others."""
    return f"CASE WHEN {_fits(raw, form)} THEN TRY_CAST({raw} AS {kind}) END"


def narrow_sql(raw: str, stored: str) -> str:
    """Convert whole numbers; NULL for those that do not fit 64 bits."""
    if stored in SHORT:
        return f"CAST({raw} AS BIGINT)"
    low = 0 if stored.startswith("U") else MISSING
    fits = f"{raw} BETWEEN CAST('{low}' AS {stored}) AND CAST('{-1 - MISSING}' AS {stored})"
    return f"CASE WHEN {fits} THEN TRY_CAST({raw} AS BIGINT) END"


def _within(raw: str, kind: str, years: tuple[str, str]) -> str:
    """Return days or instants of some years, NULL for others."""
    first, last = (f"CAST('{each}' AS {kind})" for each in years)
    return f"CASE WHEN {raw} BETWEEN {first} AND {last} THEN {raw} END"


def _instant(raw: str, stored: str) -> tuple[str, int]:
    """Return days, or parts of days, since 1970 in UTC, and how many make a day."""
    kind = family(stored)
    if kind == "text":
        return f"{_spelled(raw, 'day', 'DATE')} - {FIRST_DAY}", 1
    if kind != "timestamp":
        return f"CASE WHEN isfinite({raw}) THEN {raw} - {FIRST_DAY} END", 1
    if stored in ("TIMESTAMP_NS", "TIMESTAMPTZ_NS"):
        return f"TRY(epoch_ns({raw}))", DAY * 10**9
    return f"TRY(epoch_us({_micros(raw, stored)}))", DAY * 10**6


def _clock(raw: str, stored: str, zone: str) -> tuple[str, int]:
    """Return microseconds since 1970, or parts of them, on the clock of a zone.

    Times without a zone stay. The second is how many make a microsecond.
    """
    if family(stored) == "text":
        return f"epoch_us({_spelled(raw, 'clock', 'TIMESTAMP')})", 1
    if stored == "TIMESTAMP_NS":
        return f"TRY(epoch_ns({raw}))", 1000
    if stored == "TIMESTAMPTZ_NS":
        nanos = f"epoch_ns({raw})"
        whole = f"({nanos} - ({nanos} % 1000 + 1000) % 1000) // 1000"
        return f"TRY(epoch_us(timezone({literal(zone)}, make_timestamptz({whole}))))", 1
    if stored == "TIMESTAMP WITH TIME ZONE":
        return f"TRY(epoch_us(timezone({literal(zone)}, {_within(raw, stored, CATALOG)})))", 1
    if family(stored) == "date":
        return f"TRY(epoch_us(CAST({_within(raw, stored, CATALOG)} AS TIMESTAMP)))", 1
    return f"TRY(epoch_us({_micros(raw, stored)}))", 1


def _micros(raw: str, stored: str) -> str:
    """Return instants in microseconds, NULL for those that 64 bits do not hold."""
    if stored in ("TIMESTAMP_S", "TIMESTAMP_MS"):
        return f"TRY_CAST({_within(raw, stored, MICROS)} AS TIMESTAMP)"
    return raw
