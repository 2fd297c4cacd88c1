"""A neutral world for hostile inputs: ``adult``, one row per unit, and ``visits``, five per person.

The table is described in tests/bad_inputs.json; the data are a few hundred rows of UCI Adult.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.privacy.vault.vault import TableVault

ROOT = Path(__file__).parents[2]
BOOK: dict[str, Any] = json.loads((ROOT / "tests" / "bad_inputs.json").read_text("utf-8"))
ROWS = 400
DEEP = "SELECT COUNT(*) FROM adult WHERE age > " + "(" * 2000 + "1" + ")" * 2000
MANY = "SELECT COUNT(*) FROM adult WHERE age IN (" + ", ".join(["1"] * 100_000) + ")"
LONG = "SELECT COUNT(*) FROM adult WHERE age > " + "9" * 5000
TEXT = "'" + "e" * 1000 + "'"
GROW = "SELECT COUNT(*) FROM adult WHERE education = " + "REPLACE(" * 3 + "education"
BUILT = {"B089": DEEP, "B091": MANY, "B092": LONG, "P008": GROW + f", 'e', {TEXT})" * 3}


@dataclass(frozen=True, slots=True)
class Case:
    """One entry of tests/bad_inputs.json."""

    id: str
    kind: str
    input: str
    expected: str
    until: str | None = None

    @property
    def sql(self) -> str:
        """The statement, built where the entry describes it in words."""
        return BUILT.get(self.id, self.input)


def cases(kind: str) -> list[Case]:
    """The cases of one kind."""
    return [
        Case(c["id"], kind, c["input"], c["expected"], c.get("until"))
        for c in BOOK["cases"]
        if c["kind"] == kind
    ]


def write_data(folder: Path, which: str) -> None:
    """Write adult.parquet and visits.parquet: ``table``, ``more`` (one unit more) or ``empty``."""
    demo = ROOT / "demo_data" / "adult.parquet"
    with duckdb.connect() as database:
        database.execute(
            f"CREATE TABLE adult AS SELECT * REPLACE ("
            f"  nullif(workclass, '?') AS workclass, nullif(occupation, '?') AS occupation,"
            f"  nullif(native_country, '?') AS native_country),"
            f" 10000.0 + row_number() OVER () AS fnlwgt, 'person ' || row_number() OVER () AS"
            f" person_name FROM (FROM '{demo}' LIMIT {ROWS})"
        )
        database.execute(
            "CREATE TABLE visits AS SELECT 'p' || i % 60 AS person_id,"
            " ['A', 'B', 'C', 'D'][i % 4 + 1] AS ward, CAST(i % 97 AS DOUBLE) AS cost"
            " FROM range(400) t(i)"
        )
        if which == "more":
            database.execute(
                "INSERT INTO adult SELECT * REPLACE (37 AS age, 'Never-worked' AS workclass,"
                " 'Atlantis' AS native_country, 'someone else' AS person_name) FROM adult LIMIT 1"
            )
            database.execute("INSERT INTO visits SELECT 'new', 'A', 1e300 FROM range(9)")
        if which == "empty":
            database.execute("DELETE FROM adult")
            database.execute("DELETE FROM visits")
        for name in ("adult", "visits"):
            database.execute(f"COPY {name} TO '{folder / name}.parquet'")


def catalog_text(epsilon: str = "1000", delta: str = "1e-9") -> str:
    """The catalog of the world, with the domains of the demonstration catalog."""
    demo = tomllib.loads((ROOT / "demo_data" / "adult.toml").read_text("utf-8"))
    columns: dict[str, dict[str, Any]] = demo["table"]["adult"]["column"]
    del columns["education_num"]
    for name in ("workclass", "occupation", "native_country"):
        columns[name]["domain"].remove("?")
        columns[name]["null"] = True
    columns["native_country"]["other"] = True
    columns["fnlwgt"] = {"type": "number"}
    lines = [f"{name} = {_inline(facts)}" for name, facts in columns.items()]
    return f"""
[budget]
epsilon = {epsilon}
delta = {delta}

[table.adult]
source = "adult.parquet"
privacy_unit = "row"

[table.adult.column]
{chr(10).join(lines)}

[table.visits]
source = "visits.parquet"
privacy_unit = {{ column = "person_id", max_rows = 5 }}

[table.visits.column]
ward = {{ type = "text", domain = ["A", "B", "C"] }}
cost = {{ type = "number", bounds = [0, 10000] }}
"""


def _inline(facts: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in facts.items()) + " }"


@dataclass
class Watch:
    """How often rows were within reach: vaults opened, loaded and counted."""

    opened: int = 0
    loaded: int = 0
    counted: list[tuple[str, ...]] = field(default_factory=list)


@contextmanager
def watching() -> Iterator[Watch]:
    """Count every touch of the data while the vaults go on working."""
    watch = Watch()
    init, load = TableVault.__init__, TableVault.load

    def opened(self: TableVault, *arguments: Any, **options: Any) -> None:
        watch.opened += 1
        init(self, *arguments, **options)

    def loaded(self: TableVault, *columns: Any) -> None:
        watch.loaded += 1
        load(self, *columns)

    def counted(by: Callable[..., Any]) -> Callable[..., Any]:
        def count(self: TableVault, resolutions: Any, *how: Any, **named: Any) -> Any:
            watch.counted.append(tuple(name for each in resolutions for name in each.columns))
            return by(self, resolutions, *how, **named)

        return count

    with (
        mock.patch.object(TableVault, "__init__", opened),
        mock.patch.object(TableVault, "load", loaded),
        mock.patch.object(TableVault, "tally", counted(TableVault.tally)),
        mock.patch.object(TableVault, "mark", counted(TableVault.mark)),
    ):
        yield watch


def ledger_state(connection: Connection) -> tuple[object, ...]:
    """Everything a charge or a release would change, down to the bytes on disk."""
    path = connection.catalog.path
    files = [path.with_suffix(".ledger"), path.with_suffix(".releases")]
    stored = [file.read_bytes() if file.exists() else None for file in files]
    return (connection.entries(), connection.budget, *stored)


def refusal(action: Callable[[], object]) -> dpsql.Error:
    """The typed error of an action that must be refused."""
    with pytest.raises(dpsql.Error) as caught:
        action()
    assert caught.value.code in BOOK["codes"]
    assert caught.value.__cause__ is None or caught.value.code == "E_UNEXPECTED"
    assert str(caught.value)
    return caught.value
