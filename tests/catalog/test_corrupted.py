"""Catalogs with something wrong in them: each is refused with a hint, or works; nothing is charged.

A valid catalog is corrupted at random: entries dropped, twice, of other types, misspelt, in the
wrong place, with numbers, dates and texts that no catalog holds, and tables that refer in circles.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

import dpsql
from dpsql.catalog.read import BUDGET_KEYS, COLUMN_KEYS, TABLE_KEYS, read_catalog
from tests.support.effort import effort

CORRUPTED = effort(150)

GOOD: dict[str, Any] = {
    "budget": {
        "epsilon": 10,
        "delta": 1e-9,
        "max_epsilon_per_request": 5,
        "default_epsilon": 1,
        "discovery_delta": 1e-10,
    },
    "analyst": {"ana": {"epsilon": 4}},
    "ledger": {"anchor": "anchors"},
    "names": {"visibility": "own"},
    "noise": {"backend": "dpsql"},
    "scratch": {"epsilon": 2},
    "unit": {"person": {}},
    "table": {
        "people": {
            "source": "people.csv",
            "privacy_unit": {"column": "id", "max_rows": 1, "unit": "person"},
            "row_count_hint": 100,
            "complete": True,
            "spill": "spilled",
            "column": {
                "age": {"type": "integer", "domain": [0, 99], "null": True},
                "sex": {"type": "text", "domain": ["f", "m"], "other": True},
                "born": {"type": "date", "domain": ["2020-01-01", "2020-12-31"], "by": "month"},
            },
        },
        "visits": {
            "source": "visits.csv",
            "privacy_unit": {"column": "id", "max_rows": 5, "unit": "person"},
            "references": {"people": "id"},
            "unit_columns": ["other_id"],
            "unit_keys": ["bill"],
            "budget": {"epsilon": 3},
            "column": {
                "ward": {"type": "text", "labels": {"a": "ay", "b": "bee"}},
                "cost": {"type": "number", "bounds": [0, 100], "step": 10},
                "paid": {"type": "number", "domain": [0, 100], "bins": 5},
                "fee": {"type": "number", "bounds": [0, 100], "bounds_are": "loose"},
                "rate": {"type": "decimal", "domain": [0, 9.99], "step": 0.01},
                "found": {"type": "text", "domain": "discover", "max_keys": 2},
                "read": {"type": "text", "domain_file": "values.txt"},
                "seen": {"type": "time", "domain": ["08:00", "18:00"], "by": "15 minutes"},
                "at": {
                    "type": "timestamp",
                    "domain": ["2024-01-01", "2024-01-31"],
                    "by": "hour",
                    "zone": "Europe/Berlin",
                },
            },
        },
        "bills": {
            "source": {"file": "bills.duckdb", "table": "main.bills"},
            "privacy_unit": {"through": "visits", "on": "bill", "max_rows": 9},
            "column": {"sum": {"type": "integer", "domain": [0, 9]}},
        },
        "wards": {
            "source": "wards.csv",
            "public": True,
            "column": {"ward": {"type": "text"}, "floor": {"type": "integer"}},
        },
    },
    "view": {
        "old": {"sql": "SELECT * FROM people WHERE age > 64"},
        "often": {
            "sql": "SELECT id, ward, COUNT(*) AS n FROM visits GROUP BY id, ward",
            "max_rows": 2,
            "column": {"n": {"type": "integer", "domain": [1, 5]}},
        },
    },
}
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2.5, 1e300, -1e300, 10**30, float("nan"), float("inf")),
    *("", " ", "x", "row", "discover", "2024-02-30", "0000-01-01", "10000-01-01", "2024-01-01"),
    *("é", "é", "日本", "\u202e", "\u0000", "\x1b[2J", "a" * 5_000, "'; DROP TABLE t", "../../x"),
    *([], [1], [[]], [1, "a"], [5, 1], [0, 0], {}, {"x": 1}, {"column": {}}, ["a"] * 300),
)


def written(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return "nan" if value != value else "inf"
    plain = "none" if value is None else value
    return repr(plain) if isinstance(plain, float) else json.dumps(plain)


def places(tree: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The keys that lead to every entry."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (*keys, key)
            yield from places(value, (*keys, key))


def inside(tree: Any, keys: tuple[str, ...]) -> MutableMapping[str, Any]:
    for key in keys[:-1]:
        tree = tree[key]
    found: MutableMapping[str, Any] = tree
    return found


def corrupted(rng: random.Random) -> str:
    """The text of a catalog with one or two things wrong."""
    tree = copy.deepcopy(GOOD)
    for _ in range(rng.choice([1, 1, 2])):
        found = list(places(tree))
        keys = rng.choice(found)
        around, key = inside(tree, keys), keys[-1]
        match rng.randrange(9):
            case 0:
                del around[key]
            case 1:
                around[key] = rng.choice(JUNK)
            case 2:
                spelled = rng.choice([key[:-1], key + "s", key.upper(), key + " ", "é" + key, ""])
                around[spelled] = around.pop(key)
            case 3:
                around[key] = rng.choice([[around[key]], {"x": around[key]}, str(around[key])])
            case 4:
                other = rng.choice(found)
                moved = copy.deepcopy(inside(tree, other)[other[-1]])
                around[key] = moved
            case 5:
                around[rng.choice([key.upper(), key + "2"])] = copy.deepcopy(around[key])
            case 6:
                values = [
                    each for each in places(tree) if isinstance(inside(tree, each)[each[-1]], list)
                ]
                if values:
                    place = rng.choice(values)
                    listed = inside(tree, place)[place[-1]]
                    if listed:
                        listed[rng.randrange(len(listed))] = rng.choice(JUNK)
            case 7:
                tables = [name for name in tree.get("table", {}) if isinstance(name, str)]
                if len(tables) > 1:
                    one, two = rng.sample(tables, 2)
                    for name, to in ((one, two), (two, one)):
                        body = tree["table"][name]
                        if isinstance(body, dict):
                            if rng.random() < 0.5:
                                body["references"] = {to: "id"}
                            else:
                                body["privacy_unit"] = {"through": to, "on": "id", "max_rows": 2}
            case _:
                tree["view"] = {"a": {"sql": "SELECT * FROM b"}, "b": {"sql": "SELECT * FROM a"}}
    lines = [f"{json.dumps(key)} = {written(value)}" for key, value in tree.items()]
    if rng.random() < 0.1:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    text = "\n".join(lines)
    if rng.random() < 0.1:
        cut = rng.randrange(len(text))
        text = text[:cut] + rng.choice(["", "\u0000", "]", '"', "\n[", "\ufeff"]) + text[cut + 1 :]
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data of all three tables."""
    found = tmp_path_factory.mktemp("corrupted")
    with duckdb.connect() as database:
        for name, sql in {
            "people": "SELECT i AS id, i AS age, 'f' AS sex, DATE '2020-05-05' AS born",
            "visits": "SELECT i AS id, i AS other_id, i AS bill, 'a' AS ward, i AS cost, "
            "i AS paid, i AS fee, i AS rate, 'k' AS found, 'a' AS read, '09:00' AS seen, "
            "TIMESTAMP '2024-01-05' AS at",
            "wards": "SELECT 'a' AS ward, i AS floor",
        }.items():
            database.execute(f"COPY ({sql} FROM range(9) r(i)) TO '{found / name}.csv'")
    (found / "values.txt").write_text("a\nb\n")
    with duckdb.connect(str(found / "bills.duckdb")) as database:
        database.execute("CREATE TABLE bills AS SELECT i AS bill, i AS sum FROM range(9) r(i)")
    with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(found / "state")}):
        yield found


