"""The leaves of PostgreSQL: what it is sent, and why each expression cannot raise.

A native type is the name of a base type: domains are seen through, and ``numeric()`` is one with a
declared scale. Operators and functions are those of pg_catalog, which alone is searched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from dpsql.privacy.vault.data_engine import NESTED, RequestedColumn
from dpsql.privacy.vault.dialect import Dialect, FetchedSql, OwnerSql
from dpsql.privacy.vault.files.database import quote
from dpsql.privacy.vault.files.source import literal

STORED_IN = {
    "integer": ("int2", "int4", "int8"),
    "float": ("float4", "float8"),
    "decimal": ("numeric", "numeric()"),
    "boolean": ("bool",),
    "text": ("text", "varchar", "bpchar", "citext", "name", "enum"),
    "date": ("date",),
    "timestamp": ("timestamp", "timestamptz"),
    "time": ("time",),
    "other": ("uuid", "bytea", "timetz"),
}
USUAL = {"integer": "int8", "number": "float8", "decimal": "numeric", "boolean": "bool"}
FEW = 16
"""Steps up to which a tree of CASE is as fast as a search in an array."""
SOME = 64
"""Texts up to which a list of them is searched; longer ones are searched by digest."""
FIRST = "date '1970-01-01'"
ENDS = "'4000-01-01 BC'", "'290000-01-01'"
"""Between these, microseconds since 1970 fit a BIGINT in every zone."""


def family_of(stored: str) -> str:
    """Return the family of a native type.

    >>> family_of("citext"), family_of("numeric()"), family_of("_int4")
    ('text', 'decimal', 'nested')
    """
    return next((key for key, names in STORED_IN.items() if stored in names), NESTED)


class PostgresDialect(Dialect):
    """The dialect of PostgreSQL, from version 14 on."""

    usual = USUAL
    fence = " OFFSET 0"

    def identifier(self, name: str) -> str:
        return quote(name)

    def literal(self, text: str) -> str:
        return f"CAST({literal(text)} AS text)"

    def double(self, value: float) -> str:
        return f"CAST('{value!r}' AS float8)"

    def fetch(self, asked: RequestedColumn, column: str, stored: str) -> FetchedSql:
        missing = f"({column} IS NULL)"
        match asked.form:
            case "place":
                return FetchedSql(self._place(_text(column), asked.texts), missing)
            case "boolean":
                return FetchedSql(f"CAST(CAST({column} AS int) AS bigint)", missing)
            case "whole":
                return FetchedSql(f"CAST({column} AS bigint)", missing)
            case "day":
                return FetchedSql(_days(column, stored), missing)
            case "clock":
                return FetchedSql(_micros(column, stored, asked.zone), missing)
            case "time":
                found = f"CAST(extract(epoch FROM {column}) * 1000000 AS bigint)"
                return FetchedSql(found, missing)
        if family_of(stored) == "integer":
            return FetchedSql(f"CAST({column} AS float8)", missing)
        kind = "numeric" if family_of(stored) == "decimal" else "float8"
        return FetchedSql(_number(column, stored), f"(NOT {_is_number(column, kind)})")

    def _place(self, text: str, texts: Sequence[str]) -> str:
        """The place of a text in a list; what cannot be stored is nowhere."""
        storable = [(each, i) for i, each in enumerate(texts) if _is_storable(each)]
        if len(storable) <= FEW:
            pairs = (f"WHEN {text} = {literal(one)} THEN {self.whole(i)}" for one, i in storable)
            return f"CASE {' '.join(pairs)} END" if storable else "CAST(NULL AS bigint)"
        if len(storable) > SOME:
            return self._place_of_many(text, storable)
        storable.sort()
        ordered = f"ARRAY[{', '.join(literal(each) for each, _ in storable)}]::text[]"
        found = f"width_bucket({text}, {ordered})"
        places = self._array([i for _, i in storable], "bigint")
        return f"CASE WHEN ({ordered})[{found}] = {text} THEN ({places})[{found}] END"

    def _place_of_many(self, text: str, storable: Sequence[tuple[str, int]]) -> str:
        """The place of a text in a long list, by its digest: arrays of texts are walked through."""
        halves = sorted((*_halves(one), i) for one, i in storable)
        firsts, seconds, places = (
            self._array([each[k] for each in halves], "bigint") for k in range(3)
        )
        first, second = (
            f"CAST(CAST('x' || {side}(md5({text}), 16) AS bit(64)) AS bigint)"
            for side in ("left", "right")
        )
        found = f"width_bucket({first}, {firsts})"
        same = f"({firsts})[{found}] = {first} AND ({seconds})[{found}] = {second}"
        return f"CASE WHEN {same} THEN ({places})[{found}] END"

    def owner(self, column: str, stored: str) -> OwnerSql:
        known = f"({column} IS NOT NULL)"
        match family_of(stored):
            case "float":
                double = f"(CAST({column} AS float8) + CAST(0 AS float8))"
                bits = (
                    f"CAST(CAST('x' || encode(float8send({double}), 'hex') AS bit(64)) AS bigint)"
                )
                return OwnerSql(bits, f"CAST({bits} AS text)", _is_number(column, "float8"))
            case "decimal":
                plain = column if stored == "numeric()" else f"trim_scale({column})"
                text = f'(CAST({plain} AS text) COLLATE "C")'
                return OwnerSql(text, text, _is_number(column, "numeric"))
            case "date" | "timestamp" as kind:
                found = _days(column, stored) if kind == "date" else _micros(column, stored, "UTC")
                return OwnerSql(found, f"CAST({found} AS text)", f"({found} IS NOT NULL)")
            case "integer" | "boolean":
                whole = f"CAST(CAST({column} AS int) AS bigint)"
                whole = whole if stored == "bool" else f"CAST({column} AS bigint)"
                return OwnerSql(whole, f"CAST({whole} AS text)", known)
        text = (
            f"(upper(encode({column}, 'hex')) COLLATE \"C\")"
            if stored == "bytea"
            else _text(column)
        )
        return OwnerSql(text, text, known)

    def to_whole(self, double: str) -> str:
        return f"CAST({double} AS bigint)"

    def to_double(self, whole: str) -> str:
        return f"CAST({whole} AS float8)"

    def rounded(self, double: str) -> str:
        return f"round({double})"

    def divided(self, whole: str, by: int) -> str:
        return f"({whole} / {self.whole(by)})"

    def md5(self, texts: Sequence[str]) -> str:
        return f"md5(concat_ws('|', {', '.join(texts)}))"

    def first_digits(self, digest: str, digits: int) -> str:
        return f'(left({digest}, {digits}) COLLATE "C")'

    def bucket(self, value: str, edges: Sequence[int] | Sequence[float]) -> str:
        if len(edges) <= FEW:
            return super().bucket(value, edges)
        kind = "bigint" if isinstance(edges[0], int) else "float8"
        return f"CAST(width_bucket({value}, {self._array(edges, kind)}) AS bigint)"

    def look_up(self, place: str, values: Sequence[int] | Sequence[float]) -> str:
        if sum(one != two for one, two in zip(values[1:], values, strict=False)) < FEW:
            return super().look_up(place, values)
        kind = "bigint" if isinstance(values[0], int) else "float8"
        return f"({self._array(values, kind)})[CAST({place} AS int) + 1]"

    def _array(self, values: Sequence[int] | Sequence[float], kind: str) -> str:
        return f"CAST('{{{','.join(map(repr, values))}}}' AS {kind}[])"


DIALECT = PostgresDialect()


def _halves(text: str) -> tuple[int, int]:
    """The md5 digest of a text as two BIGINTs."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], signed=True), int.from_bytes(digest[8:], signed=True)


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def _text(column: str) -> str:
    """A text, byte by byte: trailing blanks of char(n) are no part of it."""
    return f'(CAST({column} AS text) COLLATE "C")'


