"""Stored types by family: all that is ever told of them, since a type can quote values."""

from __future__ import annotations

FAMILIES = {
    "integer": (
        *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    ),
    "float": ("FLOAT", "DOUBLE"),
    "decimal": ("DECIMAL",),
    "boolean": ("BOOLEAN",),
    "text": ("VARCHAR",),
    "date": ("DATE",),
    "timestamp": (
        *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
        "TIMESTAMP WITH TIME ZONE",
    ),
    "other": ("UUID", "BLOB", "TIME", "BIT", "BIGNUM"),
}
ACCEPTED = {
    "integer": ("integer", "float", "decimal"),
    "number": ("integer", "float", "decimal"),
    "text": ("text",),
    "boolean": ("boolean", "integer"),
    "date": ("date", "timestamp"),
}
NESTED = "NESTED"
SHORT = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
"""Integers that fit 64 bits with a sign."""


def safe_type(duckdb_type: str) -> str:
    """Return a DuckDB type without the values that an ENUM lists.

    >>> safe_type("ENUM('Alice', 'Bob')"), safe_type("ENUM('Alice')[]"), safe_type("DECIMAL(9,2)")
    ('VARCHAR', 'NESTED', 'DECIMAL(9,2)')
    """
    if duckdb_type.startswith("ENUM(") and duckdb_type.endswith(")"):
        return "VARCHAR"
    return duckdb_type if family(duckdb_type) else NESTED


def family(duckdb_type: str) -> str | None:
    """Return the family of a DuckDB type, or None for nested and unknown types.

    >>> family("DECIMAL(18,3)"), family("INTEGER[]"), family("STRUCT(a DATE)")
    ('decimal', None, None)
    """
    if duckdb_type.endswith("]"):
        return None
    name = duckdb_type.partition("(")[0].strip().upper()
    return next((key for key, names in FAMILIES.items() if name in names), None)
