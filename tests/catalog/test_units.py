"""Units that tables share: whose a row is, what it refers to, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.catalog import Catalog
from dpsql.catalog.catalog import Reference, Unit
from dpsql.catalog.read import read_catalog
from dpsql.errors import CatalogError
from dpsql.relation.unit_local import DerivedTable, Scan

HEAD = """
[budget]
epsilon = 3.0
[unit.patient]
[table.patients]
source = "patients.parquet"
privacy_unit = { column = "patient_id", max_rows = 1 }
[table.patients.column]
sex = { type = "text", domain = ["f", "m"] }
"""
VISITS = """
[table.visits]
source = "visits.parquet"
privacy_unit = { column = "patient_id", max_rows = 20 }
references = { patients = "patient_id" }
[table.visits.column]
ward = { type = "text", domain = ["a", "b"] }
"""
LINES = """
[table.lines]
source = "lines.parquet"
privacy_unit = { through = "visits", on = "visit_id", max_rows = 50 }
[table.lines.column]
drug = { type = "text", domain = ["x", "y"] }
"""


def load(folder: Path, *parts: str) -> Catalog:
    path = folder / "c.toml"
    path.write_text("".join(parts))
    return read_catalog(path)


def refusal(folder: Path, *parts: str) -> str:
    with pytest.raises(CatalogError) as caught:
        load(folder, *parts)
    assert caught.value.hint
    return str(caught.value)


def test_a_unit_of_three_tables(tmp_path: Path) -> None:
    tables = load(tmp_path, LINES, HEAD, VISITS).tables
    assert list(tables) == ["lines", "patients", "visits"]
    lines, visits = tables["lines"], tables["visits"]
    way = Reference("visits", (("visit_id", "visit_id"),))
    assert visits.unit == Unit("patient_id", 20, "patient")
    assert visits.references == (Reference("patients", (("patient_id", "patient_id"),)),)
    assert (visits.keys, lines.keys) == (("visit_id",), ("visit_id",))
    assert lines.unit == Unit("patient_id", 50, "patient", way)
    assert isinstance(lines, DerivedTable)
    assert lines.relation == Scan("lines")
    assert [base.name for base in lines.bases] == ["visits", "lines"]


def test_what_a_table_refers_to_is_policy(tmp_path: Path) -> None:
    whole = load(tmp_path, HEAD, VISITS).policy_hash()
    less = VISITS.replace('references = { patients = "patient_id" }\n', "")
    assert load(tmp_path, HEAD, less).policy_hash() != whole


def test_columns_of_other_names(tmp_path: Path) -> None:
    other = VISITS.replace('column = "patient_id"', 'column = "who"').replace(
        '{ patients = "patient_id" }', '{ patients = { on = { who = "patient_id" } } }'
    )
    visits = load(tmp_path, HEAD, other).tables["visits"]
    assert visits.references[0].on == (("who", "patient_id"),)
    assert visits.keys == ()


REFUSED = {
    "unknown table": (VISITS.replace("{ patients", "{ people"), "not declared"),
    "not many to one": (
        VISITS + VISITS.replace(".visits", ".stays").replace("{ patients", "{ visits"),
        "not many to one",
    ),
    "another column than the unit": (
        VISITS.replace('"patient_id" }\n[table', '{ on = { x = "patient_id" } } }\n[table'),
        "by its privacy unit and another column",
    ),
    "a circle": (
        LINES + VISITS.replace("{ patients", "{ lines").replace('"patient_id" }\n[', '"l" }\n['),
        "round in a circle",
    ),
    "itself": (VISITS.replace("{ patients", "{ visits"), "round in a circle"),
    "no way to the unit": (VISITS.replace("{ column", "{ colum = 1, column"), "unknown key"),
    "no max_rows": (VISITS.replace(", max_rows = 20", ""), "no max_rows"),
    "through a table of rows": (
        LINES.replace('"visits"', '"loose"')
        + '[table.loose]\nsource = "l.parquet"\nprivacy_unit = "row"\n'
        '[table.loose.column]\nsex = { type = "text", domain = ["f"] }\n',
        "share no declared unit",
    ),
    "different units": (
        "[unit.doctor]\n" + VISITS.replace("max_rows = 20", 'max_rows = 20, unit = "doctor"'),
        "does not say which unit",
    ),
    "an unknown unit": (
        VISITS.replace("max_rows = 20", 'max_rows = 2, unit = "x"'),
        "not declared",
    ),
    "both": (VISITS.replace('column = "patient_id",', 'column = "p", through = "x",'), "malformed"),
    "of a public table": (
        VISITS + '[table.days]\nsource = "d.parquet"\npublic = true\n'
        'references = { patients = "patient_id" }\n[table.days.column]\n'
        'day = { type = "integer", domain = [0, 9] }\n',
        "public table is joined as it is",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(tmp_path: Path, name: str) -> None:
    text, said = REFUSED[name]
    assert said in refusal(tmp_path, HEAD, text)


def test_units_that_differ(tmp_path: Path) -> None:
    both = HEAD.replace("max_rows = 1", 'max_rows = 1, unit = "patient"') + "[unit.doctor]\n"
    other = VISITS.replace("max_rows = 20", 'max_rows = 20, unit = "doctor"')
    assert "units differ: doctor and patient" in refusal(tmp_path, both, other)
