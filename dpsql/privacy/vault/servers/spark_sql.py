"""The leaves of Spark: what it is sent, and why each expression cannot raise.

A native type is what Spark calls it, as in ``decimal(38,2)``; ``char`` is one that is padded. ANSI
mode is on, so that a cast or a sum out of range raises: casts are tried, and what may overflow
stands behind CASE.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.privacy.vault.data_engine import NESTED, RequestedColumn
from dpsql.privacy.vault.dialect import TREE, Dialect, FetchedSql, OwnerSql

STORED_IN = {
    "integer": ("tinyint", "smallint", "int", "bigint"),
    "float": ("float", "double"),
    "decimal": ("decimal",),
    "boolean": ("boolean",),
    "text": ("string", "varchar", "char"),
    "date": ("date",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "other": ("binary",),
}
USUAL = {"text": "string", "integer": "bigint", "number": "double", "decimal": "decimal(38,6)"}
FEW = 16
"""Steps up to which a tree of CASE is as fast as a look into an array."""
FAR_DAY = (1 << 31) - 1
"""As many days before and after 1970 stand for infinities, as they do in files."""
DAY = 86_400 * 10**6
FAR = 9_200_000_000_000_000_000
"""Up to this many microseconds from 1970, clocks of every zone fit a BIGINT."""
INFINITY = 0x7FF0000000000000
"""The bits of an infinite double."""
PLAIN = frozenset(" !#%&()*+,-./:;<=>?@[]^_{|}~")
PATTERN = frozenset("{}[]*?\\")
"""Characters that make a path a pattern to Spark, which reads all that matches it."""


def family_of(stored: str) -> str:
    """Return the family of a native type.

    >>> family_of("decimal(38,2)"), family_of("string collate UTF8_LCASE"), family_of("array<int>")
    ('decimal', 'text', 'nested')
    """
    word = stored.partition("(")[0].partition(" ")[0]
    return next((key for key, names in STORED_IN.items() if word in names), NESTED)


class SparkDialect(Dialect):
    """The dialect of Spark, from version 4 on."""

    usual = USUAL

    def identifier(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def literal(self, text: str) -> str:
        if all(each in PLAIN or (each.isascii() and each.isalnum()) for each in text):
            return f"'{text}'"
        return f"CAST(X'{text.encode().hex()}' AS string)"

    def double(self, value: float) -> str:
        return f"CAST('{value!r}' AS double)"

    def whole(self, value: int) -> str:
        return f"{value}L" if value >= 0 else f"({value}L)"

    def fetch(self, asked: RequestedColumn, column: str, stored: str) -> FetchedSql:
        missing = f"({column} IS NULL)"
        match asked.form:
            case "place":
                return FetchedSql(self._place(_text(column, stored), asked.texts), missing)
            case "boolean" | "whole":
                return FetchedSql(f"CAST({column} AS bigint)", missing)
            case "day":
                return FetchedSql(_days(column, stored), missing)
            case "clock":
                return FetchedSql(self._micros(column, stored, asked.zone), missing)
        if family_of(stored) == "float":
            missing = f"({column} IS NULL OR isnan({column}))"
        return FetchedSql(f"CAST({column} AS double)", missing)

    def _place(self, text: str, texts: Sequence[str]) -> str:
        """The place of a text in a list, of which a long one is joined."""
        pairs = [(self.literal(one), self.whole(i)) for i, one in enumerate(texts) if _is_text(one)]
        if not pairs:
            return "CAST(NULL AS bigint)"
        if len(pairs) <= TREE:
            return f"CASE {' '.join(f'WHEN {text} = {one} THEN {i}' for one, i in pairs)} END"
        listed = ", ".join(f"({one}, {i})" for one, i in pairs)
        return f"(SELECT max(p.i) FROM VALUES {listed} AS p(k, i) WHERE p.k = {text})"

    def owner(self, column: str, stored: str) -> OwnerSql:
        known = f"({column} IS NOT NULL)"
        match family_of(stored):
            case "float":
                bits = self._bits(f"(CAST({column} AS double) + CAST('0' AS double))")
                known = f"({column} IS NOT NULL AND NOT isnan({column}))"
                return OwnerSql(bits, f"CAST({bits} AS string)", known)
            case "date" | "timestamp" as kind:
                is_day = kind == "date"
                found = _days(column, stored) if is_day else self._micros(column, stored, "UTC")
                return OwnerSql(found, f"CAST({found} AS string)", f"({found} IS NOT NULL)")
            case "integer" | "boolean":
                whole = f"CAST({column} AS bigint)"
                return OwnerSql(whole, f"CAST({whole} AS string)", known)
            case "decimal":
                text = f"CAST({column} AS string)"
            case "text":
                text = _text(column, stored)
                known = f"({column} IS NOT NULL AND is_valid_utf8({column}))"
            case _:
                text = f"hex({column})"
        return OwnerSql(text, text, known)

    def _bits(self, double: str) -> str:
        """The bits of a double as a whole number, from its hexadecimal digits."""
        shown = f"format_string('%a', abs({double}))"
        digits = f"rpad(substring_index(substring({shown}, 5), 'p', 1), 13, '0')"
        mantissa = f"try_cast(conv({digits}, 16, 10) AS bigint)"
        exponent = f"try_cast(substring_index({shown}, 'p', -1) AS bigint) + 1023L"
        normal = f"CASE WHEN {shown} LIKE '0x1%' THEN ({exponent}) * {1 << 52}L ELSE 0L END"
        bits = f"CASE WHEN {shown} LIKE 'I%' THEN {INFINITY}L ELSE {normal} + {mantissa} END"
        sign = f"CASE WHEN {double} < 0 THEN (-9223372036854775808L) ELSE 0L END"
        return f"({sign} + {bits})"

    def _micros(self, column: str, stored: str, zone: str) -> str:
        """Microseconds since 1970 on the clock of a zone; NULL for what stands for an infinity."""
        if stored == "date":
            days = f"CAST(unix_date({column}) AS bigint)"
            far = FAR // DAY
            return f"CASE WHEN {days} BETWEEN (-{far}L) AND {far}L THEN {days} * {DAY}L END"
        instant = column if stored == "timestamp" else f"CAST({column} AS timestamp)"
        found = f"unix_micros({instant})"
        shown = found
        if stored == "timestamp" and zone != "UTC":
            shown = f"unix_micros(from_utc_timestamp({column}, {self.literal(zone)}))"
        return f"CASE WHEN {found} BETWEEN (-{FAR}L) AND {FAR}L THEN {shown} END"

    def to_whole(self, double: str) -> str:
        return f"try_cast({double} AS bigint)"

    def to_double(self, whole: str) -> str:
        return f"CAST({whole} AS double)"

    def rounded(self, double: str) -> str:
        return f"rint({double})"

    def divided(self, whole: str, by: int) -> str:
        return f"({whole} div {self.whole(by)})"

    def md5(self, texts: Sequence[str]) -> str:
        listed = ", ".join(f"CAST({each} AS string)" for each in texts)
        return f"md5(CAST(concat_ws('|', {listed}) AS binary))"

    def first_digits(self, digest: str, digits: int) -> str:
        return f"left({digest}, {digits})"

    def look_up(self, place: str, values: Sequence[int] | Sequence[float]) -> str:
        if sum(one != two for one, two in zip(values[1:], values, strict=False)) < FEW:
            return super().look_up(place, values)
        kind = "bigint" if isinstance(values[0], int) else "double"
        listed = f"CAST(split('{','.join(map(repr, values))}', ',') AS array<{kind}>)"
        return f"get({listed}, try_cast({place} AS int))"


DIALECT = SparkDialect()


def plain_path(path: str) -> str:
    r"""Write a path so that Spark reads what is called so, and nothing that a pattern would match.

    >>> plain_path("/visits/{a,b}")
    '/visits/\\{a,b\\}'
    """
    return "".join(f"\\{each}" if each in PATTERN else each for each in path)


def _is_text(text: str) -> bool:
    return not any("\ud800" <= each <= "\udfff" for each in text)


def _text(column: str, stored: str) -> str:
    """A text, byte by byte, whatever the collation; blanks of char(n) are no part of it."""
    found = f"rtrim({column})" if stored == "char" else column
    return f"({found} COLLATE UTF8_BINARY)"


def _days(column: str, stored: str) -> str:
    """Days since 1970 in UTC; NULL for what stands for an infinity."""
    days = f"unix_date({column if stored == 'date' else f'CAST({column} AS date)'})"
    return f"CASE WHEN {days} NOT IN (-{FAR_DAY}, {FAR_DAY}) THEN CAST({days} AS bigint) END"
