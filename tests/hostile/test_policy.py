"""Hostile catalogs, through connect: E_POLICY, and never a ledger for a catalog that is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import dpsql
from tests.support.world import BOOK, catalog_text, ledger_state, refusal

pytestmark = pytest.mark.usefixtures("one_reader")

EXTRA = "[table.visits.column]\n"


def declare(line: str) -> str:
    """The catalog with one more column."""
    return catalog_text().replace(EXTRA, EXTRA + line + "\n")


def swap(old: str, new: str) -> str:
    """The catalog with one text replaced."""
    text = catalog_text()
    assert old in text
    return text.replace(old, new, 1)


UNIT = "max_rows = 5"
CATALOGS = {
    "B087": [declare('k = { type = "number", bounds = [0, 0] }')],
    "B132": [
        declare(f'k = {{ type = "number", bounds = {bounds} }}')
        for bounds in ("[nan, 1]", "[0, inf]", "[-inf, inf]", "[0, 9007199254740993]", "[5, 1]")
    ],
    "B133": [
        declare('k = { type = "text", domain = ["A", "A "] }'),
        declare('k = { type = "text", domain = ["\\u00e9", "e\\u0301"] }'),
        declare('k = { type = "text", domain = ["A", "A"] }'),
    ],
    "B135": ["budget: !!python/object/apply:os.system ['touch owned']\n", "- a\n- b\n"],
    "B136": [swap("epsilon = 1000", "epsilom = 1"), swap("epsilon = 1000", "epsilon = 1\nmax = 2")],
    "B138": [catalog_text(value) for value in ("inf", "nan", "-inf", "0", "-1", '"1"', "true")],
    "B139": [swap(UNIT, f"max_rows = {value}") for value in ("0", "-1", "1.5", "true", '"5"')],
    "B142": [
        declare(f'k = {{ type = "number", bins = {bins} }}')
        for bins in ("[0, 1, 1]", "[3, 2, 1]", "[0]", "[]", "[0, nan]")
    ],
    "P012": [
        declare('k = { type = "number", bounds = [1e-99999999, 1] }'),
        declare('k = { type = "number", bounds = [0, 1e99999999] }'),
        declare('k = { type = "number", bounds = [0, 1e99999999999999999999] }'),
        catalog_text("1e99999999999999999999"),
    ],
    "P013": [declare('k = { type = "number", bins = [1, 1.00000000000000000001, 2] }')],
    "P014": [declare('k = { type = "integer", bins = [0, 0.5, 2] }')],
    "P015": [declare('k = { type = "date", domain = ["9999-01-01", "9999-12-31"], by = "year" }')],
    "P016": [swap('source = "visits.parquet"', 'source = "~nobody-here/v.parquet"')],
    "P017": [declare('k = { type = "text", domain = ["A", "B"], other = "A " }')],
}
EXPECTED = {case["id"]: case["expected"].partition(":")[2] for case in BOOK["cases"]}


@pytest.mark.parametrize(
    ("id", "text"), [(id, text) for id, texts in CATALOGS.items() for text in texts]
)
def test_a_bad_catalog_is_refused(world: Path, id: str, text: str) -> None:
    world.write_text(text, encoding="utf-8")
    error = refusal(lambda: dpsql.connect(world, epsilon=1))
    assert isinstance(error, dpsql.CatalogError)
    assert error.code == EXPECTED[id]
    assert error.hint
    assert world.name in error.message
    assert sorted(path.name for path in world.parent.iterdir()) == [
        "adult.parquet", "visits.parquet", "world.toml",
    ]  # fmt: skip
    assert not Path("owned").exists()


def test_two_tables_on_one_file_share_one_budget(world: Path) -> None:
    """B144."""
    os.symlink(world.parent / "adult.parquet", world.parent / "again.parquet")
    text = catalog_text("1", "0")
    start = text.index("[table.adult]")
    twin = text[start : text.index("[table.visits]")].replace("table.adult", "table.twin")
    world.write_text(text + twin.replace("adult.parquet", "again.parquet"), encoding="utf-8")
    with dpsql.connect(world, epsilon=0.75) as connection:
        connection.execute("SELECT COUNT(*) FROM adult")
        error = refusal(lambda: connection.execute("SELECT COUNT(*) FROM twin"))
        assert isinstance(error, dpsql.BudgetExceeded)
        connection.executescript(
            "SET epsilon = 0.25; SELECT COUNT(*) FROM adult; SELECT COUNT(*) FROM twin"
        )
        assert connection.budget.remaining_epsilon == 0


CHANGES: list[Callable[[str], str]] = [
    lambda text: text.replace("epsilon = 1000", "epsilon = 2000"),
    lambda text: text.replace("epsilon = 1000", "epsilon = 10"),
    lambda text: text.replace("delta = 1e-9", "delta = 1e-8"),
    lambda text: text.replace("max_rows = 5", "max_rows = 1"),
    lambda text: text.replace("domain = [17, 90]", "domain = [17, 91]"),
    lambda text: text.replace("bounds = [0, 10000]", "bounds = [0, 100]"),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_changed_policy_is_refused(world: Path, number: int) -> None:
    """B145: only the curator's own command changes a budget."""
    with dpsql.connect(world, epsilon=1) as connection:
        connection.execute("SELECT COUNT(*) FROM adult")
    with dpsql.connect(world) as connection:
        before = ledger_state(connection)
    old = world.read_text(encoding="utf-8")
    changed = CHANGES[number](old)
    assert changed != old
    world.write_text(changed, encoding="utf-8")
    assert refusal(lambda: dpsql.connect(world)).code == "E_POLICY_CHANGED"
    world.write_text("# only a remark\n" + old, encoding="utf-8")
    with dpsql.connect(world) as connection:
        assert ledger_state(connection) == before
