"""Functions that are admitted by name are deterministic functions of DuckDB."""

from __future__ import annotations

import duckdb

from dpsql.sql.admitted import NAMED, RANDOM


def test_functions_admitted_by_name_are_deterministic() -> None:
    asked = "SELECT function_name, stability FROM duckdb_functions() WHERE function_type = 'scalar'"
    macros = "SELECT function_name FROM duckdb_functions() WHERE function_type = 'macro'"
    with duckdb.connect() as database:
        known = database.execute(asked).fetchall()
        plain = {row[0].lower() for row in database.execute(macros).fetchall()}
    steady = {name.lower() for name, stability in known if stability == "CONSISTENT"}
    varying = {name.lower() for name, stability in known if stability != "CONSISTENT"}
    assert steady | plain >= NAMED
    assert not NAMED & (varying | RANDOM)