def _is_number(column: str, kind: str) -> str:
    return f"COALESCE({column} <> CAST('NaN' AS {kind}), false)"


def _number(column: str, stored: str) -> str:
    """A double; a numeric is brought near zero or into range before it is cast."""
    if family_of(stored) != "decimal":
        return f"CAST({column} AS float8)"
    near = f"round(LEAST(GREATEST({column}, -1e30), 1e30), 40)"
    is_nan = f"{column} = CAST('NaN' AS numeric)"
    return f"CASE WHEN {is_nan} THEN CAST('NaN' AS float8) ELSE CAST({near} AS float8) END"


def _days(column: str, stored: str) -> str:
    """Days since 1970 in UTC; no infinity is cast or subtracted from."""
    day = column if stored == "date" else f"CAST({_instant(column, stored, 'UTC')} AS date)"
    return f"CASE WHEN isfinite({column}) THEN CAST({day} - {FIRST} AS bigint) END"


def _micros(column: str, stored: str, zone: str) -> str:
    """Microseconds since 1970 on the clock of a zone."""
    first, last = (f"CAST({each} AS {stored})" for each in ENDS)
    if stored == "date":
        found = f"CAST({column} - {FIRST} AS bigint) * {86_400 * 10**6}"
    else:
        found = f"CAST(extract(epoch FROM {_instant(column, stored, zone)}) * 1000000 AS bigint)"
    return f"CASE WHEN {column} > {first} AND {column} < {last} THEN {found} END"


def _instant(column: str, stored: str, zone: str) -> str:
    return column if stored == "timestamp" else f"({column} AT TIME ZONE {literal(zone)})"
