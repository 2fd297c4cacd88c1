"""Visits of patients, with columns of every kind that a row can be left out for."""

from __future__ import annotations

from tests.support.tables import Tables

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-9

[table.visits]
source = "visits.parquet"
privacy_unit = { column = "patient_id", max_rows = 4 }

[table.visits.column]
ward = { type = "text", domain = ["A", "B"], other = true, null = true }
severity = { type = "integer", domain = [1, 5] }
kind = { type = "text", domain = ["x", "y"], other = true }
age = { type = "integer", domain = [0, 99], null = true }
day = { type = "date", domain = ["2024-01-01", "2024-12-31"], by = "day", null = true }
cost = { type = "number", bounds = [0, 100] }
score = { type = "number", bounds = [0, 10], null = true }

[table.plain]
source = "plain.parquet"
privacy_unit = "row"

[table.plain.column]
ward = { type = "text", domain = ["A", "B"], other = true, null = true }

[table.bands]
source = "bands.parquet"
public = true

[table.bands.column]
low = { type = "integer" }
label = { type = "text" }
"""

TABLES: Tables = {
    "visits": "SELECT i // 4 AS patient_id,"
    " CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN 'C' ELSE 'A' END AS ward,"
    " CASE WHEN i % 10 < 7 THEN i % 10 END AS severity,"
    " CASE WHEN i % 3 > 0 THEN 'x' END AS kind, i % 120 AS age,"
    " DATE '2024-01-01' + CAST(i % 400 AS INTEGER) AS day,"
    " CASE WHEN i % 7 > 0 THEN i % 100 END AS cost,"
    " CASE WHEN i % 2 = 0 THEN i % 9 END AS score FROM range(4000) v(i)",
    "plain": "SELECT ward FROM visits",
    "bands": ("low INTEGER, label VARCHAR", [(1, "one"), (2, "two")]),
}

INSIDE = {
    "severity": "severity BETWEEN 1 AND 5",
    "kind": "kind IS NOT NULL",
    "age": "(age IS NULL OR age BETWEEN 0 AND 99)",
    "day": "(day IS NULL OR day BETWEEN DATE '2024-01-01' AND DATE '2024-12-31')",
    "cost": "cost IS NOT NULL",
}
"""When a row is inside the view of a column; the others take every row."""