def refusals(path: Path) -> Iterator[dpsql.Error]:
    """What a catalog, and EXPLAIN of its tables, are refused by; nothing is charged."""
    try:
        with dpsql.connect(path, epsilon=1, analyst="ana") as connection:
            for table in ("people", "visits", "bills", "often"):
                try:
                    connection.execute(f"EXPLAIN SELECT COUNT(*) FROM {table}").fetchall()
                except dpsql.Error as error:
                    yield error
            assert connection.budget.spent_epsilon == 0
    except dpsql.Error as error:
        yield error


def forget(folder: Path) -> None:
    """Leave no catalog, no ledger and no anchor."""
    for each in folder.glob("c.*"):
        each.unlink()
    for name in ("state", "anchors"):
        shutil.rmtree(folder / name, ignore_errors=True)


def test_every_key_is_there_to_be_corrupted(folder: Path) -> None:
    tables, columns = GOOD["table"].values(), set[str]()
    for table in tables:
        for facts in table["column"].values():
            columns |= facts.keys()
    assert columns == set(COLUMN_KEYS)
    assert {key for table in tables for key in table} == set(TABLE_KEYS)
    assert GOOD["budget"].keys() == set(BUDGET_KEYS)
    path = folder / "c.toml"
    path.write_text("\n".join(f"{json.dumps(key)} = {written(it)}" for key, it in GOOD.items()))
    assert list(refusals(path)) == []
    forget(folder)


def test_a_corrupted_catalog_is_refused_with_a_hint_or_works(folder: Path) -> None:
    refused, path = 0, folder / "c.toml"
    for seed in range(CORRUPTED):
        text = corrupted(random.Random(seed))
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        found = list(refusals(path))
        if any(isinstance(error, dpsql.CatalogError) for error in found):
            assert not (folder / "c.ledger").exists(), f"{seed}: {found}"
        for error in found:
            assert error.hint, f"{seed}: {error}"
            assert error.code != "E_INTERNAL", f"{seed}: {error}"
            assert error.message.isprintable(), f"{seed}: {error!r}"
        refused += bool(found)
        forget(folder)
    assert CORRUPTED // 2 < refused < CORRUPTED


def test_what_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    """One entry after the other of a catalog by lines is wrong: the line told is its own."""
    lines = [
        "[budget]",
        "epsilon = 10",
        "",
        "# a remark",
        "[table.people]",
        'source = "people.csv"',
        'privacy_unit = { column = "id", max_rows = 2 }',
        "",
        '[table."people".column]',
        'age = { type = "integer", domain = [0, 99] }',
        'sex = { type = "text", domain = [',
        '  "f",',
        '  "m",',
        "] }",
        "[table.people.column.born]",
        'type = "date"',
        'domain = ["2020-01-01", "2020-12-31"]',
    ]
    wrong = {
        2: "epsilom = 10",
        5: "[tabel.people]",
        6: "source = 5",
        7: 'privacy_unit = { column = "id", max_rows = 0 }',
        10: 'age = { type = "integer", domain = [9, 1] }',
        11: 'sex = { type = "txet", domain = [',
        16: 'type = "day"',
        17: 'domain = ["2020-01-01", "2020-12-32"]',
    }
    path = tmp_path / "c.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    read_catalog(path)
    for number, text in wrong.items():
        path.write_text("\n".join([*lines[: number - 1], text, *lines[number:]]), "utf-8")
        with pytest.raises(dpsql.CatalogError, match=rf"c\.toml, line {number}\b"):
            read_catalog(path)
