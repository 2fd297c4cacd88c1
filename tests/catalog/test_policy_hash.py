"""The policy hash changes if and only if a fact does that the guarantee depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.catalog import Column
from dpsql.catalog.domain import Values
from dpsql.catalog.read import read_catalog
from dpsql.records import replace

TEXT = """
[budget]
epsilon = 1.5
delta = 1e-9

[table.t]
source = "t.csv"
privacy_unit = { column = "p", max_rows = 5 }

[table.t.column]
a = { type = "integer", domain = [0, 9] }
b = { type = "text", domain = ["x", "y"], other = true, null = true }
c = { type = "number", domain = [0, 4], bins = 4 }
d = { type = "date", domain = ["2024-01-01", "2024-03-31"], by = "month" }
m = { type = "number", bounds = [0, 10] }

[table.u]
source = "u.csv"
privacy_unit = "row"

[table.u.column]
a = { type = "boolean", domain = [false, true] }
"""

RELEVANT = [
    ("epsilon = 1.5", "epsilon = 1.6"),
    ("epsilon = 1.5", "epsilon = 1.500001"),
    ("delta = 1e-9", "delta = 1e-10"),
    ("delta = 1e-9", ""),
    ("max_rows = 5", "max_rows = 4"),
    ('column = "p"', 'column = "q"'),
    ('privacy_unit = "row"', 'privacy_unit = { column = "p", max_rows = 1 }'),
    ('privacy_unit = "row"', "public = true"),
    ('"t.csv"', '"v.csv"'),
    ("[0, 9]", "[0, 10]"),
    ("[0, 9]", "[1, 9]"),
    ("[0, 9] }", "[0, 9], null = true }"),
    ('a = { type = "integer", domain = [0, 9] }', 'a = { type = "integer", bounds = [0, 9] }'),
    ('["x", "y"]', '["x", "z"]'),
    ('["x", "y"]', '["y", "x"]'),
    ("other = true", 'other = "rest"'),
    (", other = true", ""),
    (", null = true", ""),
    ("bins = 4", "bins = 2"),
    ("domain = [0, 4], bins = 4", "bins = [0, 1, 2.5, 4]"),
    ('by = "month"', 'by = "quarter"'),
    ('"2024-03-31"', '"2024-04-01"'),
    ("bounds = [0, 10]", "bounds = [0, 11]"),
    ("bounds = [0, 10]", "bounds = [-1, 10]"),
    ("[table.u", "[table.w"),
    ('privacy_unit = "row"', 'privacy_unit = "row"\ncomplete = true'),
    ("m = { type", "n = { type"),
    ("m = { type", 'e = { type = "text", domain = ["q"] }\nm = { type'),
    ('type = "number", bounds', 'type = "integer", bounds'),
]
IRRELEVANT = [
    ("[budget]", "# a remark\n[budget]"),
    ("epsilon = 1.5", "epsilon = 15e-1"),
    ("epsilon = 1.5", "epsilon = 1.5\nmax_epsilon_per_request = 7"),
    ("delta = 1e-9", "delta = 0.000000001"),
    ('"2024-03-31"', "2024-03-05"),
    ('"2024-01-01"', '"2024-01-20"'),
    ("other = true", 'other = "other"'),
    ("domain = [0, 4], bins = 4", "bins = [0, 1, 2, 3, 4]"),
    ("bounds = [0, 10]", "bounds = [0.0, 1e1]"),
    ('domain = [0, 9] }', 'domain = [0, 9], null = false }'),
    ('privacy_unit = "row"', 'privacy_unit = "row"\npublic = false'),
    ('privacy_unit = "row"', 'privacy_unit = "row"\ncomplete = false'),
    ('{ column = "p", max_rows = 5 }', '{ max_rows = 5, column = "p" }'),
    ('"t.csv"', '"./x/../t.csv"'),
]  # fmt: skip


def hash_of(folder: Path, text: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "c.toml"
    path.write_text(text, encoding="utf-8")
    return read_catalog(path).policy_hash()


def change(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new)


@pytest.mark.parametrize(("old", "new"), RELEVANT)
def test_it_changes_with_a_fact(tmp_path: Path, old: str, new: str) -> None:
    assert hash_of(tmp_path, change(old, new)) != hash_of(tmp_path, TEXT)


@pytest.mark.parametrize(("old", "new"), IRRELEVANT)
def test_it_stays_when_only_the_writing_changes(tmp_path: Path, old: str, new: str) -> None:
    assert hash_of(tmp_path, change(old, new)) == hash_of(tmp_path, TEXT)


def test_ledgers_know_booleans_without_domains_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(change(", domain = [false, true]", ""))
    catalog = read_catalog(path)
    column = catalog.tables["u"].columns["a"]
    assert column.domain == Values((False, True))
    bare = replace(catalog.tables["u"], columns={"a": Column("a", "boolean")})
    before = replace(catalog, tables={**catalog.tables, "u": bare})
    assert catalog.policy_hash() == before.policy_hash()
    assert catalog.parts() == before.parts()


def test_it_stays_when_catalog_and_data_move_together(tmp_path: Path) -> None:
    assert hash_of(tmp_path / "here", TEXT) == hash_of(tmp_path / "there", TEXT)


def test_it_stays_when_a_domain_moves_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("x\ny\n")
    moved = change('domain = ["x", "y"]', 'domain_file = "b.txt"')
    assert hash_of(tmp_path, moved) == hash_of(tmp_path, TEXT)
    (tmp_path / "b.txt").write_text("x\nz\n")
    assert hash_of(tmp_path, moved) != hash_of(tmp_path, TEXT)


def test_all_relevant_changes_differ_from_each_other(tmp_path: Path) -> None:
    hashes = [hash_of(tmp_path, change(old, new)) for old, new in RELEVANT]
    assert len(set(hashes)) == len(RELEVANT)
